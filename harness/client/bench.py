"""One `vllm bench serve` run over a list of requests: its command line, its dataset file, its result."""

import dataclasses
import json
import math
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.client.process import ClientError, ClientProcess
from harness.schema import RequestRecord
from workloads import Request

__all__ = ["BenchClient", "BenchResult", "bench_argv", "parse_result", "write_dataset"]


@dataclasses.dataclass(kw_only=True, slots=True)
class BenchResult:
    """What the client measured.

    Args:
        duration_s: From the first request sent to the last response received; null when nothing completed.
        num_prompt_tokens: Sum of `usage.prompt_tokens` over completed requests.
        num_output_tokens: Sum of `usage.completion_tokens` over completed requests.
        requests: One entry a request, in the order they were given.
        first_error: Message of the first request that failed.
    """

    num_completed: int
    num_failed: int
    duration_s: float | None
    num_prompt_tokens: int | None
    num_output_tokens: int | None
    median_ttft_ms: float | None
    median_tpot_ms: float | None
    median_e2el_ms: float | None
    requests: list[RequestRecord]
    first_error: str | None = None


class BenchClient(ClientProcess):
    """Runs vLLM's `bench serve` in a warm subprocess."""

    def run(
        self,
        requests: Sequence[Request],
        *,
        segment: str,
        base_url: str,
        model_name: str,
        model_path: str,
        batch_size: int,
        temperature: float,
        seed: int,
        chat_template_kwargs: dict[str, Any],
        ignore_eos: bool,
        timeout_s: float,
        work_dir: Path,
        on_progress: Callable[[], None] | None = None,
    ) -> BenchResult:
        """Send requests at a fixed concurrency and measure.

        Args:
            requests: Sent in this order, `batch_size` at a time.
            segment: Name in the request records.
            model_name: As served.
            model_path: Folder or hub id of the tokenizer.
            batch_size: Concurrent requests.
            temperature: Sampling temperature; 0 is greedy.
            seed: Seed of the dataset order; when sampling, request i is drawn with seed `seed * 1_000_003 + i`.
            chat_template_kwargs: Passed to the server's chat template.
            ignore_eos: Generate up to the limit.
            timeout_s: Bound of the run; past it the client is killed.
            work_dir: Where the dataset and the result are written for the time of the run.
            on_progress: Called about twice a second; whatever it raises ends the run and is passed on.

        Raises:
            ClientError: The client died, ran out of time, refused the run, or left no readable result.
        """
        stem = f"bench-{uuid.uuid4().hex[:8]}"
        dataset, result = work_dir / f"{stem}.jsonl", work_dir / f"{stem}-result.json"
        write_dataset(dataset, requests, seed=seed if temperature > 0 else None)
        argv = bench_argv(
            dataset=dataset,
            result=result,
            num_prompts=len(requests),
            base_url=base_url,
            model_name=model_name,
            model_path=model_path,
            batch_size=batch_size,
            temperature=temperature,
            seed=seed,
            chat_template_kwargs=chat_template_kwargs,
            ignore_eos=ignore_eos,
            request_id_prefix=f"{stem}-",
        )
        try:
            command = {"op": "bench", "argv": argv, "requests_file": str(dataset)}
            self.ask(command, timeout_s=timeout_s, on_progress=on_progress)
            try:
                raw = json.loads(result.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ClientError(f"bench serve left no readable result ({error})") from error
        finally:
            dataset.unlink(missing_ok=True)
            result.unlink(missing_ok=True)
        return parse_result(raw, requests, segment=segment)

    def template_ids(
        self, messages: list[dict[str, str]], *, model_path: str, chat_template_kwargs: dict[str, Any], timeout_s: float
    ) -> tuple[list[int], int | None]:
        """Prompt token ids by the tokenizer's own chat template, and its beginning-of-sequence id.

        Raises:
            ClientError: The tokenizer cannot be loaded or has no chat template.
        """
        command = {
            "op": "template",
            "tokenizer": model_path,
            "messages": messages,
            "chat_template_kwargs": chat_template_kwargs,
        }
        value = self.ask(command, timeout_s=timeout_s)
        return value["token_ids"], value["bos_token_id"]


def bench_argv(
    *,
    dataset: Path,
    result: Path,
    num_prompts: int,
    base_url: str,
    model_name: str,
    model_path: str,
    batch_size: int,
    temperature: float,
    seed: int,
    chat_template_kwargs: dict[str, Any],
    ignore_eos: bool,
    request_id_prefix: str,
) -> list[str]:
    """The arguments of `vllm bench serve` (the same in 0.32 and 0.33).

    The server applies the chat template, so the client must not (`--skip-chat-template`), and the file's order is the
    order of the plan (`--disable-shuffle --no-oversample`).
    """
    argv = [
        "--backend=openai-chat",
        "--endpoint=/v1/chat/completions",
        f"--base-url={base_url}",
        f"--model={model_name}",
        f"--tokenizer={model_path}",
        "--dataset-name=custom",
        f"--dataset-path={dataset}",
        "--custom-output-len=-1",
        "--skip-chat-template",
        "--disable-shuffle",
        "--no-oversample",
        f"--num-prompts={num_prompts}",
        f"--max-concurrency={batch_size}",
        f"--temperature={temperature}",
        f"--seed={seed}",
        f"--request-id-prefix={request_id_prefix}",
        "--percentile-metrics=ttft,tpot,itl,e2el",
        "--save-result",
        "--save-detailed",
        f"--result-dir={result.parent}",
        f"--result-filename={result.name}",
        "--disable-tqdm",
    ]
    if chat_template_kwargs:
        argv.append(f"--extra-body={json.dumps({'chat_template_kwargs': chat_template_kwargs})}")
    if ignore_eos:
        argv.append("--ignore-eos")
    return argv


def write_dataset(path: Path, requests: Sequence[Request], *, seed: int | None) -> None:
    """Write the JSONL that `--dataset-name custom` reads, with the whole conversation in a column of its own.

    Args:
        seed: Base of the requests' sampling seeds; None sends none.
    """
    with path.open("w", encoding="utf-8") as file:
        for index, request in enumerate(requests):
            # Only sizes vLLM's first estimate of the prompt, which `usage` replaces; the role keeps pandas from
            # reading a column of digits as numbers.
            prompt = "\n".join(f"{message['role']}: {message['content']}" for message in request.messages)
            line: dict[str, Any] = {
                "prompt": prompt,
                "output_tokens": request.max_output_tokens,
                "messages": request.messages,
            }
            if seed is not None:
                line["seed"] = (seed * 1_000_003 + index) % (1 << 31)
            file.write(json.dumps(line) + "\n")


def parse_result(raw: dict[str, Any], requests: Sequence[Request], *, segment: str) -> BenchResult:
    """Read the detailed result of `bench serve`.

    Args:
        raw: The result file's content. Its per-request lists are in the order of the dataset.
        requests: What was sent, in order.
        segment: Name in the request records.

    Raises:
        ClientError: A field is missing, or a list has another length than the requests.
    """
    names = ("input_lens", "output_lens", "ttfts", "latencies", "generated_texts", "errors")
    try:
        columns = [raw[name] for name in names]
        duration_s, num_completed, num_failed = float(raw["duration"]), int(raw["completed"]), int(raw["failed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ClientError(f"the result of bench serve cannot be read ({type(error).__name__}: {error})") from error
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(requests):
            raise ClientError(f"bench serve reported {len(column)} {name} for {len(requests)} requests")
    if num_completed + num_failed != len(requests):
        raise ClientError(f"bench serve reported {num_completed} completed and {num_failed} failed of {len(requests)}")
    records = [
        _request_record(request, index, segment, values)
        for index, (request, values) in enumerate(zip(requests, zip(*columns, strict=True), strict=True))
    ]
    completed = [record for record in records if record.success]
    if len(completed) != num_completed:
        raise ClientError(f"bench serve counted {num_completed} completed requests, but {len(completed)} without error")
    return BenchResult(
        num_completed=num_completed,
        num_failed=num_failed,
        duration_s=duration_s if completed else None,
        num_prompt_tokens=sum(r.num_prompt_tokens or 0 for r in completed) if completed else None,
        num_output_tokens=sum(r.num_output_tokens or 0 for r in completed) if completed else None,
        median_ttft_ms=_median(raw, "median_ttft_ms", bool(completed)),
        # vLLM averages over requests with two tokens or more
        median_tpot_ms=_median(raw, "median_tpot_ms", any((r.num_output_tokens or 0) > 1 for r in completed)),
        median_e2el_ms=_median(raw, "median_e2el_ms", bool(completed)),
        requests=records,
        first_error=next((record.error for record in records if not record.success), None),
    )


def _request_record(request: Request, index: int, segment: str, values: Sequence[Any]) -> RequestRecord:
    input_len, output_len, ttft_s, latency_s, text, error = values
    success = not error
    return RequestRecord(
        segment=segment,
        index=index,
        id=request.id,
        success=success,
        num_prompt_tokens=int(input_len) if success else None,
        num_output_tokens=int(output_len) if success else None,
        ttft_ms=ttft_s * 1000 if success else None,
        e2el_ms=latency_s * 1000 if success else None,
        text=text if success else None,
        error=_last_line(error) if error else None,
    )


def _last_line(error: str) -> str:
    """The message of a traceback, which is what vLLM reports for a broken connection."""
    lines = [line for line in error.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else error


def _median(raw: dict[str, Any], name: str, measured: bool) -> float | None:
    value = raw.get(name)
    return float(value) if measured and value is not None and math.isfinite(value) else None
