"""Every kernel against its reference, on fresh random inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check, check_problems
from bench.gpu.inputs import Drafts, make_batch, make_drafts
from hybrid_spark import reference
from hybrid_spark.estimator import Coefficients
from hybrid_spark.kernels import ChainSelection, NgramScanOutput, ngram_scan, pack_coefficients, select_chains
from hybrid_spark.policies import Policy

__all__ = ["MODEL", "check_kernels", "expected_chains", "poison", "scan_differences", "selection_differences"]

MODEL = "Qwen3-4B"
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 1e-7
"""For float32 products of up to 15 factors against float64, as in the tests."""
NEAR_TIE = 1e-5
"""Chain values closer than this (relative to the larger one, at least 1) may be told apart either way."""
_SCAN_FIELDS = ("tokens", "num_tokens", "match_length", "agreement", "copy_length")
_CHAIN_FIELDS = ("tokens", "num_tokens", "source", "num_model_tokens")
_POISON = 0x0F0F0F0F
_NUM_SPARE_ROWS = 2
_PRICES = (0.0, 0.05, 0.2, 0.309, 0.7)


def check_kernels(
    rng: np.random.Generator,
    device: torch.device | str,
    num_rows: Sequence[int],
    context_lengths: Sequence[int],
    *,
    num_rounds: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> list[Check]:
    """Compare ngram_scan and select_chains under every policy with their references.

    Args:
        rng: where the inputs come from.
        device: where the kernels run.
        num_rows: batch sizes.
        context_lengths: tokens of a row of the table.
        num_rounds: batches of each size.
        say: takes a line on each size that is done.

    Returns:
        One check a kernel and policy, and one of what the random inputs covered.
    """
    coefficients = Coefficients.load(MODEL)
    packed = pack_coefficients(coefficients, device)
    problems: dict[str, list[str]] = {name: [] for name in ("ngram_scan", *(f"select_chains {p}" for p in Policy))}
    seen: Counter[str] = Counter()
    sizes = [(rows, length) for rows in num_rows for length in context_lengths for _ in range(num_rounds)]
    for rows, max_len in sizes:
        batch = make_batch(rng, rows, max_len, device)
        matches = [reference.scan(context) for context in batch.contexts]
        out = poison(NgramScanOutput.allocate(rows + _NUM_SPARE_ROWS, max_len, device))
        scan = ngram_scan(batch.token_ids, batch.lengths, row_index=batch.row_index, active=batch.active, out=out)
        where = f"{rows} x {max_len}"
        problems["ngram_scan"] += [f"{where}: {text}" for text in scan_differences(out, matches)]
        seen["rows"] += rows
        seen["rows left out"] += int((batch.active == 0).sum())
        seen["rows matched"] += sum(match.match_length > 0 for match in matches)
        seen["drafts cut short"] += sum(0 < len(match.tokens) < 15 for match in matches)
        num_draft, dtype = [(7, torch.int64), (7, torch.int32), (3, torch.int64), (15, torch.int32)][rng.integers(4)]
        drafts = make_drafts(rng, matches, num_draft, device, dtype)
        price = float(rng.choice(_PRICES))
        for policy in Policy:
            chains = poison(ChainSelection.allocate(rows + _NUM_SPARE_ROWS, device, token_dtype=dtype))
            select_chains(policy, drafts.tokens, drafts.confidence, scan, packed, price, out=chains)
            expected, ties = expected_chains(policy, matches, drafts, coefficients, price)
            problems[f"select_chains {policy}"] += [
                f"{where}, K {num_draft}, price {price}: {text}"
                for text in selection_differences(chains, expected, ties)
            ]
            if policy is Policy.PROPOSED:
                seen["n-gram chains kept"] += sum(chain.source == "ngram" for chain in expected)
                seen["DSpark chains kept"] += sum(chain.source == "dspark" for chain in expected)
                seen["near ties skipped"] += sum(ties)
            if policy is Policy.EXTENSION:
                seen["chains extended"] += sum(len(chain.tokens) > num_draft for chain in expected)
        say(f"compared {where}: {seen['rows matched']} of {seen['rows']} rows matched so far")
    checks = [
        check_problems(name, found, f"{seen['rows']} rows equal the reference's") for name, found in problems.items()
    ]
    missing = [name for name, count in seen.items() if count == 0 and name != "near ties skipped"]
    counts = ", ".join(f"{count} {name}" for name, count in seen.items())
    detail = f"no {', no '.join(missing)}: try another --seed" if missing else counts
    return [*checks, Check(name="inputs cover every case", passed=not missing, detail=detail)]


def scan_differences(
    out: NgramScanOutput, matches: Sequence[reference.NgramMatch], *, all_rows: bool = True
) -> list[str]:
    """What a scan wrote otherwise than the reference.

    Args:
        out: buffers poisoned before the scan.
        matches: the reference's results, one a batch row.
        all_rows: whether those are all rows of the batch: the rows after them must then still hold the poison.
    """
    tokens = np.zeros((len(matches), out.tokens.shape[1]), np.int64)
    for row, match in enumerate(matches):
        tokens[row, : len(match.tokens)] = match.tokens
    expected = {
        "tokens": tokens,
        "num_tokens": np.array([len(match.tokens) for match in matches]),
        "match_length": np.array([match.match_length for match in matches]),
        "agreement": np.array([match.agreement for match in matches]),
        "copy_length": np.array([match.copy_length for match in matches]),
    }
    return _unequal(out, expected, len(matches), np.zeros(len(matches), bool), all_rows)


def selection_differences(out: ChainSelection, chains: Sequence[reference.Chain], ties: Sequence[bool]) -> list[str]:
    """What a selection wrote otherwise than the reference, rows of near ties left out.

    Args:
        out: buffers poisoned before the selection, with spare rows after those of the batch.
        chains: the reference's results, one a request.
        ties: whether the reference's choice was too close to call in float32.
    """
    num_rows = len(chains)
    tokens, survival = np.zeros((num_rows, 15), np.int64), np.zeros((num_rows, 15))
    for row, chain in enumerate(chains):
        tokens[row, : len(chain.tokens)] = chain.tokens
        survival[row, : len(chain.tokens)] = chain.survival
    expected = {
        "tokens": tokens,
        "num_tokens": np.array([len(chain.tokens) for chain in chains]),
        "source": np.array([int(chain.source == "ngram") for chain in chains]),
        "num_model_tokens": np.array([chain.num_model_tokens for chain in chains]),
    }
    skipped = np.array(ties, bool)
    differences = _unequal(out, expected, num_rows, skipped, True)
    actual = out.survival.cpu().numpy()
    close = np.isclose(actual[:num_rows], survival, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE)
    for row in np.flatnonzero(~close.all(axis=1) & ~skipped)[:1]:
        differences.append(f"survival of row {row} is {actual[row].tolist()}, expected {survival[row].tolist()}")
    if (np.diff(actual[:num_rows], axis=1) > 0).any():
        differences.append("a survival increases along its chain")
    if not np.isnan(actual[num_rows:]).all():
        differences.append("survival was written past the batch")
    return differences


def expected_chains(
    policy: Policy | str,
    matches: Sequence[reference.NgramMatch],
    drafts: Drafts,
    coefficients: Coefficients,
    price: float,
) -> tuple[list[reference.Chain], list[bool]]:
    """The reference's chains, and whether each was too close to call in float32."""
    policy = Policy(policy)
    chains, ties = [], []
    by_value = policy in (Policy.PROPOSED, Policy.NO_CONTAINS, Policy.EXPECTED_LENGTH)
    rows = zip(matches, drafts.tokens.cpu().numpy(), drafts.confidence.cpu().numpy(), strict=True)
    for match, tokens, confidence in rows:
        acceptance = reference.acceptance(coefficients, match)
        chains.append(reference.select(policy, tokens, confidence, match, acceptance, price))
        paid = 0.0 if policy is Policy.EXPECTED_LENGTH else price
        values = [
            reference.chain_value(np.cumprod(chain, dtype=np.float64), paid) for chain in (acceptance, confidence)
        ]
        contained = len(match.tokens) > len(tokens) and np.array_equal(match.tokens[: len(tokens)], tokens)
        decided = contained and policy is not Policy.NO_CONTAINS
        near = abs(values[0] - values[1]) <= NEAR_TIE * max(1.0, *values)
        ties.append(by_value and match.match_length > 0 and not decided and near)
    return chains, ties


def poison(buffers: Any) -> Any:
    """Fill every tensor of a dataclass with what no kernel writes, and return it."""
    for name in buffers.__slots__:
        tensor = getattr(buffers, name)
        if isinstance(tensor, torch.Tensor):
            tensor.fill_(float("nan") if tensor.is_floating_point() else _POISON)
    return buffers


def _unequal(
    out: Any, expected: dict[str, np.ndarray], num_rows: int, skipped: np.ndarray, all_rows: bool
) -> list[str]:
    """Name the first row of each field that differs, and fields written past the batch."""
    differences = []
    for name, wanted in expected.items():
        actual = getattr(out, name).cpu().numpy().astype(np.int64)
        different = (actual[:num_rows] != wanted).reshape(num_rows, -1).any(axis=1) & ~skipped
        for row in np.flatnonzero(different)[:1]:
            found = f"{name} of row {row} is {actual[row].tolist()}, expected {wanted[row].tolist()}"
            differences.append(f"{found} ({int(different.sum())} rows differ)")
        if all_rows and (actual[num_rows:] != _POISON).any():
            differences.append(f"{name} was written past the batch")
    return differences
