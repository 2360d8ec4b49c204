"""The hook points of the plugin and the harness in vLLM that no import statement shows.

To rely on something else of vLLM's, add a line here. Names that are imported, flags, environment variables and
metrics need none: own_sources finds them.
"""

from __future__ import annotations

from hybrid_spark.vllm_check.kinds import Attributes, CallOrder, Expression, Hook, Name, Parameters, StringConstant

__all__ = ["HOOKS", "KERNELS"]

_GPU = "vllm.v1.worker.gpu"
_RUNNER = f"{_GPU}.model_runner"
_SPEC = f"{_GPU}.spec_decode"
_ADAPTIVE = f"{_SPEC}.adaptive_verification"
_REJECTION = f"{_SPEC}.rejection_sampler_utils"

_PROPOSE = (
    *("input_batch", "attn_metadata", "slot_mappings", "last_hidden_states", "aux_hidden_states", "num_sampled"),
    *("num_rejected", "last_sampled", "next_prefill_tokens", "temperature", "seeds"),
)

_LOADING: tuple[Hook, ...] = (
    StringConstant(
        kind="entry-point group",
        text="vllm.general_plugins",
        modules=("vllm.plugins",),
        why="loads the plugin",
    ),
    CallOrder(
        module="vllm.v1.worker.worker_base",
        name="WorkerWrapperBase.init_worker",
        calls=("load_general_plugins", "current_platform.register_triton_kernel_overrides", "resolve_obj_by_qualname"),
        why="the plugin and the CPU engine's kernels are in place before the model runner is imported",
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.__init__",
        expression="init_speculator(self.vllm_config, self.device, self.req_states)",
        why="H1: the runner builds our speculator",
    ),
    Parameters(
        module=_SPEC,
        name="init_speculator",
        parameters=("vllm_config", "device", "req_states"),
        match="exact",
        why="H1: replaced by ours",
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.__init__",
        expression="self.speculative_config.use_ngram()",
        why="H4: whether the runner keeps token ids in device memory",
    ),
    Parameters(
        module="vllm.config",
        name="SpeculativeConfig.use_ngram",
        parameters=(),
        match="exact",
        why="H4: replaced by ours",
    ),
    Attributes(
        module="vllm.config",
        name="SpeculativeConfig",
        attributes=(
            *("method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max", "draft_sample_method"),
            *("enable_adaptive_verification", "draft_model_config"),
        ),
        why="what --speculative-config sets and the plugin compares with its own configuration",
    ),
)

_STATES: tuple[Hook, ...] = (
    Attributes(
        module=f"{_GPU}.states",
        name="RequestState",
        attributes=(
            *("all_token_ids", "total_len", "req_id_to_index", "num_computed_tokens_np", "prefill_len", "device"),
            *("max_num_reqs", "max_model_len", "max_num_batched_tokens", "num_speculative_steps"),
        ),
        why="the scan's contexts, and what budgets are sized from",
    ),
    Parameters(
        module=f"{_GPU}.states",
        name="RequestState.add_request",
        parameters=("req_id",),
        match="prefix",
        why="wrapped: a new request starts without valid draft slots",
    ),
    CallOrder(
        module=_RUNNER,
        name="GPUModelRunner.add_requests",
        calls=("self.req_states.add_request", "self.adaptive_verification.add_request"),
        why="a new request's survivals are seeded once it has its row",
    ),
    Attributes(
        module=f"{_GPU}.buffer_utils",
        name="StagedWriteTensor",
        attributes=("gpu", "_uva_buf"),
        why="tells token ids in device memory from those mapped into it",
    ),
    Attributes(
        module=f"{_GPU}.buffer_utils", name="UvaBackedTensor", attributes=("np",), why="prefill lengths on the host"
    ),
    Attributes(
        module=f"{_GPU}.input_batch",
        name="InputBatch",
        attributes=("num_reqs", "idx_mapping", "idx_mapping_np", "expanded_idx_mapping", "expanded_local_pos"),
        why="which request state each row of a batch belongs to",
    ),
)

