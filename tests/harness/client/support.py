"""What the client's and the cell's tests share: requests, a tiny tokenizer, the stand-in server."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.config.schema import ArmConfig, ClientConfig, EngineConfig, ModelConfig, WorkloadConfig
from harness.plan import Cell, SegmentPlan
from workloads import Request

SERVER = Path(__file__).with_name("chat_server.py")
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant> {% endif %}"
)


def request(number: int, *, max_output_tokens: int = 5, system: str | None = None, part: str = "chat") -> Request:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": f"question {number:03d} and more"})
    return Request(id=f"q{number}", part=part, messages=messages, max_output_tokens=max_output_tokens)


def tiny_tokenizer(folder: Path) -> Path:
    """Write a tokenizer of one id a character, with a chat template."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {chr(i): i for i in range(32, 127)} | {"\n": 10, "<s>": 1, "<unk>": 0}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("<unk>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")
    fast.chat_template = _TEMPLATE
    fast.save_pretrained(str(folder))
    return folder


@contextmanager
def chat_server(*options: str) -> Iterator[str]:
    """Run the stand-in; yields its base URL."""
    process = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def cell(**changes: Any) -> Cell:
    """A small cell of two segments."""
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
            SegmentPlan(
                name="edits 10-15%",
                part="edits",
                bucket="10-15",
                requests=[request(i, part="edits") for i in range(4)],
            ),
            SegmentPlan(name="chat", part="chat", bucket=None, requests=[request(i, system="s") for i in range(4, 7)]),
        ],
        "workload_source": "made up",
        "workload_dropped": {},
        "workload_fingerprint": "0" * 64,
        "left_out": [],
    }
    return Cell(**(values | changes))
