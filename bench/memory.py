"""Device memory that drafting and selection add to a server, counted from the plugin's own allocations.

`python bench/memory.py [--requests 128] [--max-model-len 32768]`. The buffers are allocated on PyTorch's meta device,
with the block size of a GPU: the bytes are exact and need neither a GPU nor the memory. Exit status 1 above the limit.
Left out: two vectors under 1 kB that speculator and budget sizing keep, and vLLM's own tables of draft slots, wider at
15 slots than at 7. The token table is vLLM's own; the scan needs it in device memory instead of mapped host memory, so
it is stated, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # before Triton is imported: the interpreter's blocks are larger
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from hybrid_spark.vllm_plugin.chains import ChainSelector
from hybrid_spark.vllm_plugin.config import PluginConfig

LIMIT_BYTES = 64_000_000
"""For 128 requests, without the token table and without probabilistic drafting."""


def count(num_requests: int, max_model_len: int, *, record_steps: bool) -> tuple[dict[str, int], int]:
    """Bytes of each buffer that a hybrid arm allocates, and of vLLM's token table.

    Args:
        num_requests: vLLM's max_num_seqs.
        max_model_len: tokens of a row of the token table.
        record_steps: whether the step recorder is on, which keeps the chains of two steps.
    """
    table = torch.empty((num_requests, max_model_len), dtype=torch.int32, device="meta")
    states: Any = SimpleNamespace(all_token_ids=SimpleNamespace(gpu=table), max_num_reqs=num_requests)
    config = PluginConfig(
        arm="memory",
        proof_dir="unused",
        drafter="hybrid",
        verification="adaptive",
        coefficients="Qwen3-4B",
        record_steps="unused" if record_steps else "",
    )
    selector = ChainSelector(config, states, num_requests, torch.device("meta"))
    held = {name: value for name, value in vars(selector).items() if name != "req_states"}
    return dict(_tensors("", held, set())), table.nbytes


def _tensors(name: str, value: Any, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Each tensor under a value once, by its path."""
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value.nbytes
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(f"{name}.{key}".lstrip("."), item, seen)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _tensors(f"{name}[{index}]", item, seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, PluginConfig):
        for field in dataclasses.fields(value):
            yield from _tensors(f"{name}.{field.name}", getattr(value, field.name), seen)


def main(argv: list[str] | None = None) -> int:
    """Print the bytes; return 1 if they exceed the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=128, help="requests in a batch at most")
    parser.add_argument("--max-model-len", type=int, default=32_768, help="tokens of a context at most")
    options = parser.parse_args(argv)
    print(f"device memory added for {options.requests} requests of up to {options.max_model_len:,} tokens, bytes")
    totals = {}
    for record_steps in (False, True):
        buffers, table_bytes = count(options.requests, options.max_model_len, record_steps=record_steps)
        totals[record_steps] = sum(buffers.values())
        if not record_steps:
            for name, num_bytes in buffers.items():
                print(f"{num_bytes:>14,}  {name}")
    print(f"{totals[False]:>14,}  in all; {totals[True]:,} while steps are recorded; at most {LIMIT_BYTES:,}")
    print(f"{table_bytes:>14,}  vLLM's token table, in device memory instead of mapped host memory")
    if max(totals.values()) > LIMIT_BYTES:
        print(f"error: over the limit of {LIMIT_BYTES:,} bytes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
