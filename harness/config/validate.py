"""Rules on values, checked for the whole sweep at once: all problems are collected and raised together."""

import math
from collections.abc import Iterator

from harness.config.arms import arm_problems
from harness.config.compose import Grid, known_options
from harness.config.lossless import temperatures_of
from harness.config.schema import (
    ClientConfig,
    EngineConfig,
    EngineKind,
    ModelConfig,
    SweepConfig,
    WorkloadConfig,
)
from harness.config.shared import shared_problems
from harness.errors import ConfigError
from workloads import bucket

__all__ = ["validate"]

# Far beyond any use: a mistyped number must not fill the memory.
MAX_REPEATS = 1000
MAX_PROMPTS = 1_000_000
MAX_SEED = 2**31
# Of vLLM 0.33's config/cache.py.
_KV_CACHE_DTYPES = (
    *("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4_ds_mla"),
    *("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "octave_k3v4"),
    *("octave_k3v3", "octave_k3v3_compact", "ultraquant_4bit", "int4_per_token_head", "int8_per_token_head"),
    *("fp8_per_token_head", "nvfp4", "nvfp4_4over6"),
)


def validate(grid: Grid) -> None:
    """Check every value of a composed sweep.

    Raises:
        ConfigError: Lists each value that breaks its rule, with its dotted key and a remedy.
    """
    is_typed = any(text.lstrip("+").startswith("baseline=") for text in grid.overrides)
    problems = [*_sweep(grid.sweep, [arm.name for arm in grid.arms], is_typed=is_typed), *_engine(grid.sweep.engine)]
    problems += _client(grid.sweep.client)
    for group, points in (("model", grid.models), ("workload", grid.workloads), ("arm", grid.arms)):
        names = [point.name for point in points]
        if len(set(names)) != len(names):
            problems.append(f"{group}.name must differ between the sweep's {group}s, got {names}. Leave it as it is.")
    problems += shared_problems(grid)
    for model in grid.models:
        problems += _model(model)
    for workload in grid.workloads:
        problems += _workload(workload)
    for arm in grid.arms:
        problems += arm_problems(arm, grid.models, temperatures_of(arm, grid.sweep))
    if problems:
        raise ConfigError(problems)


def _sweep(sweep: SweepConfig, arms: list[str], *, is_typed: bool) -> Iterator[str]:
    for size in sweep.batch_sizes:
        if size < 1:
            yield f"batch_sizes must hold positive integers, got {size}. Write for example batch_sizes=[4,32]."
    for temperature in sweep.temperatures:
        if not 0.0 <= temperature <= 2.0:
            yield f"temperatures must lie in [0, 2], got {temperature}. 0 is greedy decoding."
    if not 1 <= sweep.repeats <= MAX_REPEATS:
        yield f"repeats must lie in [1, {MAX_REPEATS}], got {sweep.repeats}. Confidence intervals need 3 or more."
    if not sweep.name or not set(sweep.name) <= _NAME_CHARS or sweep.name.startswith("."):
        yield f"name must use letters, digits, '-', '_' and '.', got {sweep.name!r}. It names a folder."
    if not sweep.results_dir:
        yield "results_dir must name a folder, got ''. The default is results."
    known = sorted({*arms, *known_options("arm")})
    if sweep.baseline not in known:
        yield f"baseline must name an arm, got {sweep.baseline!r}. Known: {', '.join(known)}."
    elif is_typed and sweep.baseline not in arms:
        # the default and an experiment's own may be missing: a part of the arms can run alone, into the same folder
        yield f"baseline must be one of the sweep's arms, got {sweep.baseline!r}. Its arms: {', '.join(arms)}."
    if not 0 <= sweep.seed <= MAX_SEED:
        yield f"seed must lie in [0, {MAX_SEED}], got {sweep.seed}. The client's generators take no other."
    for key in ("num_gpus", "num_cpus", "max_parallel_cells"):
        limit, minimum = getattr(sweep.cluster, key), 0 if key == "num_gpus" else 1
        if limit is not None and limit < minimum:
            yield f"cluster.{key} must be at least {minimum}, got {limit}. Leave it null for what is there."


_NAME_CHARS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def _engine(engine: EngineConfig) -> Iterator[str]:
    for size, tp in [(None, engine.tensor_parallel_size), *engine.tensor_parallel_size_at.items()]:
        key = "engine.tensor_parallel_size" + (f"_at[{size}]" if size is not None else "")
        if tp < 1:
            yield f"{key} must be at least 1, got {tp}."
        elif engine.kind is EngineKind.vllm_cpu and size is None and tp != 1:
            yield f"{key} must be 1 on engine vllm_cpu, got {tp}. Tensor parallelism needs engine=vllm."
    if not 0.0 < engine.gpu_memory_utilization <= 1.0:
        yield f"engine.gpu_memory_utilization must lie in (0, 1], got {engine.gpu_memory_utilization}."
    if engine.kv_cache_dtype not in _KV_CACHE_DTYPES:
        yield (
            f"engine.kv_cache_dtype must be one that vLLM knows, got {engine.kv_cache_dtype!r}. "
            f"Known: {', '.join(_KV_CACHE_DTYPES)}."
        )
    for key in ("num_cpus", "num_threads"):
        if getattr(engine, key) < 1:
            yield f"engine.{key} must be at least 1, got {getattr(engine, key)}."
    for key in ("kv_cache_gib", "startup_timeout_s", "estimated_tok_s_per_request"):
        if not _is_positive(getattr(engine, key)):
            yield f"engine.{key} must be a positive number, got {getattr(engine, key)}."
    if not 0 <= engine.estimated_startup_s < math.inf:
        yield f"engine.estimated_startup_s must be at least 0, got {engine.estimated_startup_s}."
    for key in ("memory_gib", "max_num_batched_tokens", "max_cudagraph_capture_size"):
        value = getattr(engine, key)
        if value is not None and not _is_positive(value):
            yield f"engine.{key} must be a positive number or null, got {value}."
    if engine.kind is EngineKind.vllm_cpu and not engine.enforce_eager:
        yield "engine.enforce_eager must be true on engine vllm_cpu, got False: there are no CUDA graphs on a CPU."


def _client(client: ClientConfig) -> Iterator[str]:
    if client.num_warmup_prompts is not None and client.num_warmup_prompts < 1:
        yield (
            f"client.num_warmup_prompts must be at least 1, got {client.num_warmup_prompts}. "
            "Leave it null for one per concurrent request."
        )
    if not 0.0 <= client.max_failed_fraction < 1.0:
        yield f"client.max_failed_fraction must lie in [0, 1), got {client.max_failed_fraction}."
    for key in ("warmup_output_tokens", "stall_timeout_s", "segment_timeout_s"):
        if not _is_positive(getattr(client, key)):
            yield f"client.{key} must be a positive number, got {getattr(client, key)}."
    if not 0.0 <= client.min_output_fraction <= 1.0:
        yield f"client.min_output_fraction must lie in [0, 1], got {client.min_output_fraction}."


def _model(model: ModelConfig) -> Iterator[str]:
    if model.max_model_len < 1:
        yield f"model.max_model_len must be at least 1, got {model.max_model_len} (model {model.name})."


def _workload(workload: WorkloadConfig) -> Iterator[str]:
    for size, num in [(None, workload.num_prompts), *workload.num_prompts_at.items()]:
        key = "workload.num_prompts" + (f"_at[{size}]" if size is not None else "")
        if num is not None and not 1 <= num <= MAX_PROMPTS:
            yield f"{key} must lie in [1, {MAX_PROMPTS}], got {num} (workload {workload.name})."
    for size, passes in workload.num_passes_at.items():
        if not 1 <= passes <= MAX_REPEATS:
            yield f"workload.num_passes_at[{size}] must lie in [1, {MAX_REPEATS}], got {passes} ({workload.name})."
    for key in ("min_context_tokens", "max_context_tokens"):
        limit = getattr(workload, key)
        if limit is None:
            continue
        if limit < 1:
            yield f"workload.{key} must be at least 1, got {limit} ({workload.name})."
        if workload.generation is None or workload.generation_optional:
            yield (
                f"workload.{key} needs the target's own outputs, got workload.generation={workload.generation} with "
                f"generation_optional={workload.generation_optional} ({workload.name}). "
                "Make them with `python -m harness generate` and name their folder."
            )
    if workload.max_output_tokens is not None and workload.max_output_tokens < 1:
        yield (
            f"workload.max_output_tokens must be at least 1, got {workload.max_output_tokens} "
            f"(workload {workload.name})."
        )
    try:
        labels = {bucket(low / 100, width=workload.bucket_width) for low in range(100)}
    except (ValueError, OverflowError):  # infinity and NaN included
        yield (
            f"workload.bucket_width must be a whole number of per cent that divides 100, got {workload.bucket_width} "
            f"({workload.name}). The paper's buckets are 0.05 wide."
        )
    else:
        unknown = [label for label in workload.buckets or [] if label not in labels]
        if unknown:
            example = bucket(0.2, width=workload.bucket_width)
            yield (
                f"workload.buckets must hold buckets of width {workload.bucket_width:g}, such as {example}, got "
                f"{', '.join(unknown)} ({workload.name})."
            )
    if workload.min_bucket_size < 1:
        yield f"workload.min_bucket_size must be at least 1, got {workload.min_bucket_size} ({workload.name})."


def _is_positive(value: float) -> bool:
    """Whether a number is above 0 and finite; NaN is neither."""
    return 0 < value < math.inf
