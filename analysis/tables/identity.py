"""Greedy outputs against vanilla's: the share, and every request that differs."""

from analysis.identity import Identity
from analysis.tables.columns import GRID, grid_fields
from analysis.tables.table import Column, Hole, Table

__all__ = ["differences_table", "identity_table"]


def identity_table(identities: list[Identity], fidelity: str | None) -> Table:
    """One row a greedy cell."""
    table = Table(
        name="identity",
        title="Greedy outputs identical to vanilla's",
        fidelity=fidelity,
        columns=[
            *(column for column in GRID if column.key != "temperature"),
            Column(key="reference", title="Compared with"),
            Column(key="num_compared", title="Compared"),
            Column(key="num_identical", title="Identical"),
            Column(key="share", title="Share", digits=4),
            Column(key="num_unmatched", title="Unmatched"),
            Column(key="first_difference", title="Earliest difference, characters"),
        ],
        notes=[
            "Temperature 0 only. Identical: same text and same number of output tokens. Unmatched: requests that one "
            "of the two did not complete. Batches of another shape sum floats in another order, so vanilla against its "
            "own repeats is the floor a share is read against.",
        ],
    )
    for result in identities:
        share = result.share
        table.rows.append(
            grid_fields(result.point, result.arm_label)
            | {
                "reference": result.reference,
                "num_compared": result.num_compared,
                "num_identical": result.num_identical if result.num_compared else None,
                # a share that would round up to 1 while something differs stays below it
                "share": Hole(reason=result.reason or "nothing compared") if share is None else _below_one(share),
                "num_unmatched": result.num_unmatched,
                "first_difference": min((d.position for d in result.differences), default=None),
            }
        )
    return table


def differences_table(identities: list[Identity], fidelity: str | None) -> Table:
    """One row a differing request, with both texts around the first difference."""
    table = Table(
        name="differences",
        title="Greedy outputs that differ from vanilla's",
        fidelity=fidelity,
        columns=[
            *(column for column in GRID if column.key != "temperature"),
            Column(key="repeat", title="Repeat"),
            Column(key="segment", title="Part or bucket"),
            Column(key="id", title="Request"),
            Column(key="position", title="At character"),
            Column(key="tokens", title="Tokens, arm / vanilla"),
            Column(key="ours", title="Arm"),
            Column(key="theirs", title="Vanilla"),
        ],
        notes=["Excerpts around the first differing character; control characters written as escapes."],
    )
    for result in identities:
        for difference in result.differences:
            ours, theirs = difference.num_output_tokens
            table.rows.append(
                grid_fields(result.point, result.arm_label)
                | {
                    "repeat": str(difference.repeat),
                    "segment": difference.segment,
                    "id": difference.id,
                    "position": difference.position,
                    "tokens": f"{'?' if ours is None else ours} / {'?' if theirs is None else theirs}",
                    "ours": difference.ours,
                    "theirs": difference.theirs,
                }
            )
    return table


def _below_one(share: float) -> float:
    return min(share, 0.9999) if share < 1 else share
