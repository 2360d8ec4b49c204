"""Verdicts and their reasons."""

import pytest

from analysis.compare.judge import Comparison, Policy, Verdict, judge
from tests.analysis.compare.cells import greedy, observation, place


def _judge(base: object, head: object, policy: Policy | None = None) -> Comparison:
    (cell,), _ = judge([(place(), base, head)], policy or Policy())  # type: ignore[list-item]
    return cell


def test_large_loss_is_worse_and_names_metric_and_size() -> None:
    cell = _judge(observation(), observation(throughput=(90.0, 90.5, 89.5)))
    assert (cell.verdict, cell.alarm) == (Verdict.worse, True)
    assert cell.reasons == ["output throughput worse: -10.0%"]


def test_gain_is_better_and_no_alarm() -> None:
    cell = _judge(observation(), observation(throughput=(120.0, 121.0, 119.0)))
    assert (cell.verdict, cell.alarm) == (Verdict.better, False)


def test_significant_loss_below_the_practical_threshold_is_level() -> None:
    base, head = observation(throughput=(100.0, 100.01, 99.99)), observation(throughput=(99.2, 99.21, 99.19))
    assert _judge(base, head).verdict is Verdict.level
    assert _judge(base, head, Policy(threshold=0.005)).verdict is Verdict.worse
    assert _judge(base, head, Policy(thresholds={"output_throughput_tok_s": 0.005})).verdict is Verdict.worse


def test_loss_within_the_noise_is_level() -> None:
    noisy = observation(throughput=(100.0, 80.0, 120.0))
    assert _judge(noisy, observation(throughput=(95.0, 75.0, 114.0))).verdict is Verdict.level


def test_lost_acceptance_is_an_alarm_although_throughput_is_level() -> None:
    base, head = observation(acceptance=(3.0, 3.01, 2.99)), observation(acceptance=(2.5, 2.51, 2.49))
    cell = _judge(base, head)
    assert (cell.verdict, cell.reasons) == (Verdict.worse, ["acceptance length worse: -16.7%"])
    throughput_only = _judge(base, head, Policy(gates=("output_throughput_tok_s",)))
    assert throughput_only.verdict is Verdict.level
    assert throughput_only.changes["acceptance_length"].verdict is Verdict.worse


def test_latency_is_better_when_smaller() -> None:
    base, head = observation(), observation()
    base.values["median_ttft_ms"] = {0: 100.0, 1: 101.0, 2: 99.0}
    head.values["median_ttft_ms"] = {0: 150.0, 1: 151.0, 2: 149.0}
    assert _judge(base, head).verdict is Verdict.level
    cell = _judge(base, head, Policy(gates=("median_ttft_ms",)))
    assert (cell.verdict, cell.reasons) == (Verdict.worse, ["Median TTFT worse: +50.0%"])


def test_one_repeat_each_is_not_comparable_and_says_what_to_do() -> None:
    cell = _judge(observation(throughput=(100.0,)), observation(throughput=(50.0,)))
    assert (cell.verdict, cell.alarm) == (Verdict.not_comparable, False)
    assert "repeats=2" in cell.reasons[0]
    assert cell.changes["output_throughput_tok_s"].change.ratio == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fidelity": "cpu"}, "different fidelity: gpu in BASE, cpu in HEAD"),
        ({"hardware": ("1 x A100",)}, "different hardware: 1 x H100 in BASE, 1 x A100 in HEAD"),
        (
            {"settings": {"engine.kind": "vllm", "requests": "0" * 64}},
            "different configuration: requests is",
        ),
        (
            {"settings": {"engine.kind": "vllm", "requests": "f" * 64, "arm.new": True}},
            "different configuration: arm.new is not recorded in BASE, True in HEAD. If that is the purpose: "
            "--ignore arm.new",
        ),
    ],
    ids=["fidelity", "hardware", "requests", "new key"],
)
def test_what_measures_something_else_is_not_comparable(changes: dict[str, object], reason: str) -> None:
    head = observation(throughput=(50.0, 51.0, 49.0), **changes)
    cell = _judge(observation(), head)
    assert (cell.verdict, cell.alarm, cell.changes) == (Verdict.not_comparable, False, {})
    assert cell.reasons[0].startswith(reason)
    assert _judge(observation(), head, Policy(strict=True)).alarm


