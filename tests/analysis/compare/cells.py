"""Observations with known values."""

from collections.abc import Sequence

from analysis.compare.observation import Greedy, Observation, Place
from analysis.load import Point


def place(index: int = 0, arm: str = "hybrid") -> Place:
    return Place(point=Point(model="m", workload="w", batch_size=index, temperature=0.0), arm=arm)


def observation(
    where: Place | None = None,
    throughput: Sequence[float] = (100.0, 101.0, 99.0),
    *,
    acceptance: Sequence[float] = (),
    **changes: object,
) -> Observation:
    values = {"output_throughput_tok_s": dict(enumerate(throughput)), "acceptance_length": dict(enumerate(acceptance))}
    made = Observation(
        place=where or place(),
        label="Hybrid",
        cell_id="0123456789ab",
        fidelity="gpu",
        values={name: repeats for name, repeats in values.items() if repeats},
        num_done=max(len(throughput), len(acceptance)),
        settings={"engine.kind": "vllm", "requests": "f" * 64},
        hardware=("1 x H100",),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def greedy(identical: int, compared: int = 36, *, requests: int = 36, exact: bool | None = True) -> Greedy:
    return Greedy(num_compared=compared, num_identical=identical, num_requests=requests, vanilla_is_exact=exact)
