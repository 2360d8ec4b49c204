"""What tests of the harness start from: grids, plans, cells, requests and a tiny model folder."""

import copy
import functools
from pathlib import Path
from typing import Any

from harness.config.compose import Grid, compose_grid
from harness.config.schema import (
    ArmConfig,
    ClientConfig,
    Drafter,
    EngineConfig,
    ModelConfig,
    Verification,
    WorkloadConfig,
)
from harness.plan import Cell, Plan, SegmentPlan, make_plan
from workloads import LoadedWorkload, Request

NGRAM = ArmConfig(name="ngram", drafter=Drafter.ngram, verification=Verification.all)
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant> {% endif %}"
)


def grid(*overrides: str) -> Grid:
    """Compose overrides; a copy of an earlier result where they were composed before."""
    return copy.deepcopy(_composed(overrides))


@functools.cache
def _composed(overrides: tuple[str, ...]) -> Grid:
    return compose_grid(list(overrides))


def plan(*overrides: str, requests: list[Request] | None = None) -> Plan:
    """Lay out a sweep in which the given requests, by default a dozen edits, stand for every workload."""
    used = [request(i, part="edits", max_output_tokens=8, distance=0.1) for i in range(12)]
    used = used if requests is None else requests

    def load(workload: WorkloadConfig, seed: int) -> LoadedWorkload:
        del seed
        parts = list(dict.fromkeys(r.part for r in used))
        return LoadedWorkload(
            name=workload.name, requests=used, parts=parts, source="test", licence="none", citation="none"
        )

    return make_plan(grid(*overrides), load)


def request(
    number: int,
    *,
    max_output_tokens: int = 5,
    system: str | None = None,
    part: str = "chat",
    distance: float | None = None,
) -> Request:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": f"question {number:03d} and more"})
    return Request(
        id=f"q{number}", part=part, messages=messages, max_output_tokens=max_output_tokens, distance=distance
    )


def cell(**changes: Any) -> Cell:
    """A small cell of two segments."""
    edits = [request(i, part="edits") for i in range(4)]
    chats = [request(i, system="s") for i in range(4, 7)]
    values: dict[str, Any] = {
        "cell_id": "0123456789ab",
        "sweep": "test",
        "engine": EngineConfig(startup_timeout_s=60.0),
        "model": ModelConfig(name="tiny", checkpoint="none"),
        "workload": WorkloadConfig(name="made-up", loader="none"),
        "arm": ArmConfig(name="vanilla"),
        "client": ClientConfig(),
        "accelerator_type": None,
        "batch_size": 2,
        "temperature": 0.0,
        "seed": 0,
        "num_gpus": 0,
        "segments": [
            SegmentPlan(name="edits 10-15%", part="edits", bucket="10-15", requests=edits),
            SegmentPlan(name="chat", part="chat", bucket=None, requests=chats),
        ],
        "workload_source": "made up",
        "workload_dropped": {},
        "workload_fingerprint": "0" * 64,
        "left_out": [],
    }
    return Cell(**(values | changes))


def tiny_model(folder: Path) -> Path:
    """Write a model folder that passes for complete: the stand-in server's tokenizer of one id a character, its chat
    template, a configuration (without one vLLM's client waits and retries), and weights that nobody reads.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {chr(i): i for i in range(32, 127)} | {"\n": 10, "<s>": 1, "<unk>": 0}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("<unk>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")
    fast.chat_template = _TEMPLATE
    fast.save_pretrained(str(folder))
    (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (folder / "model.safetensors").write_bytes(b"weights that the stand-in never reads")
    return folder
