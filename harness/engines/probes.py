"""Questions to a running server over HTTP, and what its metrics and log say."""

import http.client
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

__all__ = [
    "ProbeError",
    "complete_chat",
    "counters_delta",
    "get",
    "logged_config",
    "parse_metrics",
    "post_json",
    "served_models",
    "tail",
]

# Our own server is asked directly, whatever proxy the machine uses.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_COUNTERS = {
    "vllm:spec_decode_num_drafts_total": "num_drafts",
    "vllm:spec_decode_num_draft_tokens_total": "num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "num_accepted_tokens",
    "vllm:generation_tokens_total": "num_generation_tokens",
    "vllm:prompt_tokens_total": "num_prompt_tokens",
    "vllm:num_preemptions_total": "num_preemptions",
    "vllm:request_success_total": "num_requests_succeeded",
    "vllm:prefix_cache_queries_total": "num_prefix_cache_queries",
    "vllm:prefix_cache_hits_total": "num_prefix_cache_hits",
}
_GAUGES = {"vllm:num_requests_running": "num_requests_running", "vllm:num_requests_waiting": "num_requests_waiting"}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
PER_POSITION_KEY = "num_accepted_tokens_per_position"
_CONFIG_LINE = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]*)\) with config: (?P<config>.*)")
_MAX_NUM_SEQS = re.compile(r"non-default args: \{.*'max_num_seqs': (\d+)")


class ProbeError(Exception):
    """A server did not answer, or answered with an error.

    Args:
        message: What it said.
        status: HTTP status, if it answered.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


def get(url: str, *, timeout_s: float) -> str:
    """Return the body of a GET.

    Raises:
        ProbeError: No answer in time, or an HTTP error.
    """
    return _request(urllib.request.Request(url), timeout_s)


def served_models(base_url: str, *, timeout_s: float) -> list[str]:
    """Return the names under which a server offers its model."""
    try:
        return [str(entry["id"]) for entry in json.loads(get(f"{base_url}/v1/models", timeout_s=timeout_s))["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError(f"/v1/models answered something else than a list of models ({error!r})") from error


def complete_chat(base_url: str, model: str, *, timeout_s: float, max_tokens: int = 4) -> int:
    """Let the server complete one short chat.

    Returns:
        Output tokens, at least 1.

    Raises:
        ProbeError: It refused, or generated nothing.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say yes."}],
        "max_tokens": max_tokens,
        "temperature": 0.0,
    }
    answer = post_json(f"{base_url}/v1/chat/completions", body, timeout_s=timeout_s)
    try:
        num_tokens = int(answer["usage"]["completion_tokens"])
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError(f"the first chat completion came without usage ({error!r})") from error
    if num_tokens < 1:
        raise ProbeError("the first chat completion generated no token")
    return num_tokens


def post_json(url: str, body: dict[str, Any], *, timeout_s: float) -> Any:
    """Return the JSON that a POST of JSON is answered with.

    Raises:
        ProbeError: No answer in time, an HTTP error, or an answer that is not JSON.
    """
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    text = _request(request, timeout_s)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ProbeError(f"{request.selector} answered something else than JSON ({error})") from error


def parse_metrics(text: str) -> dict[str, Any]:
    """Read the counters that a record needs from Prometheus text, summed over the server's engines.

    Returns:
        Counter -> value; speculative ones are None on a server that does not speculate. `enable_prefix_caching` is
        the value in the server's own cache configuration.
    """
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, Any] = dict.fromkeys((*_COUNTERS.values(), *_GAUGES.values()))
    values[PER_POSITION_KEY] = None
    values["enable_prefix_caching"] = None
    per_position: dict[int, int] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = _COUNTERS.get(sample.name) or _GAUGES.get(sample.name)
            if key is not None:
                values[key] = (values[key] or 0) + int(sample.value)
            elif sample.name == _PER_POSITION:
                position = int(sample.labels["position"])
                per_position[position] = per_position.get(position, 0) + int(sample.value)
            elif sample.name == "vllm:cache_config_info":
                values["enable_prefix_caching"] = sample.labels.get("enable_prefix_caching")
    if per_position:
        values[PER_POSITION_KEY] = [per_position.get(i, 0) for i in range(max(per_position) + 1)]
    return values


def counters_delta(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return how far each counter moved between two snapshots; None where the server has no such counter."""
    delta: dict[str, Any] = {
        key: None if after[key] is None else after[key] - (before[key] or 0) for key in _COUNTERS.values()
    }
    new, old = after[PER_POSITION_KEY], before[PER_POSITION_KEY] or []
    delta[PER_POSITION_KEY] = None if new is None else [n - (old[i] if i < len(old) else 0) for i, n in enumerate(new)]
    return delta


def logged_config(log: str) -> dict[str, str]:
    """Return what vLLM logged about its own final configuration, the last start in the log.

    Returns:
        Plain values of its configuration line by name, `vllm_version`, and `max_num_seqs` from its list of
        arguments; empty if the log has no such line.
    """
    found: dict[str, str] = {}
    lines = [match for line in log.splitlines() if (match := _CONFIG_LINE.search(line))]
    if lines:
        # Plain values only: nested configurations repeat some names, and stand in parentheses or braces.
        flat = _without_nested(lines[-1]["config"])
        found = dict(re.findall(r"(?:^|, )(\w+)=('[^']*'|[^,]*)", flat))
        found = {key: value.strip("'") for key, value in found.items()}
        found["vllm_version"] = lines[-1]["version"]
    arguments = _MAX_NUM_SEQS.findall(log)
    if arguments:
        found["max_num_seqs"] = arguments[-1]
    return found


def tail(path: Path, num_lines: int) -> str:
    """Return the last lines of a file, or "" if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 1000 * num_lines))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-num_lines:])


def _without_nested(text: str) -> str:
    depth = 0
    kept = []
    for character in text:
        depth -= character in ")}]"
        if depth == 0:
            kept.append(character)
        depth += character in "({["
    return "".join(kept)


def _request(request: urllib.request.Request, timeout_s: float) -> str:
    path = request.selector
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            return str(response.read().decode("utf-8", errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            body = error.read(500).decode("utf-8", errors="replace")
        raise ProbeError(f"{path} answered {error.code}: {body}".rstrip(": "), status=error.code) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ProbeError(f"{path} did not answer ({reason})") from error
