"""How long a run takes: rough from the configuration, better once runs of the sweep have finished."""

from collections import defaultdict

from harness.plan import Cell, Run

__all__ = ["Estimator", "format_duration", "rough_run_s"]


def rough_run_s(cell: Cell) -> float:
    """Upper estimate of one repeat's wall time in seconds, from the engine's usual speed and the lengths of the model's
    own outputs, or output limits where those are not known.

    Args:
        cell: A planned cell.
    """
    engine, client = cell.engine, cell.client
    # Batching is assumed to scale throughput linearly and speculation not to help: an upper estimate, not a claim.
    rate = engine.estimated_tok_s_per_request
    seconds = engine.estimated_startup_s + client.warmup_output_tokens / rate
    for segment in cell.segments:
        num_tokens = sum(
            min(request.max_output_tokens, request.own_output_tokens or request.max_output_tokens)
            for request in segment.requests
        )
        concurrency = max(1, min(cell.batch_size, len(segment.requests)))
        seconds += num_tokens / (rate * concurrency)
    return seconds


class Estimator:
    """Estimates the time left, corrected by how long finished runs took.

    A cell that has run takes its own mean; another cell takes the rough estimate times the ratio of measured to rough
    time over all finished runs.
    """

    def __init__(self) -> None:
        self._measured: dict[str, list[float]] = defaultdict(list)
        self._rough: list[float] = []

    def add(self, run: Run, duration_s: float) -> None:
        """Note that a run took `duration_s` seconds."""
        self._measured[run.cell.cell_id].append(duration_s)
        self._rough.append(rough_run_s(run.cell))

    def run_s(self, cell: Cell) -> float:
        """Expected seconds of one repeat of a cell."""
        own = self._measured.get(cell.cell_id)
        if own:
            return sum(own) / len(own)
        measured = sum(sum(values) for values in self._measured.values())
        ratio = measured / sum(self._rough) if self._rough else 1.0
        return rough_run_s(cell) * ratio


def format_duration(seconds: float) -> str:
    """Short text for a duration, for example `2 h 05 min`."""
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
