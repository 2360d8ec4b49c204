import dataclasses

import pytest

from harness.config.schema import ClientConfig, EngineConfig
from harness.estimate import Estimator, format_duration, rough_run_s
from harness.plan import Run, SegmentPlan
from tests.harness.cells import cell, request

ENGINE = EngineConfig(estimated_startup_s=30.0, estimated_tok_s_per_request=2.0)
CLIENT = ClientConfig(warmup_output_tokens=10)
# 30 s to start, 5 s of warm-up, 20 tokens at 4 tok/s and 15 at 4 tok/s
ROUGH_S = 30 + 5 + 5 + 3.75


def test_rough_estimate_is_start_warm_up_and_tokens_at_the_concurrency() -> None:
    assert rough_run_s(cell(engine=ENGINE, client=CLIENT)) == ROUGH_S
    # no more requests run at once than there are
    assert rough_run_s(cell(engine=ENGINE, client=CLIENT, batch_size=100)) == 30 + 5 + 2.5 + 2.5


def test_own_outputs_shorten_the_estimate_and_the_limit_still_holds() -> None:
    short, long = request(0, max_output_tokens=100), request(1, max_output_tokens=100)
    requests = [dataclasses.replace(short, own_output_tokens=20), dataclasses.replace(long, own_output_tokens=400)]
    segments = [SegmentPlan(name="s", part="s", bucket=None, requests=requests)]
    # 20 + 100 tokens at 4 tok/s
    assert rough_run_s(cell(engine=ENGINE, client=CLIENT, segments=segments)) == 30 + 5 + 30


def test_cell_that_has_run_takes_its_own_mean() -> None:
    estimator = Estimator()
    known = cell(engine=ENGINE, client=CLIENT)
    for duration_s in (10.0, 20.0):
        estimator.add(Run(cell=known, repeat=0), duration_s)
    assert estimator.run_s(known) == 15.0


def test_other_cells_scale_by_measured_over_rough() -> None:
    estimator = Estimator()
    other = cell(engine=ENGINE, client=CLIENT, cell_id="other")
    assert estimator.run_s(other) == ROUGH_S
    estimator.add(Run(cell=cell(engine=ENGINE, client=CLIENT), repeat=0), ROUGH_S / 2)
    assert estimator.run_s(other) == pytest.approx(ROUGH_S / 2)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3570, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_durations_are_short_texts(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
