"""`compare` from folders to exit code and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main
from harness.schema import Failure
from tests.analysis.synthetic import Builder, SegmentSpec, demo

REPEATS = 3


def _sweep(
    root: Path,
    factor: float = 1.0,
    *,
    vllm: str = "0.32.0",
    texts: Any = None,
    repeats: int = REPEATS,
    tokens: int = 100,
    **changes: Any,
) -> Builder:
    builder = Builder(root, fidelity=changes.pop("fidelity", "gpu"))
    provenance = {"packages": {"vllm": vllm}, "gpu_names": ["H100"], **changes.pop("provenance", {})}
    for repeat in range(repeats):
        for arm, throughput, length in (("vanilla", 100.0, None), ("ngram", 150.0 * factor, 2.5)):
            spec = SegmentSpec(
                name="edits",
                throughput_tok_s=throughput * (1 + 0.004 * repeat),
                acceptance_length=length,
                tokens_per_request=tokens,
            )
            if texts and arm == "ngram":
                spec.texts = texts
            builder.repeat(arm, repeat, [spec], provenance=provenance, **changes)
    builder.manifest(repeats)
    return builder


def _compare(tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "out"
    code = main(["compare", str(tmp_path / "base"), str(tmp_path / "head"), "--out", str(out), *options])
    return code, json.loads((out / "compare.json").read_text(encoding="utf-8"))


def test_identical_sweeps_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _sweep(tmp_path / "base")
    _sweep(tmp_path / "head")
    code, result = _compare(tmp_path)
    assert (code, result["exit_code"], result["counts"], result["num_alarms"]) == (0, 0, {"level": 2}, 0)
    printed = capsys.readouterr().out
    assert "passed (2 level)" in printed
    assert "[fidelity: gpu]" in printed


def test_upgrade_that_loses_throughput_exits_1_and_says_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _sweep(tmp_path / "base")
    _sweep(tmp_path / "head", 0.9, vllm="0.33.0")
    code, result = _compare(tmp_path)
    assert code == 1
    assert [(c["arm"], c["verdict"]) for c in result["cells"]] == [("vanilla", "level"), ("ngram", "worse")]
    change = result["cells"][1]["metrics"]["output_throughput_tok_s"]
    assert change["ratio"] == pytest.approx(0.9)
    assert change["low"] < 0.9 < change["high"] < 1
    assert change["p_adjusted"] < 0.05
    assert "vLLM: vllm 0.32.0 \u2192 vllm 0.33.0" in result["changed"]
    assert "Holm" in result["method"]
    printed = capsys.readouterr().out
    assert "ALARM  smollm2-135m sample bs4 T0 ngram: output throughput worse: -10.0%" in printed
    assert "1 alarm (1 worse, 1 level)" in printed
    summary = (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("## Benchmark comparison: 1 alarm")
    assert "| ▼ worse |" in summary


def test_files_of_github_action_benchmark_hold_heads_values(tmp_path: Path) -> None:
    _sweep(tmp_path / "base")
    builder = _sweep(tmp_path / "head")
    record = next(builder.root.glob("*ngram/r0/record.json"))
    raw = json.loads(record.read_text())
    raw["segments"][0]["median_ttft_ms"] = 12.5
    record.write_text(json.dumps(raw))
    _compare(tmp_path)
    bigger, smaller = (
        json.loads((tmp_path / "out" / f"{name}_is_better.json").read_text()) for name in ("bigger", "smaller")
    )
    assert [entry["name"].split(": ")[1] for entry in bigger] == [
        "Output throughput",
        "Output throughput",
        "Acceptance length",
    ]
    assert bigger[1] == {
        "name": "smollm2-135m sample bs4 T0 ngram [gpu]: Output throughput",
        "unit": "tok/s",
        "value": pytest.approx(150.6),
        "range": "\u00b1 0.6",
        "extra": "3 repeats; vllm 0.32.0; level",
    }
    assert [(entry["unit"], entry["value"]) for entry in smaller] == [("ms", 12.5)]
    for entry in bigger + smaller:
        assert {type(entry["name"]), type(entry["unit"]), type(entry["extra"])} == {str}
        assert isinstance(entry["value"], int | float)


def test_lost_greedy_identity_is_an_alarm(tmp_path: Path) -> None:
    _sweep(tmp_path / "base")
    _sweep(tmp_path / "head", texts=lambda index: f"other {index}" if index == 0 else f"output {index}")
    code, result = _compare(tmp_path)
    assert code == 1
    assert result["cells"][1]["reasons"] == [
        "greedy identity lost: 9 of 12 outputs as vanilla's in HEAD, 12 of 12 in BASE"
    ]
    assert _compare(tmp_path, "--no-outputs")[0] == 0


def test_vanished_and_failed_cells_exit_1(tmp_path: Path) -> None:
    _sweep(tmp_path / "base")
    builder = Builder(tmp_path / "head", fidelity="gpu")
    spec = SegmentSpec(name="edits")
    failure = Failure(stage="ready", kind="EngineError", message="the server died")
    for repeat in range(REPEATS):
        builder.repeat("vanilla", repeat, [spec], failure=failure, provenance={"gpu_names": ["H100"]})
    builder.manifest(REPEATS)
    code, result = _compare(tmp_path)
    assert code == 1
    assert {c["arm"]: c["verdict"] for c in result["cells"]} == {"vanilla": "failed", "ngram": "vanished"}


def test_nothing_comparable_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _sweep(tmp_path / "base")
    _sweep(tmp_path / "head", fidelity="cpu")
    code, result = _compare(tmp_path)
    assert (code, result["counts"]) == (2, {"not comparable": 2})
    assert "nothing could be compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("base", "head", "counts", "reason"),
    [
        ({"repeats": 1}, {"repeats": 1}, {"not comparable": 2}, "one repeat on each side: no estimate of noise"),
        ({"tokens": 0}, {}, {"not comparable": 2}, "BASE has no output_throughput_tok_s"),
        ({"tokens": 0}, {"tokens": 0}, {"not comparable": 2}, "BASE has no output_throughput_tok_s"),
        ({}, {"batch_size": 8}, {"vanished": 2, "new": 2}, None),
        ({}, {"tokens": 0}, {"failed": 2}, None),
    ],
    ids=["one repeat", "no tokens in BASE", "no tokens", "other cells", "no tokens in HEAD"],
)
def test_gate_opens_only_when_a_cell_was_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    base: dict[str, Any],
    head: dict[str, Any],
    counts: dict[str, int],
    reason: str | None,
) -> None:
    _sweep(tmp_path / "base", **base)
    _sweep(tmp_path / "head", **head)
    code, result = _compare(tmp_path)
    assert (code, result["exit_code"], result["counts"]) == (2 if reason else 1, code, counts)
    line = next(line for line in capsys.readouterr().out.splitlines() if "(" in line and line == result["verdict"])
    assert "passed" not in line
    if reason:
        assert line.startswith(f"nothing could be compared (2 not comparable): {reason}")
    assert _compare(tmp_path, "--strict")[0] == 1


def test_one_judged_cell_is_enough_and_new_cells_alone_are_not(tmp_path: Path) -> None:
    _sweep(tmp_path / "base", repeats=1)
    builder = _sweep(tmp_path / "head", repeats=1)
    place = {"batch_size": 8, "provenance": {"gpu_names": ["H100"]}}
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")], **place)
    builder.manifest(1)
    assert _compare(tmp_path)[0] == 2
    for repeat in range(2):
        for side in ("base", "head"):
            Builder(tmp_path / side, fidelity="gpu").repeat("vanilla", repeat, [SegmentSpec(name="edits")], **place)
    code, result = _compare(tmp_path)
    assert (code, result["counts"]) == (0, {"level": 1, "not comparable": 2})


def test_corrupt_record_of_head_is_an_alarm_and_of_base_a_warning(tmp_path: Path) -> None:
    base, head = _sweep(tmp_path / "base"), _sweep(tmp_path / "head")
    base.corrupt("0123456789ab", 0)
    code, result = _compare(tmp_path)
    assert (code, len(result["warnings"]), result["problems"]) == (0, 1, [])
    head.corrupt("0123456789ab", 0)
    code, result = _compare(tmp_path)
    assert (code, result["num_alarms"]) == (1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gate", "throughput"], "--gate: no metric 'throughput'. Known: output_throughput_tok_s, "),
        (["--threshold", "5%"], "--threshold must be a fraction"),
        (["--threshold", "ttft=0.1"], "--threshold: no metric 'ttft'"),
        (["--alpha", "5"], "--alpha must be between 0 and 1, got 5"),
        (["--ignore", "engine.knd"], "--ignore: neither sweep has a setting 'engine.knd'. Did you mean engine.kind?"),
    ],
)
def test_bad_option_exits_2_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    demo(tmp_path / "base")
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "base"), *options]) == 2
    assert message in capsys.readouterr().err


def test_folder_without_a_record_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path / "base")
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    Builder(tmp_path / "planned").manifest(1)
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "planned")]) == 2
    assert "HEAD " in (error := capsys.readouterr().err)
    assert "holds no readable record" in error


def test_mixed_fidelities_in_one_folder_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = demo(tmp_path / "base")
    builder.repeat("ngram", 9, [SegmentSpec(name="edits")], fidelity="gpu")
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "base")]) == 2
    assert "more than one fidelity" in capsys.readouterr().err


def test_hostile_names_are_escaped_in_the_summary(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>|`"
    for side in ("base", "head"):
        _sweep(tmp_path / side, cell_id=None, model=evil.replace("/", ""))
    folder = next((tmp_path / "base").iterdir())
    assert folder.exists()
    _compare(tmp_path)
    assert "<img" not in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
