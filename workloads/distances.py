"""Edit distances of many programs and model outputs at once, on every core and with progress."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from workloads.text import edit_distance, longest_code_block

__all__ = ["output_distance", "output_distances"]

_CHUNK = 50
_MIN_FOR_WORKERS = 200
"""Fewer pairs than this are done before worker processes have started."""


def output_distance(program: str, output: str) -> float | None:
    """Return the edit distance of a program and the longest code block of an output; None where it has none."""
    block = longest_code_block(output)
    return edit_distance(program, block) if block else None


def output_distances(
    pairs: Sequence[tuple[str, str]],
    *,
    num_workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[float | None]:
    """Return `output_distance` of every (program, output).

    Args:
        pairs: Input program and the model's whole answer.
        num_workers: Processes; None takes one a core, and few pairs need none.
        on_progress: Receives (pairs done, pairs in all) from time to time.
    """
    workers = num_workers or min(os.cpu_count() or 1, -(-len(pairs) // _MIN_FOR_WORKERS))
    chunks = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
    results: list[list[float | None]] = [[] for _ in chunks]
    num_done = 0
    if workers <= 1:
        for index, chunk in enumerate(chunks):
            results[index] = _distances(chunk)
            num_done += len(chunk)
            on_progress(num_done, len(pairs))
    else:
        # spawn: a fork would copy the caller's threads' locks.
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            futures = {pool.submit(_distances, chunk): index for index, chunk in enumerate(chunks)}
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                num_done += len(chunks[futures[future]])
                on_progress(num_done, len(pairs))
    return [distance for chunk in results for distance in chunk]


def _distances(pairs: Sequence[tuple[str, str]]) -> list[float | None]:
    return [output_distance(program, output) for program, output in pairs]
