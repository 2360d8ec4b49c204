"""Edit distances of programs and model outputs: `python bench/edit_distance.py [--pairs 4000] [--characters 5000]`.

Measures what `python -m harness buckets` does: the longest code block of each output and its distance to the input
program, on worker processes, with progress. Programs are made up, edited at 0 to 70% as the paper's buckets go. Exit
status 1 above the limit of 20 s for 4,000 pairs of 5,000 characters on 2 processes.
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workloads import output_distances
from workloads.buckets import bucket

LIMIT_S = 20.0
LIMIT_PAIRS, LIMIT_CHARACTERS, LIMIT_WORKERS = 4000, 5000, 2
_WORDS = ("self", "value", "index", "result", "return", "for", "in", "range", "len", "if", "else", "not", "None", "key")


def make_program(rng: random.Random, num_characters: int) -> str:
    """Return lines that look like code, at least `num_characters` of them."""
    lines: list[str] = []
    size = 0
    while size < num_characters:
        words = [*rng.choices(_WORDS, k=rng.randint(2, 9)), str(rng.randrange(10_000))]
        lines.append(" " * rng.choice((0, 4, 8)) + " ".join(words))
        size += len(lines[-1]) + 1
    return "\n".join(lines)


def make_pair(rng: random.Random, num_characters: int) -> tuple[str, str]:
    """Return a program and an answer that holds an edited one, with prose and a shorter block around it."""
    program = make_program(rng, num_characters)
    share = rng.uniform(0.0, 0.8)
    lines = program.split("\n")
    edited = [make_program(rng, len(line)) if rng.random() < share else line for line in lines]
    answer = f"I changed it as you asked:\n\n```\n{lines[0]}\n```\n\nThe file:\n\n```python\n" + "\n".join(edited)
    return program, answer + "\n```\n\nLet me know."


def main(argv: list[str] | None = None) -> int:
    """Print the times; return 1 if they exceed the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=LIMIT_PAIRS)
    parser.add_argument("--characters", type=int, default=LIMIT_CHARACTERS, help="of a program, about")
    parser.add_argument("--workers", type=int, default=LIMIT_WORKERS, help="processes")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="exit with 1 if it takes longer")
    options = parser.parse_args(argv)
    rng = random.Random(0)
    pairs = [make_pair(rng, options.characters) for _ in range(options.pairs)]
    mean = sum(len(program) for program, _ in pairs) / len(pairs)
    print(f"{len(pairs):,} pairs of {mean:,.0f} characters on average, {options.workers} processes of {os.cpu_count()}")
    last_s = start_s = time.perf_counter()

    def progress(done: int, total: int) -> None:
        nonlocal last_s
        now = time.perf_counter()
        if now - last_s >= 1.0 or done == total:
            last_s = now
            print(f"  {done:>6,} of {total:,} after {now - start_s:5.1f} s", flush=True)

    distances = output_distances(pairs, num_workers=options.workers, on_progress=progress)
    duration_s = time.perf_counter() - start_s
    found = [distance for distance in distances if distance is not None]
    buckets = {bucket(distance) for distance in found}
    print(f"{duration_s:.2f} s, {len(pairs) / duration_s:,.0f} pairs a second; {len(buckets)} buckets")
    if len(found) != len(pairs):
        print(f"error: {len(pairs) - len(found)} outputs without a code block", file=sys.stderr)
        return 1
    if duration_s > options.limit_s:
        print(f"error: over the limit of {options.limit_s:g} s", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