_SPECULATORS: tuple[Hook, ...] = (
    Parameters(
        module=f"{_SPEC}.speculator",
        name="BaseSpeculator.propose",
        parameters=_PROPOSE,
        match="prefix",
        why="overridden by both our speculators, which take any further keywords",
    ),
    Parameters(
        module=f"{_SPEC}.speculator",
        name="BaseSpeculator.propose",
        parameters=("dummy_run", "num_speculative_tokens"),
        match="contains",
        why="tell our speculators when not to draft",
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.sample_tokens",
        expression=(
            "self.speculator.propose(input_batch, attn_metadata, slot_mappings_by_layer, spec_hidden_states, "
            "aux_hidden_states, num_sampled, num_rejected, self.req_states.last_sampled_tokens, "
            "self.req_states.next_prefill_tokens, self.sampler.sampling_states.temperature.gpu, "
            "self.sampler.sampling_states.seeds.gpu, num_speculative_tokens=num_spec_tokens, "
            "dp_sync_state=dp_sync_state, mm_inputs=mm_inputs)"
        ),
        why="how the runner asks for drafts",
    ),
    CallOrder(
        module=_RUNNER,
        name="GPUModelRunner.sample_tokens",
        calls=(
            *("self.sample", "self.postprocess_sampled", "self.speculator.observe_verification"),
            *("self.speculator.propose", "self.adaptive_verification.record_confidences"),
        ),
        why="the scan sees the sampled tokens, and survivals are recorded after the chains are kept",
    ),
    Attributes(
        module=f"{_SPEC}.ngram.speculator",
        name="NgramGPUSpeculator",
        attributes=("max_num_reqs", "drafts", "req_states", "propose", "num_speculative_steps"),
        why="base of our n-gram speculator",
    ),
    Parameters(
        module=f"{_SPEC}.ngram.speculator",
        name="NgramGPUSpeculator.__init__",
        parameters=("vllm_config", "device", "req_states"),
        match="call",
        why="base of our n-gram speculator",
    ),
    Parameters(
        module=f"{_SPEC}.dspark.speculator",
        name="DSparkSpeculator.__init__",
        parameters=("vllm_config", "device"),
        match="call",
        why="base of our composite speculator",
    ),
    Attributes(
        module=f"{_SPEC}.dspark.speculator",
        name="DSparkSpeculator",
        attributes=(
            *("device", "max_num_reqs", "max_num_tokens", "num_speculative_steps", "vocab_size", "draft_logits"),
            *("draft_token_confidence_probs", "use_confidence_head", "use_acceptance_estimator"),
            *("acceptance_estimator", "sample_from_anchor", "num_query_per_req", "enable_adaptive_verification"),
        ),
        why="what the composite speculator reads and sets",
    ),
    Parameters(
        module=f"{_SPEC}.dspark.speculator",
        name="DSparkSpeculator.load_draft_model",
        parameters=("target_model", "target_attn_layer_names"),
        match="exact",
        why="overridden: the confidence head is used whatever is verified",
    ),
    Parameters(
        module=f"{_SPEC}.dspark.speculator",
        name="DSparkSpeculator._num_graph_context_tokens",
        parameters=("num_reqs",),
        match="exact",
        why="overridden: a verification is L + 1 rows per request, not K + 1",
    ),
    Parameters(
        module=f"{_SPEC}.dspark.speculator",
        name="DSparkSpeculator.draft_logits_spec",
        parameters=("vllm_config",),
        match="call",
        why="how the widened draft logits are allocated",
    ),
    Parameters(
        module=f"{_SPEC}.dspark.speculator",
        name="DSparkSpeculator.observe_verification",
        parameters=("idx_mapping", "num_sampled", "num_rejected"),
        match="exact",
        why="overridden: vLLM's estimator learns from DSpark's own chains only",
    ),
    Expression(
        module=f"{_SPEC}.dspark.speculator",
        name="DSparkSpeculator._sample_sequential",
        expression="self.draft_token_confidence_probs[:num_reqs]",
        why="DSpark leaves its confidences here",
    ),
)

