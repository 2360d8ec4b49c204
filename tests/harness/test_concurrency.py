"""How many cells run side by side, and how long that takes."""

import pytest

from harness import concurrency
from harness.concurrency import Slots, at_once, estimate_texts, local_slots, wall_s
from harness.config.schema import EngineConfig, EngineKind
from harness.engines.gpus import Gpu
from harness.plan import Cell, Run
from tests.harness.cells import cell, grid

EIGHT = EngineConfig(kind=EngineKind.vllm, num_cpus=8)


def _runs(*num_gpus: int) -> list[Run]:
    return [Run(cell=cell(engine=EIGHT, num_gpus=number), repeat=0) for number in num_gpus]


@pytest.mark.parametrize(
    ("slots", "num_gpus", "number", "limit"),
    [
        (Slots(num_cpus=32, num_gpus=8), 1, 4, "CPUs (engine.num_cpus=8)"),
        (Slots(num_cpus=64, num_gpus=8), 1, 8, "GPUs"),
        (Slots(num_cpus=64, num_gpus=8), 2, 4, "GPUs"),
        (Slots(num_cpus=64, num_gpus=8, max_cells=3), 2, 3, "cluster.max_parallel_cells=3"),
        (Slots(num_cpus=20, num_gpus=0), 0, 2, "CPUs (engine.num_cpus=8)"),
    ],
)
def test_cells_at_once_and_what_limits_them(slots: Slots, num_gpus: int, number: int, limit: str) -> None:
    assert at_once(slots, cell(engine=EIGHT, num_gpus=num_gpus)) == (number, limit)


def _ten(_: Cell) -> float:
    return 10.0


def test_runs_start_in_order_as_soon_as_there_is_room() -> None:
    slots = Slots(num_cpus=64, num_gpus=2)
    assert wall_s(slots, _runs(1, 1, 1, 1), _ten) == 20
    # the pair waits for both GPUs, and the last one, which had room before, waits for its turn
    assert wall_s(slots, _runs(1, 2, 1), _ten) == 30
    assert wall_s(Slots(num_cpus=8, num_gpus=2), _runs(1, 1, 1, 1), _ten) == 40
    assert wall_s(Slots(num_cpus=64, num_gpus=8, max_cells=1), _runs(1, 1), _ten) == 20
    assert wall_s(slots, [], _ten) == 0


def test_idle_gpus_and_the_wall_time_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [Gpu(index=i, uuid=f"GPU-{i}", name="NVIDIA H100 80GB HBM3") for i in range(8)]
    monkeypatch.setattr(concurrency, "visible_gpus", lambda: cards)
    sweep = grid("engine=vllm", "cluster.num_cpus=32").sweep
    assert estimate_texts(sweep, _runs(1, 1, 1, 1, 2, 2), _ten) == [
        "about 60 s one run after another",
        "4 cells of 1 GPU at once, limited by CPUs (engine.num_cpus=8)",
        "4 cells of 2 GPUs at once, limited by GPUs",
        "about 20 s on this machine",
    ]


def test_nothing_is_said_of_a_cluster_or_of_cells_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "visible_gpus", list)
    assert local_slots(grid("engine=vllm", "cluster=h100").sweep) is None
    assert estimate_texts(grid("engine=vllm").sweep, _runs(1), _ten) == ["about 10 s one run after another"]
