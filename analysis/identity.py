"""Greedy outputs of every arm against vanilla decoding's, request by request.

Speculative decoding at temperature 0 must not change a single token, but batches of another shape sum floats in another
order, so vanilla against its own other repeats is the noise floor that an arm's share is read against.
"""

from dataclasses import dataclass, field

from analysis.load import CellKey, Point, Sweep
from harness.errors import ResultFormatError
from harness.schema import RequestRecord
from harness.store import read_requests

__all__ = ["Difference", "Identity", "compare_outputs", "compare_requests"]

REQUESTS_NAME = "requests.jsonl.zst"
_EXCERPT = 24

_Key = tuple[str, int, str]


@dataclass(kw_only=True, slots=True, frozen=True)
class Difference:
    """One request whose output differs from vanilla's.

    Args:
        position: Characters the two texts share from the start.
        ours: Excerpt around that position, of the arm.
        theirs: The same of vanilla.
        num_output_tokens: Tokens of the arm's output and of vanilla's.
    """

    repeat: int
    segment: str
    index: int
    id: str
    position: int
    ours: str
    theirs: str
    num_output_tokens: tuple[int | None, int | None]


@dataclass(kw_only=True, slots=True)
class Identity:
    """Greedy outputs of one arm at one grid point against vanilla's.

    Args:
        reference: What it is compared with, in words.
        num_compared: Pairs of completed requests, over all repeats.
        num_identical: Pairs with the same text and the same number of output tokens.
        num_unmatched: Requests without a completed partner.
        repeats: Repeats that were compared.
        reason: Why nothing was compared.
    """

    point: Point
    arm: str
    arm_label: str
    reference: str
    num_compared: int = 0
    num_identical: int = 0
    num_unmatched: int = 0
    repeats: list[int] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    reason: str | None = None

    @property
    def share(self) -> float | None:
        """Share of identical outputs, null when no pair was compared."""
        return self.num_identical / self.num_compared if self.num_compared else None


def compare_outputs(sweep: Sweep) -> list[Identity]:
    """Compare every greedy cell with vanilla at the same grid point.

    An arm's repeat is compared with the same repeat of vanilla; vanilla's later repeats with its first. Every finished
    repeat's requests are read, also where nothing is compared: unreadable files, and those that hold other requests
    than the record counts, are added to `sweep.problems`.
    """
    outputs = _Outputs(sweep=sweep)
    results = []
    for point, cells in sweep.points().items():
        if point.temperature != 0:
            continue
        vanilla = next((cell for cell in cells if _is_vanilla(cell)), None)
        if vanilla is None:
            reason = "no vanilla arm at this grid point"
            results += [_empty(point, cell, reason) for cell in cells]
            continue
        reference = {repeat: outputs.read(vanilla.cell_id, repeat) for repeat in sweep.repeats[vanilla.cell_id]}
        results.append(_noise_floor(point, vanilla, reference))
        results += [_against(outputs, point, cell, vanilla, reference) for cell in cells if cell is not vanilla]
    for cell_id, repeat in sorted(sweep.records.keys() - outputs.known):
        outputs.read(cell_id, repeat)
    return results


def compare_requests(
    ours: dict[_Key, RequestRecord], theirs: dict[_Key, RequestRecord], repeat: int, result: Identity
) -> None:
    """Add one repeat's comparison to a result.

    Args:
        ours: (segment, index, id) -> completed request of the arm.
        theirs: The same of the reference.
        repeat: Repeat of the arm.
        result: Where counts and differences are added.
    """
    result.repeats.append(repeat)
    result.num_unmatched += len(ours.keys() ^ theirs.keys())
    for key in ours.keys() & theirs.keys():
        a, b = ours[key], theirs[key]
        result.num_compared += 1
        if a.text == b.text and a.num_output_tokens == b.num_output_tokens:
            result.num_identical += 1
            continue
        position = _first_difference(a.text or "", b.text or "")
        result.differences.append(
            Difference(
                repeat=repeat,
                segment=a.segment,
                index=a.index,
                id=a.id,
                position=position,
                ours=_excerpt(a.text or "", position),
                theirs=_excerpt(b.text or "", position),
                num_output_tokens=(a.num_output_tokens, b.num_output_tokens),
            )
        )
    result.differences.sort(key=lambda d: (d.repeat, d.segment, d.index))


def _is_vanilla(cell: CellKey) -> bool:
    """Vanilla is the arm without a drafter; an arm named so counts before its first record exists."""
    return cell.arm == "vanilla" if cell.speculates is None else not cell.speculates


@dataclass(kw_only=True, slots=True)
class _Outputs:
    """Reads completed requests, and knows whose it has read."""

    sweep: Sweep
    known: set[tuple[str, int]] = field(default_factory=set)

    def read(self, cell_id: str, repeat: int) -> dict[_Key, RequestRecord] | None:
        """(segment, index, id) -> completed request of a repeat; null where they cannot be read."""
        key = (cell_id, repeat)
        self.known.add(key)
        try:
            requests = read_requests(self.sweep.paths[key] / REQUESTS_NAME, self.sweep.records[key])
        except ResultFormatError as error:
            self.sweep.name_problem(str(error))
            return None
        return {(r.segment, r.index, r.id): r for r in requests if r.success and r.text is not None}


def _against(
    outputs: _Outputs,
    point: Point,
    cell: CellKey,
    vanilla: CellKey,
    reference: dict[int, dict[_Key, RequestRecord] | None],
) -> Identity:
    result = _empty(point, cell, None)
    result.reference = f"{vanilla.arm_label}, same repeat"
    mine = outputs.sweep.repeats[cell.cell_id]
    for repeat in mine:
        theirs = reference.get(repeat)
        ours = outputs.read(cell.cell_id, repeat) if theirs is not None else None
        if ours is not None and theirs is not None:
            compare_requests(ours, theirs, repeat, result)
    if not result.num_compared:
        missing = "this arm" if not mine else vanilla.arm_label
        result.reason = (
            f"no repeat with outputs of both arms ({missing} has none)"
            if not result.repeats
            else ("no completed request in common")
        )
    return result


def _noise_floor(point: Point, vanilla: CellKey, reference: dict[int, dict[_Key, RequestRecord] | None]) -> Identity:
    result = _empty(point, vanilla, None)
    readable = {repeat: requests for repeat, requests in reference.items() if requests is not None}
    if len(readable) < 2:
        result.reason = "one repeat of vanilla: no noise floor" if readable else "vanilla has no finished repeat"
        return result
    first, *later = sorted(readable)
    result.reference = f"itself, repeat {first} (noise floor)"
    for repeat in later:
        compare_requests(readable[repeat], readable[first], repeat, result)
    if not result.num_compared:
        result.reason = "no completed request in common"
    return result


def _empty(point: Point, cell: CellKey, reason: str | None) -> Identity:
    return Identity(point=point, arm=cell.arm, arm_label=cell.arm_label, reference="", reason=reason)


def _first_difference(a: str, b: str) -> int:
    for position, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return position
    return min(len(a), len(b))


def _excerpt(text: str, position: int) -> str:
    """The text around a position on one line, control characters written as escapes."""
    start, end = max(0, position - _EXCERPT), position + _EXCERPT
    inner = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[start:end])
    return ("…" if start else "") + inner + ("…" if end < len(text) else "")
