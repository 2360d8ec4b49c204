"""What the GPU check times, the bounds it holds times against, and its tables."""

import dataclasses

import numpy as np
import pytest
import torch

from bench.gpu import step, step_timing, timing, verification
from bench.gpu.bounds import Bounded, check_bounds, scan_bound_us
from bench.gpu.inputs import KINDS, make_context
from bench.gpu.quadratic_scan import QuadraticScan
from bench.gpu.tables import format_steps, format_timings
from tests.bench.stand_in import StandIn

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def judge_small_batches(monkeypatch):
    monkeypatch.setattr(timing, "_JUDGED_TOKENS", 1)


def scan_timings(**times):
    common = {"cache": "cold", "kind": "edit", "num_requests": 4, "context_len": 500, "max_len": 500, "num_repeats": 3}
    times = {"scan+select": 5.0, "copy": 5.0, "quadratic scan": 50.0} | times
    return [
        timing.Timing(implementation=name, median_us=us, p10_us=us, p90_us=us, **common) for name, us in times.items()
    ]


def test_slower_than_the_straightforward_scan_fails():
    bounded, faster = timing.check_times(scan_timings(**{"quadratic scan": 4.9}), 100)
    assert bounded.passed
    assert not faster.passed
    assert not any(check.passed for check in timing.check_times([], 100))


def test_ten_times_the_expected_time_fails_and_a_slower_gpu_passes():
    # an H100 copies 512 contexts of 131,072 tokens in 180 us, and reads as fast as it copies
    size = (512, 131_072, 132)
    assert 2 * 180 < scan_bound_us(180, *size) < 10 * 180
    assert scan_bound_us(1800, *size) > 10 * 180
    bounded, faster = timing.check_times(scan_timings(**{"scan+select": 150.0, "quadratic scan": 1500.0}), 100)
    assert not bounded.passed
    assert "1 of 1 above; 4 x 500 of 500 took 150 us of at most 68" in bounded.detail
    assert faster.passed


def test_the_nearest_bound_is_named():
    times = [Bounded(what=f"part {us}", time_us=us, bound_us=100.0) for us in (20.0, 90.0, 50.0)]
    check = check_bounds("times", times)
    assert check.passed
    assert check.detail == "3 times; nearest: part 90.0 took 90 us of at most 100"


STEP_TIMING = step_timing.StepTiming(
    num_requests=32,
    context_len=8192,
    max_len=32_768,
    vocab_size=151_936,
    logits_dtype="bfloat16",
    num_repeats=3,
    scan_select_us=15.0,
    valid_length_us=4.0,
    point_masses_us=30.0,
    slots_us=80.0,
    total_us=120.0,
    copy_us=4.0,
    fill_us=25.0,
    host_us=300.0,
)


@pytest.mark.parametrize("part", ["scan_select_us", "valid_length_us", "point_masses_us", "slots_us", "total_us"])
def test_a_part_of_the_step_that_takes_ten_times_as_long_fails(part):
    assert step_timing.check_step_times([STEP_TIMING], 132).passed
    slower = dataclasses.replace(STEP_TIMING, **{part: 10 * getattr(STEP_TIMING, part)})
    check = step_timing.check_step_times([slower], 132)
    assert not check.passed
    assert check.detail.startswith(f"1 of 5 above; {part.removesuffix('_us')} of 32 requests, bfloat16,")


@pytest.mark.parametrize("part", ["store_valid_length", "place", "assign"])
def test_a_whole_step_without_one_of_its_parts_fails(monkeypatch, part):
    owner = step_timing.WholeStep if part == "store_valid_length" else verification.Verification
    monkeypatch.setattr(owner, part, lambda self: None)
    checks, _ = step_timing.time_whole_steps(
        np.random.default_rng(0), StandIn(), (3,), (60, 90, 40), (torch.float32,), num_repeats=1
    )
    assert not checks[0].passed


@pytest.mark.parametrize("kind", KINDS)
def test_straightforward_scan_agrees_with_ours(kind):
    rng = np.random.default_rng(1)
    contexts = torch.from_numpy(np.stack([make_context(rng, kind, 100) for _ in range(3)]))
    ours = step.make_step(rng, 3, contexts, "cpu")
    quadratic = QuadraticScan.allocate(ours.token_ids, ours.lengths)
    quadratic()
    ours()
    assert timing.quadratic_differences(ours, quadratic) == []
    quadratic.tokens[1] += 1
    assert timing.quadratic_differences(ours, quadratic) != []


def test_table_shows_medians_and_ratios():
    _, timings = timing.time_step(np.random.default_rng(0), StandIn(), [(1, 150, 200)], num_repeats=1)
    lines = format_timings([dataclasses.asdict(item) for item in timings]).splitlines()
    assert lines[2].split() == [
        *("1", "150", "200", "edit"),
        *("5.0", "4.0", "5.0", "4.0", "5.0", "4.0", "50.0", "30.0"),
        *("1.00", "10.0"),
    ]


def test_table_of_whole_steps_has_every_part():
    lines = format_steps([dataclasses.asdict(STEP_TIMING)]).splitlines()
    assert "contexts of 8,192 tokens in rows of 32,768, vocabulary 151,936" in lines[0]
    assert len(lines[1].split()) == len(lines[2].split())
    assert lines[2].split() == ["32", "bfloat16", "15.0", "4.0", "30.0", "80.0", "120.0", "4.0", "25.0", "300.0"]
