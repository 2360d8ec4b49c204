"""What the client's and the cell's tests share: requests, a tiny tokenizer, the stand-in server."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