@pytest.mark.parametrize("unset", [None, [], {}, ""])
def test_setting_that_is_younger_than_base_and_unset_is_the_same(unset: object) -> None:
    head = observation(settings={"engine.kind": "vllm", "requests": "f" * 64, "model.extra_args": unset})
    assert _judge(observation(), head).verdict is Verdict.level
    head.settings["model.extra_args"] = ["--enforce-eager"]
    assert _judge(observation(), head).verdict is Verdict.not_comparable


def test_difference_that_is_the_purpose_is_ignored_by_name() -> None:
    head = observation(settings={"engine.kind": "other", "requests": "f" * 64}, hardware=("1 x A100",))
    assert _judge(observation(), head).verdict is Verdict.not_comparable
    policy = Policy(ignored_keys=frozenset({"engine.kind", "hardware"}))
    assert _judge(observation(), head, policy).verdict is Verdict.level


def test_vanished_cell_is_an_alarm() -> None:
    cell = _judge(observation(), None)
    assert (cell.verdict, cell.alarm) == (Verdict.vanished, True)
    planned = _judge(observation(), observation(throughput=(), num_missing=3))
    assert (planned.verdict, planned.reasons) == (Verdict.vanished, ["planned in HEAD, not run"])


def test_failed_cell_is_an_alarm_unless_it_failed_before() -> None:
    dead = observation(throughput=(), num_failed=3, failure="ready: EngineError: out of memory\nmore")
    cell = _judge(observation(), dead)
    assert (cell.verdict, cell.alarm) == (Verdict.failed, True)
    assert cell.reasons == ["every repeat failed in HEAD: ready: EngineError: out of memory"]
    assert _judge(None, dead).alarm
    both = _judge(dead, dead)
    assert (both.verdict, both.alarm) == (Verdict.not_comparable, False)


def test_one_failed_repeat_is_an_alarm_where_none_failed_before() -> None:
    head = observation(num_failed=1, failure="measure: ClientError: stalled")
    cell = _judge(observation(), head)
    assert (cell.verdict, cell.alarm) == (Verdict.failed, True)
    assert cell.reasons == ["1 of 4 repeats failed in HEAD, 0 in BASE: measure: ClientError: stalled"]
    assert not _judge(head, head).alarm


def test_new_cell_is_no_alarm() -> None:
    cell = _judge(None, observation())
    assert (cell.verdict, cell.alarm) == (Verdict.new, False)


def test_metric_that_can_no_longer_be_measured_is_an_alarm() -> None:
    cell = _judge(observation(acceptance=(3.0, 3.0, 3.0)), observation())
    assert (cell.verdict, cell.alarm) == (Verdict.failed, True)
    assert cell.reasons == ["acceptance_length was measured in BASE and could not be in HEAD"]


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (greedy(36), greedy(36), False),
        (greedy(36), greedy(35), True),
        (greedy(36), greedy(35, exact=None), False),
        (greedy(36), greedy(35, exact=False), False),
        (greedy(36, exact=False), greedy(10, exact=False), True),
        (greedy(30, exact=False), greedy(28, exact=False), False),
        (greedy(30, exact=False), greedy(36, exact=False), False),
    ],
    ids=["same", "one lost", "floor unknown", "floor lost too", "most lost", "within chance", "more alike"],
)
def test_greedy_identity_is_exact_where_vanilla_is_and_statistical_elsewhere(
    before: object, after: object, lost: bool
) -> None:
    cell = _judge(observation(greedy=before), observation(greedy=after))
    assert (cell.verdict is Verdict.worse) is lost
    assert cell.alarm is lost
    assert any("greedy identity lost" in reason for reason in cell.reasons) is lost


def test_watched_metrics_do_not_make_the_gate_stricter() -> None:
    base, head = observation(acceptance=(3.0, 3.0)), observation(acceptance=(3.0, 3.0))
    for side in (base, head):
        side.values["median_ttft_ms"] = {0: 1.0, 1: 1.1}
    _, num_tests = judge([(place(), base, head)], Policy())
    assert num_tests == 2
