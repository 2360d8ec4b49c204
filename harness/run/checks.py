"""What must hold before and after a measurement for its numbers to mean what they say."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any

from harness.client.bench import BenchClient, BenchResult
from harness.config.schema import Drafter
from harness.errors import EngineError
from harness.plan import Cell
from workloads import Request

__all__ = [
    "CheckError",
    "check_drafting",
    "check_prompt_ids",
    "check_requests",
    "check_speculation",
    "check_tokens",
    "notes_on_outputs",
]

# Our own server is asked directly, whatever proxy the machine uses.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TIMEOUT_S = 300.0
_MAX_SHAPES = 3
MIN_TOKENS_FOR_DRAFTS = 256
"""Output tokens after which an arm that speculates but never drafted is broken rather than unlucky."""


class CheckError(EngineError):
    """A measurement contradicts itself or the plan."""


def check_prompt_ids(cell: Cell, client: BenchClient, *, base_url: str, model_path: str) -> dict[str, Any]:
    """Compare the prompt that the server builds with the tokenizer's own chat template, for each shape of conversation.

    Catches a template applied twice or not at all, a doubled beginning-of-sequence token, another tokenizer or other
    template arguments, and a server whose `usage` counts something else.

    Returns:
        For the record: prompts compared and their tokens.

    Raises:
        CheckError: They differ.
        ClientError: The tokenizer has no template.
    """
    lengths = []
    for request in _shapes(r for segment in cell.segments for r in segment.requests):
        answer = _complete(base_url, cell, request)
        served, counted = answer.get("prompt_token_ids"), (answer.get("usage") or {}).get("prompt_tokens")
        own, bos = client.template_ids(
            request.messages,
            model_path=model_path,
            chat_template_kwargs=cell.model.chat_template_kwargs,
            timeout_s=_TIMEOUT_S,
        )
        what = f"Request {request.id}"
        if not isinstance(served, list) or not isinstance(counted, int):
            raise CheckError(f"{what}: the server returned no prompt token ids or no usage.", stage="verify")
        if bos is not None and served[:2] == [bos, bos]:
            raise CheckError(
                f"{what}: the prompt begins with two beginning-of-sequence tokens ({bos}): the chat template is "
                "applied to a prompt that has one already.",
                stage="verify",
            )
        if served != own:
            at = next(
                (i for i, (a, b) in enumerate(zip(served, own, strict=False)) if a != b), min(map(len, (served, own)))
            )
            raise CheckError(
                f"{what}: the server's prompt has {len(served)} tokens and the tokenizer's own chat template gives "
                f"{len(own)}; they differ from position {at}: {served[at : at + 5]} against {own[at : at + 5]}. "
                "Check model.chat_template_kwargs and the chat template.",
                stage="verify",
            )
        if counted != len(served):
            raise CheckError(
                f"{what}: the server's usage counts {counted} prompt tokens, and the prompt has {len(served)}.",
                stage="verify",
            )
        lengths.append(counted)
    return {"num_prompts_compared": len(lengths), "num_prompt_tokens": lengths}


def check_speculation(cell: Cell, counters: dict[str, Any]) -> None:
    """After the warm-up: the server speculates exactly if the arm does.

    Raises:
        CheckError: It does not.
    """
    speculates, counts = cell.arm.drafter is not Drafter.none, counters["num_drafts"] is not None
    if speculates and not counts:
        raise CheckError(
            f"Arm {cell.arm.name} speculates, but the server has no speculative decoding counters.", stage="warmup"
        )
    if counts and not speculates:
        raise CheckError(
            f"Arm {cell.arm.name} must not speculate, but the server counts {counters['num_drafts']} drafts.",
            stage="warmup",
        )


def check_drafting(cell: Cell, counters: dict[str, Any], *, num_output_tokens: int) -> None:
    """After the last segment: an arm that speculates has drafted at least once.

    A short run may hold no repetition that an n-gram could match, so only a long one is held against the arm.

    Args:
        counters: The server's totals since it started.
        num_output_tokens: Output tokens of all segments.

    Raises:
        CheckError: It never did.
    """
    if cell.arm.drafter is Drafter.none or counters["num_drafts"] or num_output_tokens < MIN_TOKENS_FOR_DRAFTS:
        return
    raise CheckError(
        f"Arm {cell.arm.name} speculates, but no draft was made over {num_output_tokens} output tokens.",
        stage="measure",
    )


def check_requests(cell: Cell, result: BenchResult, *, what: str, stage: str) -> list[str]:
    """All requests completed, or no more failed than the configuration tolerates.

    Returns:
        Notes: what failed within the tolerance.

    Raises:
        CheckError: Too many failed.
    """
    total = result.num_completed + result.num_failed
    if result.num_failed == 0 and total > 0:
        return []
    failed = f"{result.num_failed} of {total} requests failed, the first with: {result.first_error}"
    if result.num_completed == 0:
        raise CheckError(f"{what}: no request completed: {failed}.", stage=stage)
    if result.num_failed / total > cell.client.max_failed_fraction:
        raise CheckError(
            f"{what}: {failed}. client.max_failed_fraction is {cell.client.max_failed_fraction:g}.", stage=stage
        )
    return [failed]


def check_tokens(
    cell: Cell, requests: Sequence[Request], result: BenchResult, delta: dict[str, Any], *, what: str
) -> None:
    """The server's own counters agree with what the responses reported.

    Args:
        delta: How far the server's counters moved over the segment.

    Raises:
        CheckError: Cached prefixes were used, or tokens are missing or left over.
    """
    if delta["num_prefix_cache_hits"]:
        raise CheckError(
            f"{what}: {delta['num_prefix_cache_hits']} prompt tokens came from the prefix cache, which must be off.",
            stage="measure",
        )
    served, reported = delta["num_generation_tokens"], result.num_output_tokens or 0
    if served is None:
        raise CheckError(f"{what}: the server does not count its output tokens.", stage="measure")
    # A request that failed may have been generated in part.
    limits = [r.max_output_tokens for r, record in zip(requests, result.requests, strict=True) if not record.success]
    if not reported <= served <= reported + sum(limits):
        raise CheckError(
            f"{what}: the responses' usage adds up to {reported} output tokens, and the server counted {served}.",
            stage="measure",
        )


def notes_on_outputs(cell: Cell, requests: Sequence[Request], result: BenchResult, delta: dict[str, Any]) -> list[str]:
    """Return what a reader should know about a segment's outputs: implausibly short or cut-off ones, no draft made."""
    notes = []
    lengths = [r.num_output_tokens or 0 for r in result.requests if r.success]
    limits = [r.max_output_tokens for r, record in zip(requests, result.requests, strict=True) if record.success]
    mean, mean_limit = sum(lengths) / len(lengths), sum(limits) / len(limits)
    if mean < cell.client.min_output_fraction * mean_limit or (max(lengths) == 1 and mean_limit > 1):
        notes.append(f"implausibly short outputs: {mean:.1f} tokens on average, with a limit of {mean_limit:.0f}")
    # vLLM lowers a limit that the context has no room for without saying so.
    room = [cell.model.max_model_len - (r.num_prompt_tokens or 0) for r in result.requests if r.success]
    num_cut = sum(left < limit and length >= left for left, limit, length in zip(room, limits, lengths, strict=True))
    if num_cut:
        notes.append(f"{num_cut} outputs were cut off by model.max_model_len={cell.model.max_model_len}")
    if cell.arm.drafter is not Drafter.none and delta["num_drafts"] == 0:
        notes.append("no draft was made")
    return notes


def _shapes(requests: Iterable[Request]) -> list[Request]:
    """The first request of each sequence of roles, a few at most."""
    shapes: dict[tuple[str, ...], Request] = {}
    for request in requests:
        shapes.setdefault(tuple(message["role"] for message in request.messages), request)
    return list(shapes.values())[:_MAX_SHAPES]


def _complete(base_url: str, cell: Cell, request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": cell.model.name,
        "messages": request.messages,
        "max_completion_tokens": 1,
        "temperature": 0.0,
        "return_token_ids": True,
    }
    if cell.model.chat_template_kwargs:
        body["chat_template_kwargs"] = cell.model.chat_template_kwargs
    url = f"{base_url}/v1/chat/completions"
    post = urllib.request.Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    try:
        with _OPENER.open(post, timeout=_TIMEOUT_S) as response:
            answer = json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(500).decode("utf-8", "replace")
        raise CheckError(f"Request {request.id} was refused with {error.code}: {detail}", stage="verify") from error
    except (OSError, ValueError) as error:
        raise CheckError(f"Request {request.id} was not answered ({error}).", stage="verify") from error
    if not isinstance(answer, dict):
        raise CheckError(f"Request {request.id}: the answer is no chat completion.", stage="verify")
    return answer