_VERIFICATION: tuple[Hook, ...] = (
    Name(module=_ADAPTIVE, name="AdaptiveVerificationManager", why="H2: replaced by ours"),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.initialize_kv_cache",
        expression="getattr(self.speculator, 'enable_adaptive_verification', False)",
        why="n-gram drafts can be verified adaptively",
    ),
    CallOrder(
        module=_ADAPTIVE,
        name="maybe_create_adaptive_verification_manager",
        calls=("AdaptiveVerificationManager",),
        why="H2: the name is looked up where ours stands",
    ),
    Parameters(
        module=_ADAPTIVE,
        name="AdaptiveVerificationManager.__init__",
        parameters=("req_states",),
        match="prefix",
        why="wrapped; ours passes on the rest",
    ),
    Attributes(
        module=_ADAPTIVE,
        name="AdaptiveVerificationManager",
        attributes=(
            *("req_states", "num_speculative_steps", "num_bonus_tokens", "cost_tables", "_max_total_logits"),
            *("_batch_budget", "_confidence_probs", "_stale_confidences", "_stale_idx", "_pending_resets"),
            *("_copy_events", "_copy_stream", "compact_batch", "reallocate_drafts"),
        ),
        why="what our manager reads and sets",
    ),
    *(
        Parameters(
            module=_ADAPTIVE,
            name=f"AdaptiveVerificationManager.{method}",
            parameters=parameters,
            match="exact",
            why="overridden by our manager",
        )
        for method, parameters in (
            ("add_request", ("req_idx",)),
            ("batches_to_profile", ("capture_sizes",)),
            ("set_initial_cost_curves", ("samples",)),
            ("set_cost_curves", ("draft_curve", "verify_curve")),
            ("get_num_tokens", ("num_tokens_per_req", "draft_tokens")),
            ("record_confidences", ("confidence_probs", "input_batch")),
        )
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.gather_batch_req_state",
        expression="self.adaptive_verification.get_num_tokens(num_tokens_per_req, draft_tokens)",
        why="where the budget is sized",
    ),
    CallOrder(
        module=_RUNNER,
        name="GPUModelRunner.execute_model",
        calls=("self.gather_batch_req_state", "self.prepare_inputs"),
        why="get_num_tokens comes before reallocate_drafts",
    ),
    CallOrder(
        module=_RUNNER,
        name="GPUModelRunner.prepare_inputs",
        calls=("adaptive_verification.compact_batch", "adaptive_verification.reallocate_drafts"),
        why="slots are allocated from the budget of the same step",
    ),
    Expression(
        module=_ADAPTIVE,
        name="AdaptiveVerificationManager.reallocate_drafts",
        expression=(
            "_assign_draft_token_budget_compiled(self._confidence_probs, idx_mapping, capacities, draft_budget, "
            "self.num_speculative_steps)"
        ),
        why="replaced by our order of slots",
    ),
    Parameters(
        module=_ADAPTIVE,
        name="_assign_draft_token_budget",
        parameters=("confidence_probs", "idx_mapping", "capacities", "draft_budget", "num_steps"),
        match="exact",
        why="what _assign_draft_token_budget_compiled is called with",
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.sample_tokens",
        expression=(
            "self.adaptive_verification.record_confidences(self.speculator.draft_token_confidence_probs, input_batch)"
        ),
        why="where survivals are recorded",
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.capture_model",
        expression="self.adaptive_verification.batches_to_profile(self.cudagraph_manager.captured_token_counts())",
        why="where the cost model's steps are timed",
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.capture_model",
        expression="self._dummy_run(**batch)",
        why="the timed steps are arguments of _dummy_run",
    ),
    Parameters(
        module=_RUNNER,
        name="GPUModelRunner._dummy_run",
        parameters=("num_tokens", "uniform_decode", "context_len"),
        match="contains",
        why="what the timed steps set",
    ),
    CallOrder(
        module=_RUNNER,
        name="GPUModelRunner.capture_model",
        calls=(
            "self.adaptive_verification.batches_to_profile",
            "self.adaptive_verification.set_initial_cost_curves",
        ),
        why="the cost model is built from the timed steps",
    ),
    Attributes(
        module=f"{_GPU}.async_utils",
        name="StepTimingSample",
        attributes=("forward_ms", "drafter_ms", "num_reqs", "full_cudagraph"),
        why="times of the timed steps",
    ),
    Parameters(
        module=f"{_GPU}.async_utils",
        name="stream",
        parameters=("to_stream", "from_stream"),
        match="call",
        why="copies survivals beside the model's work",
    ),
    Attributes(
        module="vllm.v1.utils",
        name="CpuGpuBuffer",
        attributes=("np", "gpu", "copy_to_cpu"),
        why="survivals on both sides",
    ),
    Attributes(
        module="vllm.distributed.parallel_state",
        name="GroupCoordinator",
        attributes=("rank_in_group", "world_size", "broadcast", "broadcast_object"),
        why="rank 0's budget and confidences hold for all",
    ),
    Parameters(
        module="vllm.distributed.parallel_state",
        name="GroupCoordinator.broadcast",
        parameters=("input_", "src"),
        match="call",
        why="rank 0's confidences hold for all, in place on the device",
    ),
    Parameters(
        module="vllm.distributed.parallel_state",
        name="GroupCoordinator.broadcast_object",
        parameters=("obj", "src"),
        match="call",
        why="rank 0's budget holds for all",
    ),
)

