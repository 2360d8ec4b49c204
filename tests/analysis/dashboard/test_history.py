"""Series over time: what is found, and what each point is held against."""

from pathlib import Path

import pytest

from analysis.compare.judge import Policy, Verdict
from analysis.dashboard.history import History, find_sweeps, load_history
from harness.errors import ConfigError
from tests.analysis.dashboard.histories import write_history
from tests.analysis.synthetic import Builder, SegmentSpec, demo


def _verdicts(history: History, arm: str) -> list[Verdict]:
    (series,) = [s for s in history.series if s.place.arm == arm]
    return [point.verdict for point in series.points]


def _history(root: Path, factors: list[float], **options: object) -> History:
    write_history(
        root, num_sweeps=len(factors), batch_sizes=(4,), lost=lambda s, a, b: factors[s] if a == "hybrid" else 1
    )
    return load_history(root, Policy(), **options)  # type: ignore[arg-type]


def test_sweeps_are_found_at_any_depth_and_not_inside_each_other(tmp_path: Path) -> None:
    for name in ("b", "a/deep", "a/deeper/still", ".hidden/x"):
        demo(tmp_path / name, repeats=1)
    (tmp_path / "b" / "report" / "sweep.json").parent.mkdir()
    (tmp_path / "b" / "report" / "sweep.json").write_text("{}")
    assert [p.relative_to(tmp_path).as_posix() for p in find_sweeps(tmp_path)] == ["a/deep", "a/deeper/still", "b"]
    assert find_sweeps(tmp_path / "b") == [tmp_path / "b"]


def test_regression_stays_open_until_it_is_repaired(tmp_path: Path) -> None:
    history = _history(tmp_path, [1.0, 1.0, 0.9, 0.9, 1.0])
    worse, level = Verdict.worse, Verdict.level
    assert _verdicts(history, "hybrid") == [Verdict.new, level, worse, worse, level]
    assert _verdicts(history, "vanilla") == [Verdict.new, *[level] * 4]
    assert [at.num_alarms for at in history.sweeps] == [0, 0, 1, 1, 0]


def test_accepted_regression_is_the_new_level(tmp_path: Path) -> None:
    history = _history(tmp_path, [1.0, 0.9, 0.9, 0.8], accepted=frozenset({"001/smoke"}))
    assert _verdicts(history, "hybrid") == [Verdict.new, Verdict.worse, Verdict.level, Verdict.worse]
    assert history.problems == []


def test_unknown_accepted_sweep_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        _history(tmp_path, [1.0], accepted=frozenset({"000/smoek"}))
    assert str(refusal.value) == (
        f"--accept 000/smoek: no such sweep in {tmp_path}. Did you mean 000/smoke? "
        f"Name its folder relative to {tmp_path}, or leave it out."
    )


def test_slow_slide_is_seen_when_it_adds_up(tmp_path: Path) -> None:
    history = _history(tmp_path, [1.0, 0.993, 0.986, 0.979, 0.972])
    verdicts = _verdicts(history, "hybrid")
    assert verdicts[1] is Verdict.level
    assert verdicts[-1] is Verdict.worse


def test_gain_raises_the_level(tmp_path: Path) -> None:
    history = _history(tmp_path, [1.0, 1.2, 1.0])
    assert _verdicts(history, "hybrid") == [Verdict.new, Verdict.better, Verdict.worse]


def test_cell_that_the_next_sweep_of_that_name_lacks_has_vanished(tmp_path: Path) -> None:
    for day, arms in ((1, ("vanilla", "ngram")), (2, ("vanilla",)), (3, ("vanilla",))):
        builder = Builder(tmp_path / str(day) / "smoke")
        for arm in arms:
            for repeat in range(2):
                started = {"started_utc": f"2026-01-{day:02d}T00:00:00+00:00"}
                builder.repeat(arm, repeat, [SegmentSpec(name="edits")], provenance=started)
        builder.manifest(2)
    history = load_history(tmp_path, Policy())
    assert _verdicts(history, "ngram") == [Verdict.new, Verdict.vanished]
    assert next(s for s in history.series if s.place.arm == "ngram").last.alarm


def test_fidelities_are_series_of_their_own(tmp_path: Path) -> None:
    demo(tmp_path / "a", fidelity="cpu")
    demo(tmp_path / "b", fidelity="gpu")
    history = load_history(tmp_path, Policy())
    assert [(s.fidelity, s.place.arm) for s in history.series] == [
        ("gpu", "ngram"),
        ("gpu", "vanilla"),
        ("cpu", "ngram"),
        ("cpu", "vanilla"),
    ]
    assert {len(s.points) for s in history.series} == {1}


def test_sweep_that_mixes_fidelities_or_holds_nothing_is_named_and_left_out(tmp_path: Path) -> None:
    demo(tmp_path / "good")
    demo(tmp_path / "mixed").repeat("ngram", 9, [SegmentSpec(name="edits")], fidelity="gpu")
    Builder(tmp_path / "empty").manifest(1)
    history = load_history(tmp_path, Policy())
    assert [at.folder for at in history.sweeps] == ["good"]
    assert any("more than one fidelity" in problem for problem in history.problems)
    assert any("empty: no readable record" in problem for problem in history.problems)


@pytest.mark.parametrize("read_outputs", [True, False])
def test_lost_greedy_identity_is_marked_when_outputs_are_read(tmp_path: Path, read_outputs: bool) -> None:
    for day in (1, 2):
        builder = Builder(tmp_path / str(day))
        for repeat in range(2):
            for arm in ("vanilla", "ngram"):
                spec = SegmentSpec(name="edits", acceptance_length=2.0 if arm == "ngram" else None)
                if day == 2 and arm == "ngram":
                    spec.texts = lambda index: f"different {index}"
                started = {"started_utc": f"2026-01-{day:02d}T00:00:00+00:00"}
                builder.repeat(arm, repeat, [spec], provenance=started)
        builder.manifest(2)
    history = load_history(tmp_path, Policy(), read_outputs=read_outputs)
    assert (_verdicts(history, "ngram")[-1] is Verdict.worse) is read_outputs
