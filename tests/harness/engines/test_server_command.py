import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config.compose import known_options
from harness.engines import ServerCommand, get_engine
from harness.plan import Cell, plain
from hybrid_spark.estimator import Coefficients
from tests.harness.cells import plan

ENGINES = ("vllm", "vllm_cpu")


def build(cell: Cell, work_dir: Path, *, model_path: str | None = None) -> ServerCommand:
    work_dir.mkdir(parents=True, exist_ok=True)
    path = model_path or cell.model.checkpoint
    return get_engine(cell.engine).server_command(cell, model_path=path, port=8123, work_dir=work_dir)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ServerCommand]:
    """Build the command of the first cell that overrides ask for."""

    def build_first(*overrides: str, model_path: str | None = None) -> ServerCommand:
        return build(plan(*overrides).cells[0], tmp_path, model_path=model_path)

    return build_first


def option(command: ServerCommand, name: str) -> str | None:
    return command.argv[command.argv.index(name) + 1] if name in command.argv else None


def test_server_is_our_launcher_with_prefix_caching_off(make: Callable[..., ServerCommand]) -> None:
    command = make("engine=vllm", "batch_sizes=[32]", "seed=5")
    assert command.argv[:3] == [sys.executable, "-m", "hybrid_spark.server"]
    assert "--no-enable-prefix-caching" in command.argv
    assert option(command, "--served-model-name") == "smollm2-135m"
    assert option(command, "--host") == "127.0.0.1"
    assert option(command, "--port") == "8123"
    assert option(command, "--max-num-seqs") == "32"
    assert option(command, "--seed") == "5"
    assert option(command, "--generation-config") == "vllm"
    assert command.env["VLLM_PLUGINS"] == "hybrid_spark"
    assert command.env["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert command.checks.engine_config["enable_prefix_caching"] == "False"
    assert command.checks.max_num_seqs == 32


@pytest.mark.parametrize(
    ("arm", "batch_size", "capture"),
    [("vanilla", 128, None), ("ngram", 4, None), ("ngram", 32, None), ("ngram", 33, "528"), ("ngram", 128, "2048")],
)
def test_captured_steps_hold_a_full_verification_step(
    make: Callable[..., ServerCommand], arm: str, batch_size: int, capture: str | None
) -> None:
    command = make("engine=vllm", f"arm={arm}", f"batch_sizes=[{batch_size}]")
    assert option(command, "--max-cudagraph-capture-size") == capture


def test_capture_size_is_a_size_that_vllm_captures(make: Callable[..., ServerCommand]) -> None:
    # 75 x 7 = 525 lies between two captured sizes: a limit of 525 would leave full steps to eager execution
    command = make("engine=vllm", "arm=ngram", "arm.num_speculative_tokens=6", "batch_sizes=[75]")
    assert option(command, "--max-cudagraph-capture-size") == "528"


def test_capture_size_of_the_configuration_wins(make: Callable[..., ServerCommand]) -> None:
    command = make("engine=vllm", "arm=ngram", "engine.max_cudagraph_capture_size=64")
    assert option(command, "--max-cudagraph-capture-size") == "64"
    eager = make("engine=vllm", "arm=ngram", "engine.max_cudagraph_capture_size=64", "engine.enforce_eager=true")
    assert option(eager, "--max-cudagraph-capture-size") is None


def test_tensor_parallel_size_follows_the_batch_size(make: Callable[..., ServerCommand]) -> None:
    assert option(make("engine=vllm", "batch_sizes=[4]"), "--tensor-parallel-size") == "1"
    command = make("engine=vllm", "batch_sizes=[128]", "arm=ngram")
    assert option(command, "--tensor-parallel-size") == "2"
    assert option(command, "--distributed-executor-backend") == "mp"
    assert command.checks.num_workers == 2
    assert command.uses_gpus


@pytest.mark.parametrize(("on", "flag"), [("true", "--async-scheduling"), ("false", "--no-async-scheduling")])
def test_async_scheduling_is_explicit(make: Callable[..., ServerCommand], on: str, flag: str) -> None:
    command = make("engine=vllm", f"engine.async_scheduling={on}")
    assert [a for a in command.argv if "async" in a] == [flag]


@pytest.mark.parametrize("engine", ENGINES)
def test_ngram_arm_writes_the_plugins_file(make: Callable[..., ServerCommand], tmp_path: Path, engine: str) -> None:
    command = make(f"engine={engine}", "arm=ngram", "arm.max_match=12", "arm.num_speculative_tokens=9")
    assert json.loads(option(command, "--speculative-config") or "") == {
        "method": "ngram_gpu",
        "num_speculative_tokens": 9,
        "prompt_lookup_min": 5,
        "prompt_lookup_max": 12,
    }
    path = Path(command.env["HYBRID_SPARK_CONFIG"])
    assert path.parent == tmp_path
    assert json.loads(path.read_text()) == {
        "arm": "ngram",
        "drafter": "ngram",
        "verification": "all",
        "min_match": 5,
        "max_match": 12,
        "max_draft": 9,
        "max_copy": 256,
        "proof_dir": str(tmp_path / "proof"),
        "policy": "ngram",
        "drafting": "greedy",
        "assume_greedy_target": True,
    }
    assert command.env["HYBRID_SPARK_PROOF_DIR"] == str(tmp_path / "proof")
    assert command.checks.worker_proof == {
        "arm": "ngram",
        "drafter": "ngram",
        "verification": "all",
        "policy": "ngram",
        "drafting": "greedy",
        "token_ids_on_device": True,
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_vanilla_arm_inherits_no_plugin_file(make: Callable[..., ServerCommand], engine: str) -> None:
    command = make(f"engine={engine}")
    assert option(command, "--speculative-config") is None
    assert "HYBRID_SPARK_CONFIG" not in command.env
    assert "HYBRID_SPARK_CONFIG" in command.unset
    assert command.checks.worker_proof is None
    assert command.checks.cpu_proof == (engine == "vllm_cpu")
    assert ("HYBRID_SPARK_PROOF_DIR" in command.env) == (engine == "vllm_cpu")


def test_interpreter_runs_on_the_cpu_engine_only(make: Callable[..., ServerCommand]) -> None:
    cpu = make("engine=vllm_cpu", "engine.num_threads=3", "engine.kv_cache_gib=0.5")
    assert cpu.env["TRITON_INTERPRET"] == "1"
    assert cpu.env["CUDA_VISIBLE_DEVICES"] == ""
    assert cpu.env["OMP_NUM_THREADS"] == "3"
    assert cpu.env["OMP_WAIT_POLICY"] == "passive"
    assert option(cpu, "--kv-cache-memory-bytes") == str(1 << 29)
    assert "--enforce-eager" in cpu.argv
    assert not cpu.uses_gpus
    cuda = make("engine=vllm")
    assert "TRITON_INTERPRET" in cuda.unset
    assert "CUDA_VISIBLE_DEVICES" not in cuda.env
    assert "--enforce-eager" not in cuda.argv


def test_local_model_needs_no_hub(make: Callable[..., ServerCommand], tmp_path: Path) -> None:
    assert make("engine=vllm", model_path=str(tmp_path)).env["HF_HUB_OFFLINE"] == "1"
    remote = make("engine=vllm", "model.revision=abc")
    assert "HF_HUB_OFFLINE" not in remote.env
    assert option(remote, "--revision") == "abc"


def test_kv_cache_that_was_asked_for_is_held_against_the_log(make: Callable[..., ServerCommand]) -> None:
    assert "kv_cache_dtype" not in make("engine=vllm").checks.engine_config
    assert make("engine=vllm", "engine.kv_cache_dtype=fp8").checks.engine_config["kv_cache_dtype"] == "fp8"
    assert "kv_cache_dtype" not in make("engine.kv_cache_dtype=fp8").checks.engine_config  # a CPU's has its own


def test_arguments_of_one_model_follow_those_of_all(make: Callable[..., ServerCommand]) -> None:
    command = make("engine=vllm", "engine.extra_args=[--a]", "model.extra_args=[--language-model-only]")
    assert command.argv[-2:] == ["--a", "--language-model-only"]


def test_extra_arguments_come_last(make: Callable[..., ServerCommand]) -> None:
    command = make("engine=vllm", "engine.extra_args=[--swap-space,'0']")
    assert command.argv[-2:] == ["--swap-space", "0"]


def test_resources_are_the_cells(make: Callable[..., ServerCommand]) -> None:
    cell = plan("engine=vllm", "batch_sizes=[128]", "engine.memory_gib=1.5").cells[0]
    resources = get_engine(cell.engine).resources(cell)
    assert (resources.num_gpus, resources.num_cpus, resources.memory_bytes) == (2, 8, 3 << 29)
    assert get_engine(cell.engine).fidelity.value == "gpu"


def _every_command(tmp_path: Path) -> dict[str, ServerCommand]:
    commands = {}
    known = set()
    for experiment in known_options("exp"):
        for engine in ENGINES:
            if engine == "vllm_cpu" and experiment != "demo":
                continue
            for cell in plan(f"+exp={experiment}", f"engine={engine}").cells:
                # the workload and the temperature are not the server's: of equal commands one is enough
                key = (cell.model.name, cell.arm.name, cell.batch_size, str(plain(cell.engine)))
                if key not in known:
                    known.add(key)
                    commands[f"{experiment} {engine} {cell.label}"] = build(cell, tmp_path / cell.cell_id)
    return commands


@pytest.mark.slow
@pytest.mark.usefixtures("refits")
def test_vllm_parses_the_command_of_every_experiment(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    commands = _every_command(tmp_path)
    assert {name.split()[1] for name in commands} == set(ENGINES)
    # In a process of its own: importing vLLM changes logging, warnings and the environment of its process.
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("vllm_parser.py"))],
        input=json.dumps([command.argv[3:] for command in commands.values()]),
        # Only an offline hub makes vLLM look for the checkpoint's files this early.
        env=os.environ | {"VLLM_PLUGINS": "", "HF_HUB_OFFLINE": "0"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    parsed = json.loads(done.stdout.rpartition("\nparsed ")[2])
    for (name, command), values in zip(commands.items(), parsed, strict=True):
        _check(name, command, values)


def _check(name: str, command: ServerCommand, values: dict[str, Any]) -> None:
    checks = command.checks
    _, _, model, _, _, _, arm = name.split()
    assert values["enable_prefix_caching"] is False, name
    assert values["max_num_seqs"] == checks.max_num_seqs, name
    assert values["tensor_parallel_size"] == checks.num_workers, name
    assert values["enforce_eager"] == (checks.engine_config["enforce_eager"] == "True"), name
    assert values["max_model_len"] == int(checks.engine_config["max_seq_len"]), name
    assert values["served_model_name"] in (model, [model]), name
    assert values["disable_uvicorn_access_log"] is True, name
    spec = values["speculative_config"]
    assert (spec is not None) == (checks.worker_proof is not None), name
    if spec is not None:
        assert spec["method"] == ("ngram_gpu" if arm.startswith("ngram") else "dspark"), name
        assert spec["num_speculative_tokens"] == (7 if arm.startswith("dspark") else 15), name
    if command.uses_gpus:
        assert values["async_scheduling"] is True, name
        # batch 128: one token and 7 or 15 drafts a request
        assert values["max_cudagraph_capture_size"] in (None, 1024 if arm.startswith("dspark") else 2048), name
    else:
        assert values["kv_cache_memory_bytes"] == 2 << 30, name


def arm_files(make: Callable[..., ServerCommand], arm: str, *overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The speculative configuration and the plugin's file of an arm on a model with a DSpark drafter."""
    command = make("engine=vllm", "model=qwen3-4b", "models=null", f"arms=[{arm}]", *overrides)
    spec = option(command, "--speculative-config")
    assert spec is not None
    return json.loads(spec), json.loads(Path(command.env["HYBRID_SPARK_CONFIG"]).read_text(encoding="utf-8"))


def test_hybrid_drafts_fifteen_tokens_with_dsparks_checkpoint_under_one_budget(
    make: Callable[..., ServerCommand],
) -> None:
    spec, plugin = arm_files(make, "hybrid")
    assert spec == {
        "num_speculative_tokens": 15,
        "method": "dspark",
        "model": "deepseek-ai/dspark_qwen3_4b_block7",
        "draft_sample_method": "greedy",
        "enable_adaptive_verification": True,
    }
    assert (plugin["drafter"], plugin["policy"]) == ("hybrid", "proposed")
    # the values as planned, beside the record
    assert Coefficients.load(plugin["coefficients"]) == Coefficients.load("Qwen3-4B")
    assert Path(plugin["coefficients"]).parent == Path(plugin["proof_dir"]).parent


def test_drafter_is_named_by_its_folder(
    make: Callable[..., ServerCommand], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    spec, _ = arm_files(make, "dspark", "model.draft_path=d")
    assert spec["model"] == str(tmp_path / "d")


def test_dspark_keeps_its_own_block_size(make: Callable[..., ServerCommand]) -> None:
    spec, plugin = arm_files(make, "dspark")
    assert spec["num_speculative_tokens"] == plugin["max_draft"] == 7
    assert "coefficients" not in plugin


def test_greedy_targets_may_draft_probabilistically_with_any_policy(make: Callable[..., ServerCommand]) -> None:
    _, plugin = arm_files(make, "hybrid", "arm.drafting=probabilistic", "temperatures=[0.0]")
    assert (plugin["drafting"], plugin["assume_greedy_target"]) == ("probabilistic", True)


@pytest.mark.parametrize("arm", [name for name in known_options("arm") if name != "vanilla"])
def test_plugin_accepts_the_file_of_every_arm(make: Callable[..., ServerCommand], arm: str) -> None:
    from hybrid_spark.vllm_plugin.config import PluginConfig

    refitted = arm.startswith(("hybrid_no_", "ngram_av_no_"))
    spec, plugin = arm_files(make, arm, *(["arm.coefficients=Qwen3-4B"] if refitted else []))
    config = PluginConfig(**plugin)
    assert config.arm == arm
    assert config.max_draft == spec["num_speculative_tokens"]
    assert (config.verification == "adaptive") == spec.get("enable_adaptive_verification", False)
