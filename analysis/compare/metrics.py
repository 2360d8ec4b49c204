"""What is compared: one value a repeat, computed from the record's raw counters."""

from dataclasses import dataclass

from analysis.acceptance import counters_of, num_request_steps
from harness.schema import Record, derive

__all__ = ["DEFAULT_GATES", "METRICS", "Metric", "values_of"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Metric:
    """A quantity of a repeat.

    Args:
        name: Its name on the command line and in JSON.
        title: Its name in tables.
        unit: Its unit.
        bigger_is_better: Which direction is an improvement.
        digits: Digits after the decimal point.
    """

    name: str
    title: str
    unit: str
    bigger_is_better: bool
    digits: int = 2


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            name="output_throughput_tok_s", title="Output throughput", unit="tok/s", bigger_is_better=True, digits=1
        ),
        Metric(name="acceptance_length", title="Acceptance length", unit="tokens/step", bigger_is_better=True),
        Metric(name="median_ttft_ms", title="Median TTFT", unit="ms", bigger_is_better=False, digits=1),
        Metric(name="median_tpot_ms", title="Median TPOT", unit="ms", bigger_is_better=False),
        Metric(name="median_e2el_ms", title="Median E2EL", unit="ms", bigger_is_better=False, digits=0),
    )
}
"""Every metric, in the order of tables."""

DEFAULT_GATES = ("output_throughput_tok_s", "acceptance_length")
"""Metrics whose loss is an alarm unless others are chosen; the rest are shown."""

_LATENCIES = ("median_ttft_ms", "median_tpot_ms", "median_e2el_ms")


def values_of(record: Record, segments: list[str], *, speculates: bool) -> dict[str, float]:
    """Metrics of one finished repeat; a metric that its counters do not allow is left out.

    Throughput is total output tokens over total duration (Section 5.1). A latency is the mean of the segments' medians,
    weighted by completed requests. Acceptance length is without tokens cut off at an output's end: a report leaves them
    out only where the formula cannot hold (`analysis.acceptance`), and a gate must not see that step as a change. It is
    left out of arms that draft nothing: it is 1 by definition.

    Args:
        record: A repeat that is done.
        segments: Segments it must have to count.
        speculates: Whether its arm drafts tokens.
    """
    found = {segment.name: segment for segment in record.segments}
    if not found or any(name not in found for name in segments):
        return {}
    pooled = derive(record.segments)["pooled"]
    values: dict[str, float] = {}
    if pooled.output_throughput_tok_s:
        values["output_throughput_tok_s"] = pooled.output_throughput_tok_s
    counters = counters_of(record.segments) if speculates else None
    steps = num_request_steps(counters) if counters is not None else None
    if counters is not None and steps:
        values["acceptance_length"] = counters.num_output / steps
    weights = [segment.num_completed for segment in record.segments]
    for name in _LATENCIES:
        medians = [getattr(segment, name) for segment in record.segments]
        if sum(weights) and all(value is not None for value in medians):
            mean = sum(w * v for w, v in zip(weights, medians, strict=True)) / sum(weights)
            if mean > 0:
                values[name] = mean
    return values
