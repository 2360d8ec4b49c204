"""Small generations as `generate` writes them: prompts whose middle the output copies, with changes."""

import json
from pathlib import Path

import numpy as np

INFO = {
    "schema_version": 1,
    "generation_id": "0123456789ab",
    "workload": "mine",
    "workload_source": "a test",
    "workload_dropped": {},
    "model": "tiny",
    "checkpoint": "org/Tiny-1B",
    "model_fingerprint": "weights",
    "model_source": None,
    "tokenizer_sha256": "tokenizer",
    "vocab_size": 1000,
    "engine": {},
    "fidelity": "cpu",
    "sampling": {"temperature": 0.0},
    "refused": {},
    "provenance": {},
}


def write_generation(folder: Path, *, num_requests: int = 40, copies: bool = True, **changes) -> Path:
    """A generation of `num_requests`; `changes` replace values of its description."""
    folder.mkdir()
    rng = np.random.default_rng(num_requests)
    info = {**INFO, "num_requests": num_requests, **changes}
    lines = []
    for index in range(num_requests):
        prompt = rng.integers(0, 900, 160)
        output = prompt[30:150].copy() if copies else rng.integers(0, 900, 120)
        output[rng.random(120) < 0.04] = 950
        lines.append(
            {
                "request_id": f"r{index}",
                "workload": info["workload"],
                "part": "all",
                "category": ("code", "chat")[index % 2],
                "prompt_token_ids": prompt.tolist(),
                "output_token_ids": output.tolist(),
                "prompt": "",
                "output": "",
                "finish_reason": "stop",
                "max_output_tokens": 128,
                "input_program": None,
                "request_sha256": "0",
            }
        )
    (folder / "outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "generation.json").write_text(json.dumps(info), encoding="utf-8")
    return folder
