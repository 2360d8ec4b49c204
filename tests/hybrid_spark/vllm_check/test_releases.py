"""The hook points in real releases: all there, and each of them missed where it is taken away."""

import ast
import importlib.util
import inspect
import os
import re
from pathlib import Path

import pytest

from hybrid_spark.vllm_check import HOOKS, Release, used_in_sources
from hybrid_spark.vllm_check import __main__ as vllm_check_main
from hybrid_spark.vllm_check.__main__ import all_hooks, check, main
from hybrid_spark.vllm_check.hooks import KERNELS
from hybrid_spark.vllm_check.kinds import Name, StringConstant

ROOT = Path(__file__).resolve().parents[3]
OTHERS = [path for path in os.environ.get("HYBRID_SPARK_VLLM_RELEASES", "").split(os.pathsep) if path]
INSTALLED = importlib.util.find_spec("vllm")
needs_vllm = pytest.mark.skipif(INSTALLED is None, reason="vLLM is not installed")


def installed():
    return Release(Path(next(iter(INSTALLED.submodule_search_locations))))


@needs_vllm
def test_installed_release_has_everything(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("ok ")]) == len(all_hooks())
    assert re.fullmatch(r"vLLM [\d.]+: (\d+) hook points, \1 ok", lines[-1])


@pytest.mark.skipif(not OTHERS, reason="HYBRID_SPARK_VLLM_RELEASES names no further wheels or folders")
def test_other_releases_have_everything():
    for path in OTHERS:
        assert check(Release(Path(path)), quiet=True) == []


GPU = "v1/worker/gpu/"
BREAKAGES = {
    "renamed class": (
        GPU + "spec_decode/dspark/speculator.py",
        "class DSparkSpeculator",
        "class DSparkDrafter",
        "missing",
        "DSparkSpeculator",
    ),
    "moved module": (GPU + "async_utils.py", None, None, "missing", "async_utils"),
    "new parameter of a replaced function": (
        GPU + "spec_decode/__init__.py",
        'req_states: "RequestState",',
        'req_states: "RequestState", rank: int,',
        "changed",
        "init_speculator(vllm_config",
    ),
    "reordered parameters of propose": (
        GPU + "spec_decode/speculator.py",
        "input_batch: InputBatch,\n        attn_metadata: dict[str, Any],",
        "attn_metadata: dict[str, Any],\n        input_batch: InputBatch,",
        "changed",
        "BaseSpeculator.propose(input_batch",
    ),
    "renamed kernel argument": (
        GPU + "sample/gumbel.py",
        "local_argmax_ptr",
        "argmax_ptr",
        "changed",
        "_gumbel_sample_kernel",
    ),
    "attribute gone": (
        GPU + "spec_decode/adaptive_verification.py",
        "_pending_resets",
        "_resets",
        "changed",
        "AdaptiveVerificationManager: ",
    ),
    "recorded before drafts are proposed": (
        GPU + "model_runner.py",
        "self.speculator.observe_verification(",
        "self.adaptive_verification.record_confidences(None, None); self.speculator.observe_verification(",
        "changed",
        "sample_tokens calls",
    ),
    "call with other arguments": (
        GPU + "spec_decode/adaptive_verification.py",
        "draft_budget,\n                    self.num_speculative_steps,",
        "draft_budget,",
        "changed",
        "reallocate_drafts: _assign",
    ),
    "call gone": (
        GPU + "model_runner.py",
        "self.speculative_config.use_ngram()",
        "False",
        "missing",
        "self.speculative_config.use_ngram()",
    ),
    "renamed flag": (
        "engine/arg_utils.py",
        '"--max-num-seqs"',
        '"--max-sequences"',
        "missing",
        "flag --max-num-seqs",
    ),
    "renamed metric": (
        "v1/spec_decode/metrics.py",
        "vllm:spec_decode_num_drafts",
        "vllm:num_drafts",
        "missing",
        "metric vllm:spec_decode_num_drafts",
    ),
    "renamed environment variable": ("envs.py", "VLLM_PLUGINS", "VLLM_ADDONS", "missing", "variable VLLM_PLUGINS"),
    "renamed entry-point group": (
        "plugins/__init__.py",
        "vllm.general_plugins",
        "vllm.plugins",
        "missing",
        "vllm.general_plugins",
    ),
    "reworded log line": ("v1/engine/core.py", "Initializing a V1", "Starting a V1", "missing", "log line Init"),
}