_SAMPLER: tuple[Hook, ...] = (
    Parameters(
        module=f"{_SPEC}.rejection_sampler",
        name="RejectionSampler.__call__",
        parameters=("logits", "input_batch", "draft_logits", "invalid_drafts"),
        match="exact",
        why="H3: wrapped, slots past a chain's end are never accepted",
    ),
    Expression(
        module=_RUNNER,
        name="GPUModelRunner.sample",
        expression="self.rejection_sampler(logits, input_batch, self.speculator.draft_logits, invalid_drafts)",
        why="H3: how the runner calls it",
    ),
    Attributes(
        module=f"{_SPEC}.rejection_sampler",
        name="RejectionSampler",
        attributes=("sampler",),
        why="H3: leads to the request states",
    ),
    Attributes(
        module=f"{_GPU}.sample.sampler",
        name="Sampler",
        attributes=("req_states",),
        why="H3: holds the linked valid lengths",
    ),
)

KERNELS: dict[str, tuple[str, ...]] = {
    f"{_GPU}.sample.gumbel._gumbel_sample_kernel": (
        *("local_argmax_ptr", "local_max_ptr", "USE_FP64", "logits_cache_ptr", "logits_ptr", "vocab_size"),
        *("expanded_idx_mapping_ptr", "temp_ptr", "seeds_ptr", "pos_ptr", "IS_DRAFTING", "APPLY_TEMPERATURE"),
        *("BLOCK_SIZE", "logits_cache_col_ptr", "logits_cache_source_ptr", "PER_TOKEN_COL"),
    ),
    f"{_REJECTION}._compute_local_logits_stats_kernel": (
        *("target_local_argmax_ptr", "target_local_max_ptr", "target_local_sumexp_ptr", "HAS_DRAFT_LOGITS"),
        *("target_logits_ptr", "vocab_size", "BLOCK_SIZE", "expanded_idx_mapping_ptr", "temp_ptr"),
        *("expanded_local_pos_ptr", "draft_logits_ptr", "draft_local_max_ptr", "draft_local_sumexp_ptr"),
    ),
    f"{_REJECTION}._rejection_kernel": (
        *("idx_mapping_ptr", "temp_ptr", "rejected_steps_ptr", "SYNTHETIC_MODE", "target_local_max_ptr"),
        *("target_local_argmax_ptr", "draft_sampled_ptr", "cu_num_logits_ptr", "sampled_ptr"),
        *("target_rejected_logsumexp_ptr", "draft_rejected_logsumexp_ptr"),
    ),
    f"{_REJECTION}._resample_kernel": (
        *("resampled_local_argmax_ptr", "resampled_local_max_ptr", "HAS_DRAFT_LOGITS", "WATERMARK", "USE_FP64"),
        *("target_logits_ptr", "vocab_size", "cu_num_logits_ptr", "draft_sampled_ptr", "expanded_idx_mapping_ptr"),
        *("temp_ptr", "rejected_step_ptr", "seed_ptr", "pos_ptr", "BLOCK_SIZE"),
    ),
}
"""Triton kernels that the CPU engine replaces, and the arguments that the replacements read."""

