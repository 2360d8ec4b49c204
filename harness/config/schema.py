"""Typed configuration: the dataclasses hold the defaults, the YAML files under `conf/` only choose.

A field whose metadata says `identity=False` cannot change what is measured (labels, time limits, placement) and stays
out of the cell id. Everything else is hashed into it; with `identity="if set"` only where it holds something, so that
records from before the field was there keep their ids.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "ArmConfig",
    "ClientConfig",
    "ClusterConfig",
    "Drafter",
    "EngineConfig",
    "EngineKind",
    "Fidelity",
    "ModelConfig",
    "SweepConfig",
    "Verification",
    "WorkloadConfig",
]


class EngineKind(Enum):
    """What runs a cell (design.md: three engines behind one interface)."""

    vllm = "vllm"
    vllm_cpu = "vllm_cpu"


class Fidelity(Enum):
    """What a number means; tables and figures never mix two."""

    gpu = "gpu"
    cpu = "cpu"
    replay = "replay"


class Drafter(Enum):
    """Where draft tokens come from."""

    none = "none"
    ngram = "ngram"
    dspark = "dspark"
    hybrid = "hybrid"


class Verification(Enum):
    """Which draft tokens the target model verifies."""

    none = "none"
    all = "all"
    adaptive = "adaptive"


def _free(default: Any = None, **kwargs: Any) -> Any:
    """A field that cannot change what is measured, so it is left out of the cell id."""
    if "default_factory" not in kwargs:
        kwargs["default"] = default
    return field(metadata={"identity": False}, **kwargs)


@dataclass(kw_only=True, slots=True)
class EngineConfig:
    """The serving engine and its hardware."""

    kind: EngineKind = EngineKind.vllm_cpu
    """`vllm` (CUDA) or `vllm_cpu` (vLLM's CPU build, Triton interpreted)."""
    tensor_parallel_size: int = 1
    """GPUs per server."""
    tensor_parallel_size_at: dict[int, int] = field(default_factory=dict)
    """Batch size -> GPUs per server, where it differs; the same for every arm."""
    gpu_memory_utilization: float = 0.9
    """Fraction of each GPU's memory that vLLM may use (`vllm` only)."""
    dtype: str | None = None
    """Number format of weights and activations; null takes the model's."""
    kv_cache_dtype: str = "auto"
    """vLLM's `--kv-cache-dtype`; `fp8` halves the KV cache (`vllm` only)."""
    kv_cache_gib: float = 2.0
    """Size of the KV cache (`vllm_cpu` only)."""
    max_num_batched_tokens: int | None = None
    """Tokens a step may hold; null keeps vLLM's default."""
    max_cudagraph_capture_size: int | None = None
    """Largest captured step in tokens; null means batch size x (draft length + 1) (`vllm` only)."""
    async_scheduling: bool = True
    """Overlap the host's step t+1 with the device's step t (`vllm` only: off on CPUs)."""
    enforce_eager: bool = False
    """Run without CUDA graphs."""
    extra_args: list[str] = field(default_factory=list)
    """Further arguments of vLLM's server, as given."""
    server_module: str = "hybrid_spark.server"
    """Python module that is run as the server; a wrapper of your own may stand here."""
    num_threads: int = 2
    """Compute threads of the server (`vllm_cpu` only)."""
    num_cpus: int = _free(2)
    """CPU cores a cell reserves on its node."""
    memory_gib: float | None = _free(None)
    """Host memory a cell reserves on its node; null reserves none."""
    startup_timeout_s: float = _free(900.0)
    """Time a server may take until its first completion."""
    estimated_startup_s: float = _free(60.0)
    """For `plan` only: a server's usual start-up time."""
    estimated_tok_s_per_request: float = _free(20.0)
    """For `plan` only: output tokens per second of one request without speculation."""


@dataclass(kw_only=True, slots=True)
class ClusterConfig:
    """Where Ray places cells."""

    address: str | None = _free(None)
    """Address of a running Ray cluster; null starts a local one."""
    accelerator_type: str | None = _free(None)
    """Ray's name of the GPU each cell must get, for example `H100`; null takes any."""
    num_gpus: int | None = _free(None)
    """GPUs of the local cluster; null detects them."""
    num_cpus: int | None = _free(None)
    """CPU cores of the local cluster; null detects them."""
    max_parallel_cells: int | None = _free(None)
    """Upper bound of cells running at once; null leaves it to the resources."""


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """A target model."""

    name: str = "???"
    checkpoint: str = "???"
    """Hub id of the target model."""
    revision: str | None = None
    """Commit of the checkpoint; null takes the one that `results_dir` used first (`model_revisions.json` there)."""
    asset: str | None = None
    """Name in `harness.assets` of a model the harness fetches itself."""
    path: str | None = None
    """Local folder with the model; comes before the checkpoint and the asset."""
    draft_checkpoint: str | None = _free(None)
    """Hub id of the DSpark drafter."""
    draft_revision: str | None = _free(None)
    """Commit of the draft checkpoint. Null takes, as for `revision`, the one that `results_dir` used first
    (`model_revisions.json` there)."""
    draft_path: str | None = _free(None)
    """Local folder with the DSpark drafter, relative to the working directory, else to the project's root; comes
    before the checkpoint. Its content, not its name, enters the id of the cells that use it."""
    dtype: str = "auto"
    max_model_len: int = 8192
    """Context limit in tokens, prompt and output together."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Passed to the chat template, e.g. `enable_thinking: false`."""
    coefficients: str | None = _free(None)
    """Estimator coefficients: a model of Table 5, or a file relative to the working directory, else to the project's
    root. Their values, not their name, enter the id of the cells that use them."""
    extra_args: list[str] = field(default_factory=list, metadata={"identity": "if set"})
    """Further arguments of vLLM's server for this model, after those of `engine.extra_args`."""
    licence: str | None = _free(None)


@dataclass(kw_only=True, slots=True)
class WorkloadConfig:
    """A dataset, its filter and its size."""

    name: str = "???"
    loader: str = "???"
    """Name in the registry of `workloads`."""
    path: str | None = _free(None)
    """Local file with the dataset's own schema; comes before the hub. Its content, not its name, enters the id."""
    revision: str | None = None
    """Commit on the hub; null takes the one that the loader pins or, where it pins none, the one that `results_dir`
    used first (`dataset_revisions.json` there)."""
    num_prompts: int | None = None
    """Prompts per run of an unbucketed part, oversampled if the set is smaller; null runs each prompt once."""
    num_prompts_at: dict[int, int] = field(default_factory=dict)
    """Batch size -> prompts per run, where it differs."""
    num_passes_at: dict[int, int] = field(default_factory=dict, metadata={"identity": False})
    """Batch size -> times each request runs, where no number of prompts is set; 1 elsewhere."""
    max_output_tokens: int | None = None
    """Output limit in tokens; null keeps each prompt's own."""
    generation: str | None = _free(None)
    """Folder of the target's own outputs (`python -m harness generate`), which buckets and context lengths come from;
    `{model}` stands for the model's name. Null takes the data set's reference. The requests, not this, enter the id."""
    generation_optional: bool = _free(False)
    """Without such a folder the data set's reference stands in, and `plan` says so."""
    min_context_tokens: int | None = _free(None)
    """Run only requests whose prompt and own output take at least this many tokens (needs `generation`)."""
    max_context_tokens: int | None = _free(None)
    """Run only requests whose prompt and own output take at most this many tokens (needs `generation`)."""
    parts: list[str] | None = None
    """Run only these parts; null runs all."""
    buckets: list[str] | None = None
    """Run only these edit-distance buckets, in per cent, for example `[15-20]`; null runs all."""
    by_bucket: bool = True
    """Run each edit-distance bucket by itself, one after another on the same server."""
    bucket_width: float = 0.05
    """Width of an edit-distance bucket."""
    min_bucket_size: int = 10
    """Buckets with fewer requests are left out, and named."""
    options: dict[str, Any] = field(default_factory=dict)
    """The loader's own options."""
    licence: str | None = _free(None)
    citation: str | None = _free(None)


@dataclass(kw_only=True, slots=True)
class ArmConfig:
    """A decoding system under test."""

    name: str = "???"
    drafter: Drafter = Drafter.none
    verification: Verification = Verification.none
    num_speculative_tokens: int = 15
    """Longest draft in tokens: L of the n-gram drafter and of the hybrid, K of DSpark alone."""
    policy: str | None = None
    """How the hybrid picks a chain (`hybrid_spark.policies`); null takes `proposed`."""
    drafting: str = "greedy"
    """How DSpark picks its tokens: `greedy` or `probabilistic`."""
    coefficients: str | None = _free(None)
    """Estimator coefficients other than the model's own: a shipped name or a file, in which `{model}` stands for the
    model's name. Their values, not their name, enter the id."""
    cost_model: str | None = None
    """Step cost of adaptive verification: `paper` (Section F) or `vllm`; null takes the drafter's own."""
    record_steps: bool = False
    """Keep each full-batch step's survivals, budget and price (Section O) in `steps/` beside the record."""
    min_match: int = 5
    """Shortest n-gram match in tokens."""
    max_match: int = 15
    """Longest n-gram match in tokens."""
    max_copy: int = 256
    """Tokens a full match is followed backwards."""
    label: str | None = _free(None)
    """Name in tables and figures; null takes `name`."""


@dataclass(kw_only=True, slots=True)
class ClientConfig:
    """How requests are sent and when a run counts."""

    num_warmup_prompts: int | None = None
    """Requests before measuring, at the cell's concurrency; null sends one per concurrent request."""
    warmup_output_tokens: int = 32
    """Output limit of a warm-up request."""
    max_failed_fraction: float = 0.0
    """Share of requests that may fail before the repeat counts as failed."""
    ignore_eos: bool = False
    """Generate up to the limit even past the end-of-sequence token."""
    min_output_fraction: float = _free(0.02)
    """Mean output length below this share of the limit is flagged as implausibly short."""
    stall_timeout_s: float = _free(300.0)
    """Without any new output token for this long, the cell fails with a stack dump."""
    segment_timeout_s: float = _free(14400.0)
    """Upper bound of one measured part."""


@dataclass(kw_only=True, slots=True)
class SweepConfig:
    """A sweep: the grid models x workloads x batch_sizes x temperatures x arms, each cell `repeats` times."""

    name: str = _free("default")
    """Folder under `results_dir`."""
    models: list[str] | None = None
    """Names in `conf/model`; null takes the one chosen by `model=`."""
    workloads: list[str] | None = None
    """Names in `conf/workload`; null takes the one chosen by `workload=`."""
    arms: list[str] | None = None
    """Names in `conf/arm`; null takes the one chosen by `arm=`."""
    batch_sizes: list[int] = field(default_factory=lambda: [4])
    """Concurrent requests."""
    temperatures: list[float] = field(default_factory=lambda: [0.0])
    """Sampling temperatures of the target model; 0 is greedy."""
    repeats: int = _free(3)
    """Runs of each cell, each on a fresh server."""
    baseline: str = _free("vanilla")
    """Arm that speedups are relative to."""
    skip_lossy: bool = _free(False)
    """Leave out an arm at temperatures where it would change the output distribution (Table 9), rather than refuse."""
    seed: int = 0
    """Seed of sampling, oversampling and order."""
    results_dir: str = _free("results")
    fits_dir: str = _free("results/fits")
    """Where arms with a refitted estimator find `<model>/estimators/<terms>.json` (`python -m harness fit`); relative
    to the working directory, else to the project's root."""
    retry_failed: bool = _free(True)
    """A second sweep runs failed repeats again; earlier attempts stay on disk."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    workload: WorkloadConfig = field(default_factory=WorkloadConfig)
    arm: ArmConfig = field(default_factory=ArmConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
