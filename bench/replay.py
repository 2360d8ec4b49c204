"""Labels by replay against rescanning each prefix with the NumPy reference (Section 4.2).

`python bench/replay.py [--prompt 8192] [--output 512] [--repeats 9]`. One core. The replay's steps are first compared
with `reference.scan` on every prefix that the decoder visits; nothing is reported if one differs. "each prefix" rescans
all prefixes from the first output token on, as a label for every position of the output needs; "visited" only those
that a decoder visits, far fewer where it copies: both are extrapolated from evenly spaced ones where they are many.
Exit status 1 below 1 million context tokens a second, or below 100 times as fast as rescanning each prefix.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from hybrid_spark import reference
from hybrid_spark.calibration import Replay, replay

LEAST_TOK_S = 1e6
LEAST_RATIO = 100.0
_MAX_SCANS = 12
"""Reference scans timed per context; the worst context takes seconds for one."""

Context = tuple[NDArray[np.int64], NDArray[np.int64]]


def make_contexts(num_prompt: int, num_output: int) -> dict[str, Context]:
    """Prompt and output by kind, from the common cases to the worst ones."""
    rng = np.random.default_rng(0)
    # Token frequencies of text and code fall about as 1/rank.
    frequency = 1.0 / np.arange(1, 20_001)
    prompt = rng.choice(20_000, size=num_prompt, p=frequency / frequency.sum())
    start = int(rng.integers(0, max(num_prompt - num_output, 1)))

    def edited(rate: float) -> NDArray[np.int64]:
        output = np.resize(prompt[start : start + num_output], num_output)
        changed = rng.random(num_output) < rate
        output[changed] = rng.integers(0, 20_000, int(changed.sum()))
        return output

    period = rng.integers(0, 20_000, 40)
    total = num_prompt + num_output
    return {
        "edit, 2% changed": (prompt, edited(0.02)),
        "edit, 10% changed": (prompt, edited(0.10)),
        "no repeats": (prompt, edited(1.0)),
        "period 40": (np.resize(period, total)[:num_prompt], np.resize(period, total)[num_prompt:]),
        "all equal": (np.full(num_prompt, 7), np.full(num_output, 7)),
    }


def check(context: Context, steps: Replay) -> None:
    """Stop if a step differs from the reference's scan of that prefix."""
    ids = np.concatenate(context).tolist()
    chosen = _spaced(steps.context_length)
    for index in np.flatnonzero(np.isin(steps.context_length, chosen)).tolist():
        length = int(steps.context_length[index])
        match = reference.scan(ids[:length])
        known = ids[length : length + len(match.tokens)]
        wrong = [k for k, token in enumerate(known) if token != match.tokens[k]]
        expected = (match.match_length, match.agreement, match.copy_length, wrong[0] if wrong else len(known))
        columns = (steps.match_length, steps.agreement, steps.copy_length, steps.num_accepted)
        found = tuple(int(column[index]) for column in columns)
        if found != expected:
            sys.exit(f"error: at {length} tokens the replay finds {found}, the reference {expected}; nothing reported.")


def rescan_s(context: Context, lengths: NDArray[np.int64]) -> float:
    """Seconds to scan the prefixes of these lengths with the reference, extrapolated from evenly spaced ones."""
    ids = np.concatenate(context).tolist()
    chosen = _spaced(lengths).tolist()
    started = time.process_time()
    for length in chosen:
        reference.scan(ids[:length])
    return (time.process_time() - started) * len(lengths) / len(chosen)


def replay_s(context: Context, repeats: int) -> float:
    """Median CPU seconds of a replay, after one to warm up."""
    replay(*context)
    times = []
    for _ in range(repeats):
        started = time.process_time()
        replay(*context)
        times.append(time.process_time() - started)
    return float(np.median(times))


def peak_bytes_per_token(context: Context) -> float:
    """Peak of the allocations of one replay, per context token."""
    tracemalloc.start()
    replay(*context)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / sum(map(len, context))


def _spaced(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return lengths[np.unique(np.linspace(0, len(lengths) - 1, min(_MAX_SCANS, len(lengths))).astype(np.int64))]


def main(argv: list[str] | None = None) -> int:
    """Check, time and print; return 1 below the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=8192, help="tokens of the prompt")
    parser.add_argument("--output", type=int, default=512, help="tokens of the output")
    parser.add_argument("--repeats", type=int, default=9, help="timed replays per median")
    options = parser.parse_args(argv)
    print(f"replay of {options.output} output tokens after {options.prompt:,} prompt tokens; CPU time, one core")
    header = ("context", "steps", "replay ms", "Mtok/s", "x each prefix", "x visited", "bytes/tok", "at half")
    print(f"{header[0]:>18}" + ("{:>14}" * (len(header) - 1)).format(*header[1:]))
    missed = []
    halves = make_contexts(options.prompt // 2, options.output)
    for kind, context in make_contexts(options.prompt, options.output).items():
        steps = replay(*context)
        check(context, steps)
        seconds = replay_s(context, options.repeats)
        tok_s = sum(map(len, context)) / seconds
        every = np.arange(len(context[0]) + 1, len(context[0]) + len(context[1]))
        ratios = [rescan_s(context, lengths) / seconds for lengths in (every, steps.context_length)]
        memory = [peak_bytes_per_token(item) for item in (context, halves[kind])]
        cells = (1e3 * seconds, tok_s / 1e6, *ratios, *memory)
        print(f"{kind:>18}{len(steps.num_graded):>14,}" + "".join(f"{cell:>14,.2f}" for cell in cells))
        if tok_s < LEAST_TOK_S:
            missed.append(f"{kind}: {tok_s:,.0f} context tokens/s, below {LEAST_TOK_S:,.0f}")
        if ratios[0] < LEAST_RATIO:
            missed.append(f"{kind}: {ratios[0]:.0f} times as fast as rescanning, below {LEAST_RATIO:.0f}")
    for line in missed:
        print(f"error: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