_CPU_ENGINE: tuple[Hook, ...] = (
    *(
        Parameters(
            module=kernel.rpartition(".")[0],
            name=kernel.rpartition(".")[2],
            parameters=parameters,
            match="contains",
            why="replaced on the CPU engine",
        )
        for kernel, parameters in KERNELS.items()
    ),
    Parameters(
        module="vllm.platforms.cpu",
        name="CpuPlatform.register_triton_kernel_overrides",
        parameters=(),
        match="exact",
        why="wrapped: patches a worker before it builds its model runner",
    ),
    Attributes(module="vllm.platforms.cpu", name="CpuPlatform", attributes=("is_cpu",), why="tells the CPU engine"),
    Parameters(
        module="vllm.triton_utils.dispatcher",
        name="register_kernels",
        parameters=("overrides",),
        match="call",
        why="puts the kernels' replacements in force",
    ),
    Parameters(
        module="vllm.config",
        name="VllmConfig._validate_adaptive_verification",
        parameters=(),
        match="exact",
        why="replaced: adaptive verification without CUDA graphs",
    ),
    Name(module=_ADAPTIVE, name="_assign_draft_token_budget_compiled", why="replaced: no compiler"),
    Name(module=_ADAPTIVE, name="get_varlen_cudagraph_unsupported_backend", why="replaced: no CUDA graphs"),
    Parameters(
        module=_ADAPTIVE,
        name="resolve_adaptive_cudagraph_mode",
        parameters=("mode", "piecewise_capture_available"),
        match="exact",
        why="replaced: no CUDA graphs",
    ),
    Name(module=_RUNNER, name="resolve_adaptive_cudagraph_mode", why="replaced where the runner has bound it"),
)

_HARNESS: tuple[Hook, ...] = (
    StringConstant(
        kind="server that runs as a module,",
        text="__main__",
        modules=("vllm.entrypoints.openai.api_server",),
        why="hybrid_spark.server runs it",
    ),
    Name(module="vllm.benchmarks.serve", name="add_cli_args", why="the client's arguments"),
    Parameters(module="vllm.benchmarks.serve", name="main", parameters=("args",), match="call", why="runs the client"),
    StringConstant(
        kind="request function",
        text="openai-chat",
        modules=("vllm.benchmarks.lib.endpoint_request_func",),
        why="wrapped by the client",
    ),
    Attributes(
        module="vllm.benchmarks.lib.endpoint_request_func",
        name="RequestFuncInput",
        attributes=("request_id", "chat_messages", "extra_body"),
        why="the client puts conversation and seed there",
    ),
    Attributes(
        module="vllm.benchmarks.lib.endpoint_request_func",
        name="RequestFuncOutput",
        attributes=("success", "error", "output_tokens"),
        why="the client fails responses without usage",
    ),
    StringConstant(
        kind="log line",
        text="Initializing a V1 LLM engine (v%s) with config: %s",
        modules=("vllm.v1.engine.core",),
        part=True,
        why="the harness verifies the server's configuration by it",
    ),
    StringConstant(
        kind="log line",
        text="non-default args: %s",
        modules=("vllm.entrypoints.serve.utils.api_utils", "vllm.entrypoints.common.startup"),
        part=True,
        why="the harness verifies the server's configuration by it",
    ),
)

HOOKS: tuple[Hook, ...] = (
    *_LOADING,
    *_STATES,
    *_SPECULATORS,
    *_VERIFICATION,
    *_SAMPLER,
    *_CPU_ENGINE,
    *_HARNESS,
)
