"""Every kernel against its reference, on fresh random inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check, check_problems
from bench.gpu.inputs import Drafts, make_batch, make_drafts
from bench.gpu.vector_scan import vector_scan
from hybrid_spark import reference
from hybrid_spark.estimator import Coefficients
from hybrid_spark.kernels import ChainSelection, NgramScanOutput, ngram_scan, pack_coefficients, select_chains
from hybrid_spark.policies import Policy

__all__ = ["MODEL", "check_kernels", "expected_chains", "poison", "scan_differences", "selection_differences"]

MODEL = "Qwen3-4B"
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 1e-7
"""For float32 products of up to 15 factors against float64, as in the tests."""
NEAR_TIE = 1e-5
"""Chain values closer than this (relative to the larger one, at least 1) may be told apart either way; not where no
slot of either chain is worth its price: both values are then exactly 0, in float32 too, and the n-gram chain wins."""
_SCAN_FIELDS = ("tokens", "num_tokens", "match_length", "agreement", "copy_length")
_CHAIN_FIELDS = ("tokens", "num_tokens", "source", "num_model_tokens")
_POISON = 0x0F0F0F0F
_NUM_SPARE_ROWS = 2
_PRICES = (0.0, 0.05, 0.2, 0.309, 0.7, 0.999)
"""Taken in turn, the last for the largest batch: at 0.999 many chains are worth nothing."""


def check_kernels(
    rng: np.random.Generator,
    device: torch.device | str,
    sizes: Sequence[tuple[int, int]],
    *,
    say: Callable[[str], None] = lambda line: None,
) -> list[Check]:
    """Compare ngram_scan and select_chains under every policy with their references.

    Args:
        rng: where the inputs come from.
        device: where the kernels run.
        sizes: rows and tokens of a row of the table, for each batch.
        say: takes a line on each size that is done.

    Returns:
        One check a kernel and policy, one of the NumPy scan that ngram_scan is compared with, and one of what the
        random inputs covered.
    """
    coefficients = Coefficients.load(MODEL)
    packed = pack_coefficients(coefficients, device)
    names = ("ngram_scan", *(f"select_chains {policy}" for policy in Policy))
    problems: dict[str, list[str]] = {name: [] for name in names}
    vector_problems: list[str] = []
    seen: Counter[str] = Counter()
    for number, (rows, max_len) in enumerate(sizes, start=1):
        batch = make_batch(rng, rows, max_len, device)
        matches = [vector_scan(context) for context in batch.contexts]
        if repr(matches[0]) != repr(reference.scan(batch.contexts[0])):
            vector_problems.append(f"{rows} x {max_len}: the NumPy scan of row 0 differs from the definition's")
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
        price = _PRICES[(number - len(sizes) - 1) % len(_PRICES)]
        for policy in Policy:
            chains = poison(ChainSelection.allocate(rows + _NUM_SPARE_ROWS, device, token_dtype=dtype))
            select_chains(policy, drafts.tokens, drafts.confidence, scan, packed, price, out=chains)
            expected, near_ties, ties = expected_chains(policy, matches, drafts, coefficients, price)
            problems[f"select_chains {policy}"] += [
                f"{where}, K {num_draft}, price {price}: {text}"
                for text in selection_differences(chains, expected, near_ties)
            ]
            if policy is Policy.PROPOSED:
                seen["n-gram chains kept"] += sum(chain.source == "ngram" for chain in expected)
                seen["DSpark chains kept"] += sum(chain.source == "dspark" for chain in expected)
                seen["near ties skipped"] += sum(near_ties)
                seen["ties at value 0"] += sum(ties)
            if policy is Policy.EXTENSION:
                seen["chains extended"] += sum(len(chain.tokens) > num_draft for chain in expected)
        say(f"compared {where}: {seen['rows matched']} of {seen['rows']} rows matched so far")
    checks = [
        check_problems(name, found, f"{seen['rows']} rows equal the reference's") for name, found in problems.items()
    ]
    checks.insert(1, check_problems("NumPy scan", vector_problems, f"equals the definition on {len(sizes)} contexts"))
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
) -> tuple[list[reference.Chain], list[bool], list[bool]]:
    """The reference's chains; whether each was too close to call in float32; whether it was a tie at value 0."""
    policy = Policy(policy)
    chains, near_ties, ties = [], [], []
    by_value = policy in (Policy.PROPOSED, Policy.NO_CONTAINS, Policy.EXPECTED_LENGTH)
    rows = zip(matches, drafts.tokens.cpu().numpy(), drafts.confidence.cpu().numpy(), strict=True)
    for match, tokens, confidence in rows:
        acceptance = reference.acceptance(coefficients, match)
        chains.append(reference.select(policy, tokens, confidence, match, acceptance, price))
        paid = 0.0 if policy is Policy.EXPECTED_LENGTH else price
        survivals = [np.cumprod(chain, dtype=np.float64) for chain in (acceptance, confidence)]
        values = [reference.chain_value(survival, paid) for survival in survivals]
        contained = len(match.tokens) > len(tokens) and np.array_equal(match.tokens[: len(tokens)], tokens)
        compared = by_value and match.match_length > 0 and (not contained or policy is Policy.NO_CONTAINS)
        worthless = all((survival <= paid * (1 - NEAR_TIE)).all() for survival in survivals)
        near = abs(values[0] - values[1]) <= NEAR_TIE * max(1.0, *values)
        near_ties.append(compared and near and not worthless)
        ties.append(compared and worthless)
    return chains, near_ties, ties


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
