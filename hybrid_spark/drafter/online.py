"""Acceptance in a running vLLM server that drafts with the exported drafter: prompts in, its own counters out.

With step records (the plugin's ``record_steps``, policy ``never_select``, one request at a time) also how well the
served confidences were calibrated: a step's survivals are what the slots were allocated by, and the context grows by
the accepted tokens plus one.
"""

import itertools
import json
import re
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hybrid_spark.drafter.confidence import area_under_curve, expected_calibration_error

__all__ = ["calibration_online", "judged_slots", "measure_online", "parse_counters"]

_POSITIONS = 3
_RECORDER_S = 3.0
"""An idle server's recorder writes what it still holds within this time."""
_TIMEOUT_S = 600
_PER_POSITION = re.compile(r'^vllm:spec_decode_num_accepted_tokens_per_pos_total\{.*position="(\d+)".*\} (\S+)$')
_DRAFTS = re.compile(r"^vllm:spec_decode_num_drafts_total(?:\{.*\})? (\S+)$")


def parse_counters(metrics: str) -> tuple[float, dict[int, float]]:
    """Drafts and accepted tokens by position from the text of ``/metrics``.

    Raises:
        ValueError: The server has no such counters: it does not speculate.
    """
    drafts: float | None = None
    accepted: dict[int, float] = {}
    for line in metrics.splitlines():
        if match := _DRAFTS.match(line):
            drafts = (drafts or 0.0) + float(match[1])
        elif match := _PER_POSITION.match(line):
            accepted[int(match[1])] = accepted.get(int(match[1]), 0.0) + float(match[2])
    if drafts is None or not accepted:
        raise ValueError("the server has no speculative decoding counters; start it with --speculative-config.")
    return drafts, accepted


def measure_online(
    url: str, prompts: Sequence[Sequence[int]], *, max_output_tokens: int = 96, num_concurrent: int = 8
) -> dict[str, Any]:
    """Complete ``prompts`` (token ids) greedily and return what the server's counters gained meanwhile.

    Args:
        url: Root of the server, for example ``http://127.0.0.1:8000``; nothing else may use it meanwhile.
        prompts: Token ids, chat template applied.
        max_output_tokens: Of each completion.
        num_concurrent: Requests in flight.

    Raises:
        ValueError: The server does not speculate, or made no draft.
        OSError: It cannot be reached.
    """
    root = url.rstrip("/")
    model = json.loads(_get(f"{root}/v1/models"))["data"][0]["id"]
    before_drafts, before = parse_counters(_get(f"{root}/metrics"))

    def complete(prompt: Sequence[int]) -> None:
        body = {"model": model, "prompt": list(prompt), "temperature": 0, "max_tokens": max_output_tokens}
        request = urllib.request.Request(
            f"{root}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:
            reply.read()

    with ThreadPoolExecutor(num_concurrent) as pool:
        list(pool.map(complete, prompts))
    after_drafts, after = parse_counters(_get(f"{root}/metrics"))
    num_drafts = after_drafts - before_drafts
    if not num_drafts:
        raise ValueError("the server made no draft for these prompts.")
    gained = {position: after[position] - before.get(position, 0.0) for position in sorted(after)}
    return {
        "num_drafts": int(num_drafts),
        "num_prompts": len(prompts),
        "acceptance": [gained.get(position, 0.0) / num_drafts for position in range(_POSITIONS)],
        "acceptance_length": 1 + sum(gained.values()) / num_drafts,
    }


def calibration_online(folder: Path) -> dict[str, Any]:
    """Expected calibration error and AUC of the confidences that a server served, from its step records.

    Raises:
        ValueError: The records hold no verified slot.
    """
    time.sleep(_RECORDER_S)
    confidence, accepted = judged_slots(folder)
    return {
        "num_slots": len(confidence),
        "calibration_error": expected_calibration_error(confidence, accepted),
        "auc": area_under_curve(confidence, accepted),
    }


def judged_slots(folder: Path) -> tuple[Tensor, Tensor]:
    """Conditional confidence float32[M] and acceptance bool[M] of the slots that were verified and reached.

    Args:
        folder: The plugin's ``record_steps`` folder of a server that served one request at a time.

    Raises:
        ValueError: A step has more than one request, or no slot was verified.
    """
    import pyarrow.parquet as pq

    steps = [row for path in folder.glob("steps-*.parquet") for row in pq.read_table(path).to_pylist()]
    steps.sort(key=lambda row: row["step"])
    confidence: list[float] = []
    accepted: list[bool] = []
    for step, following in itertools.pairwise(steps):
        if step["num_requests"] != 1:
            raise ValueError(f"{folder}: a step has {step['num_requests']} requests; serve one at a time.")
        num_verified = min(step["num_slots"], step["length"][0])
        num_accepted = following["num_context_tokens"] - step["num_context_tokens"] - 1
        same_request = following["step"] == step["step"] + 1 and 0 <= num_accepted <= num_verified
        if step["num_passes"][0] == 0 or not same_request:
            continue
        survival = np.array([1.0, *step["fresh"]])
        reached = range(min(num_verified, num_accepted + 1))
        confidence += [survival[slot + 1] / survival[slot] if survival[slot] > 0 else 0.0 for slot in reached]
        accepted += [slot < num_accepted for slot in reached]
    if not confidence:
        raise ValueError(f"{folder} holds no step that verified a draft token.")
    return torch.tensor(confidence), torch.tensor(accepted)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
        text: str = reply.read().decode()
    return text
