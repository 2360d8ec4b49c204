"""Blazedit (Daita et al., 2025): Python files of about 5k and 10k characters with a change request."""

from dataclasses import dataclass

from workloads.errors import WorkloadError
from workloads.hub import HubDataset
from workloads.prompts import Messages, user_turn
from workloads.reader import Row, check_unique, parse_rows
from workloads.registry import LoadContext, Loader, require_at_least
from workloads.request import LoadedWorkload, Request, make_request

TOO_SHORT = "code not above min_input_characters"
OTHER_DISTANCE = "norm_distance outside min_distance to max_distance"


@dataclass(frozen=True, kw_only=True, slots=True)
class BlazeditOptions:
    """Filter (defaults: Section 5.1 of the paper) and limit of Blazedit."""

    min_input_characters: int = 1000
    """Programs must be longer than this."""
    min_distance: float = 0.05
    max_distance: float = 0.25
    """Bounds of the data set's own normalised distance, both included."""
    max_output_tokens: int = 4096

    def __post_init__(self) -> None:
        require_at_least("min_input_characters", self.min_input_characters, 0)
        require_at_least("max_output_tokens", self.max_output_tokens, 1)
        if not 0.0 <= self.min_distance <= self.max_distance <= 1.0:
            raise WorkloadError(
                "workload.options.min_distance and max_distance must be ordered fractions in [0, 1], got "
                f"{self.min_distance!r} and {self.max_distance!r}."
            )


def build_messages(code: str, change_request: str) -> Messages:
    """Return the prompt of the data set's authors, which vLLM's `bench serve` uses too."""
    return user_turn(
        "Given a code file, please apply the change requests and generate the new file.\n\n"
        f"Original file:\n```python\n{code}\n```\n\n"
        f"Change request:\n{change_request}\n\n"
        'Please generate the new code file in the "New file" section below.'
    )


def _parse(row: Row, part: str, max_output_tokens: int) -> Request:
    code = row.text("code", allow_empty=True)
    return make_request(
        id=row.own_id(),
        part=part,
        messages=build_messages(code, row.text("change_request")),
        max_output_tokens=max_output_tokens,
        input_program=code,
        distance=row.fraction("norm_distance"),
    )


def _load(context: LoadContext) -> LoadedWorkload:
    options: BlazeditOptions = context.options
    source, rows = context.open_rows()
    part = context.loader.name
    parsed = parse_rows(rows, lambda row: _parse(row, part, options.max_output_tokens))
    check_unique((request.id for request in parsed), source)
    long = [r for r in parsed if len(r.input_program or "") > options.min_input_characters]
    kept = [r for r in long if r.distance is not None and options.min_distance <= r.distance <= options.max_distance]
    dropped = {TOO_SHORT: len(parsed) - len(long), OTHER_DISTANCE: len(long) - len(kept)}
    return context.result(kept, source, parts=[part], dropped=dropped, bucket_basis="the data set's norm_distance")


def _check_row(row: Row) -> None:
    _parse(row, "blazedit", 1)


def _loader(size: str) -> Loader:
    return Loader(
        name=f"blazedit_{size}",
        summary=f"Blazedit, edits of Python files of about {size} characters at 5-25% edit distance",
        load=_load,
        check_row=_check_row,
        options_type=BlazeditOptions,
        hub=HubDataset(id=f"vdaita/edit_{size}_char", split="train"),
        licence="none shown on the dataset card",
        citation="Daita et al., Blazedit: Blazing-fast code editing via multi-layer speculation, 2025, "
        "huggingface.co/blog/ganler/blazedit",
    )


LOADER_5K = _loader("5k")
LOADER_10K = _loader("10k")