def module_names(file):
    module = "vllm." + file.removesuffix(".py").replace("/", ".")
    return {module, module.removesuffix(".__init__")}


@pytest.fixture(scope="module")
def parsed():
    """Syntax trees of the installed release and the hooks, so that each breakage parses one file only."""
    release, hooks = installed(), all_hooks()
    for hook in hooks:
        hook.look(release)
    return release, hooks


@needs_vllm
@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKAGES)
def test_breakage_is_found(name, capsys, parsed, monkeypatch):
    file, old, new, status, expected = BREAKAGES[name]
    release = installed()
    read = release._read
    whole, hooks = parsed
    monkeypatch.setattr(vllm_check_main, "all_hooks", lambda: hooks)
    for cache in ("_trees", "_nodes"):
        kept = {module: value for module, value in getattr(whole, cache).items() if module not in module_names(file)}
        setattr(release, cache, kept)
    original = read(file)
    changed = None
    if old is not None:
        assert old in original
        changed = original.replace(old, new)
    release._read = lambda path: changed if path == file else read(path)
    broken = check(release, quiet=True)
    assert (status, True) in {(finding.status, expected in hook.expected) for hook, finding in broken}
    assert f"{status:<8}" in capsys.readouterr().out


def test_broken_release_fails(tmp_path, capsys):
    for name in ("__init__.py", "_version.py"):
        (tmp_path / "vllm" / "v1").mkdir(parents=True, exist_ok=True)
        (tmp_path / "vllm" / name).write_text("version = '9.9'\n")
    assert main([str(tmp_path)]) == 1
    # The package itself is there, and nothing else.
    num_hooks = len(all_hooks())
    expected = f"vLLM 9.9: {num_hooks} hook points, 1 ok, {num_hooks - 1} missing"
    assert capsys.readouterr().out.splitlines()[-1] == expected


def test_path_without_vllm_is_an_error(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_own_sources_name_what_they_use():
    names = {hook.expected for hook in used_in_sources()}
    assert {
        "vllm.v1.worker.gpu.spec_decode.rejection_sampler.RejectionSampler",
        "flag --max-num-seqs",
        "flag --temperature",
        "flag --no-enable-prefix-caching",
        "environment variable VLLM_PLUGINS",
        "metric vllm:spec_decode_num_accepted_tokens",
    } <= names


def test_modules_named_in_our_code_are_hooks():
    """A module may be named in a string, as sys.modules.get needs it: such a module must be among the hooks."""
    covered = {hook.module for hook in all_hooks() if not isinstance(hook, StringConstant)}
    covered |= {f"{hook.module}.{hook.name}" for hook in all_hooks() if isinstance(hook, Name)}
    for path in sorted((ROOT / "hybrid_spark" / "vllm_plugin").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                module = re.fullmatch(r"(vllm(?:\.[a-z_0-9]+)+)\.?", node.value)
                if module and node.value != "vllm.hybrid_spark":
                    assert module[1] in covered, f"{path.name} names {module[1]}"


def test_every_hook_says_what_it_is_for():
    assert all(hook.why for hook in all_hooks())
    assert len({hook.expected for hook in HOOKS}) == len(HOOKS)


@needs_vllm
def test_replaced_kernels_and_the_arguments_read_are_listed():
    from hybrid_spark.vllm_plugin.cpu_kernels import REPLACEMENTS

    assert set(KERNELS) == set(REPLACEMENTS)
    release = installed()
    for kernel, make in REPLACEMENTS.items():
        module, _, name = kernel.rpartition(".")
        arguments = {argument.arg for argument in release.find(module, name).node.args.args}
        tree = ast.parse(inspect.getsource(make))
        read = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & arguments
        assert read - set(KERNELS[kernel]) == set()
        assert set(KERNELS[kernel]) <= arguments
