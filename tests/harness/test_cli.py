"""The command line as users meet it: real processes, their exit codes, one clear message, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.config.schema import EngineKind
from harness.engines.gpus import visible_gpus
from harness.engines.packages import package_problems

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "harness"]
HEAVY = "torch", "ray", "vllm", "transformers", "matplotlib", "pandas"
DEMO = ("plan", "+exp=demo", "arms=[vanilla,ngram]")


def harness(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"} | environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def refused(*arguments: str, **environ: str) -> str:
    """What a command says that exits with 2."""
    done = harness(*arguments, **environ)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


@pytest.fixture
def cached_model(tmp_path: Path) -> str:
    """Override that names a model folder which passes for complete."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return f"model.path={tmp_path}"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["report", "no/such/folder"], ["no/such/folder: no such folder.", "python -m harness sweep|Sweeps here"]),
        (["sweep", "+exp=nosuchexp"], ["exp=nosuchexp: no such file in conf/exp. Known: ablation, "]),
        ([*DEMO, "+arm.typo=1"], ["arm.typo: unknown key 'typo' in arm. Known: "]),
        ([*DEMO, "batch_sizes=[0]"], ["batch_sizes must hold positive integers, got 0."]),
        (["status", "no/such/folder"], ["no/such/folder holds no sweep"]),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_bad_input_is_one_clear_message(arguments: list[str], parts: list[str]) -> None:
    error = refused(*arguments)
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    for part in parts:
        assert any(choice in error for choice in part.split("|")), error


@pytest.mark.parametrize(("arguments", "message"), [(["frobnicate"], "'frobnicate'"), ([], "command")])
def test_unknown_and_missing_commands_get_the_usage(arguments: list[str], message: str) -> None:
    error = refused(*arguments)
    assert error.startswith("usage: python -m harness")
    assert message in error


@pytest.mark.parametrize("command", ["status", "report"])
def test_folder_that_is_no_sweep_is_refused_and_left_alone(tmp_path: Path, command: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert f"{tmp_path}" in refused(command, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("kind", ["file", "unwritable"])
def test_results_that_cannot_be_written_are_refused(tmp_path: Path, cached_model: str, kind: str) -> None:
    target = tmp_path / kind
    if kind == "file":
        target.write_text("")
    elif os.geteuid() == 0:
        target = Path("/proc/results")  # where even root cannot make a folder
    else:
        target.mkdir(mode=0o555)
    error = refused("sweep", "+exp=demo", cached_model, f"results_dir={target}")
    assert f"error: results_dir: {target / 'demo'} cannot be written" in error
    assert "Choose another results_dir" in error


LONG = "x" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", LONG],
        ["report", LONG],
        ["compare", LONG, LONG],
        ["dashboard", LONG, "site"],
        ["fit", LONG],
        ["buckets", LONG],
        ["plan", "+exp=demo", "arms=[ngram_av]", f"model.coefficients={LONG}"],
        [*DEMO, "workloads=[canitedit]", f"workload.path={LONG}.jsonl"],
        [*DEMO, f"model.path={LONG}"],
        ["sweep", "+exp=demo", "arms=[vanilla]", f"results_dir={LONG}"],
        ["sweep", "+exp=demo", "arms=[vanilla]", f"name={LONG}"],
    ],
    ids=lambda arguments: " ".join(word.replace(LONG, "LONG") for word in arguments),
)
def test_name_that_no_file_system_takes_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(("error: ", "usage: "))


def test_plan_is_one_json_object_a_cell(cached_model: str) -> None:
    done = harness(*DEMO, "--json", cached_model)
    assert done.returncode == 0, done.stderr
    cells = [json.loads(line) for line in done.stdout.splitlines()]
    assert [cell["arm"]["name"] for cell in cells] == ["vanilla", "ngram"]
    assert len({cell["cell_id"] for cell in cells}) == 2
    assert all(sum(s["num_prompts"] for s in cell["segments"]) == cell["num_prompts"] > 0 for cell in cells)


def test_reader_that_leaves_early_is_no_error(cached_model: str) -> None:
    with subprocess.Popen(
        [*COMMAND, *DEMO, cached_model],
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": ""},  # the first write to the pipe is then at the very end
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # as `| head -1` does, but before the first line in any case
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.jsonl", b'{"prompt": "caf\xe9"}\n', "row 1: expected UTF-8, got byte 0xe9"),
        (None, b"", "workload.path must name an existing file"),
    ],
    ids=["not-utf-8", "missing"],
)
def test_unusable_workload_file_is_named(tmp_path: Path, name: str | None, content: bytes, message: str) -> None:
    path = tmp_path / (name or "missing.jsonl")
    if name:
        path.write_bytes(content)
    error = refused("plan", "workload=jsonl", f"workload.path={path}")
    assert message in error
    assert str(path) in error


def test_missing_data_set_is_named_with_the_ways_to_get_it(tmp_path: Path) -> None:
    error = refused("plan", "+exp=nextcoder", HF_HOME=str(tmp_path))
    (line,) = [line for line in error.splitlines() if "microsoft/NextCoderDataset" in line]
    assert "not available here" in line
    assert "workload.path=<file.jsonl|file.parquet>" in line


@pytest.mark.skipif(bool(visible_gpus()), reason="this machine has GPUs")
def test_plan_for_gpus_names_how_many_are_missing_and_the_engine_that_works(tmp_path: Path, cached_model: str) -> None:
    program = "x" * 1001
    rows = [
        {"prompt": f"Edit it.\n```python\n# {i}\n{program}\n```", "completion": f"```python\n# {i}\n{program}\n```"}
        for i in range(10)
    ]
    file = tmp_path / "nextcoder.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = ("models=[qwen3-4b]", "arms=[vanilla,ngram]", "baseline=vanilla")  # no DSpark checkpoint from the hub
    done = harness("plan", "+exp=nextcoder", *plain, f"workload.path={file}", cached_model)
    assert done.returncode == 2
    assert "nextcoder 0-5%: " in done.stdout
    assert done.stderr.startswith(
        "error: engine=vllm needs 2 GPUs (cell qwen3-4b nextcoder bs128 T0 vanilla) and sees 0"
    )
    assert "engine=vllm_cpu" in done.stderr
    if not package_problems(EngineKind.vllm_cpu):
        assert "which works on this machine" in done.stderr
        planned = harness("plan", "+exp=nextcoder", *plain, "engine=vllm_cpu", f"workload.path={file}", cached_model)
        assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "+exp=demo"], ["status", "+exp=demo"], ["sweep", "--help"]])
def test_commands_that_run_nothing_import_no_heavy_package(cached_model: str, arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from harness.__main__ import main\n"
        "try: code = main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        f"print('exit', code, 'loaded', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    extra = [cached_model] if "+exp=demo" in arguments else []
    done = subprocess.run([sys.executable, "-c", code, *arguments, *extra], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.endswith("exit 0 loaded []\n"), done.stdout + done.stderr
