"""vLLM's hot sampling kernels as NumPy code for the interpreted CPU engine, equal to the interpreted originals.

Interpreted, these kernels pay Python for every 1,024 or 8,192 entries of the vocabulary and are most of a step. Each
function takes the launch arguments of the kernel it replaces, by the kernel's own names, and writes the same values
to the same places: the same operations in the same order in float32, so ties and sampled noise agree bit for bit.
A launch outside a function's scope goes to the interpreted original.

Shapes: N logits rows, B requests, V vocabulary entries, R request states.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

__all__ = ["REPLACEMENTS", "by_name"]

_DRAFT_NOISE_SALT = 1 << 30
_U32 = 0xFFFFFFFF


def _rotl(value: Any, shift: int) -> Any:
    return (value << shift) | (value >> (32 - shift))


def _mix_key(key: Any) -> Any:
    return _rotl(key * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _mix(h: Any, mixed_key: Any) -> Any:
    return _rotl(h ^ mixed_key, 13) * np.uint32(5) + np.uint32(0xE6546B64)


_mixed_offsets: dict[int, np.ndarray] = {}


def _gumbel_noise(seed: int, pos: int, vocab_size: int) -> np.ndarray:
    """Return vLLM's Gumbel noise of one row, float32[V]: murmur3(seed, pos, token) mapped through -log(-log(u))."""
    offsets = _mixed_offsets.get(vocab_size)
    if offsets is None:
        offsets = _mixed_offsets[vocab_size] = _mix_key(np.arange(vocab_size, dtype=np.uint32))
    h = np.zeros(1, dtype=np.uint32)
    for word in (seed, seed >> 32, pos):
        h = _mix(h, _mix_key(np.array([word & _U32], dtype=np.uint32)))
    h = _mix(h, offsets) ^ np.uint32(16)
    h ^= h >> 16
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> 13
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> 16
    high, low = (h >> 16).astype(np.float32), (h & np.uint32(0xFFFF)).astype(np.float32)
    u = high * np.float32(1.52587890625e-05) + (low + np.float32(0.5)) * np.float32(2.3283064365386963e-10)
    return -np.log(-_log1p_neg(u))


def _log1p_neg(value: np.ndarray) -> np.ndarray:
    """Return log(1 - value) by vLLM's series below 0.25."""
    polynomial: Any = np.float32(1.0 / 8.0)
    for term in (7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0):
        polynomial = np.float32(1.0 / term) + value * polynomial
    direct = np.log(np.maximum(np.float32(1.0) - value, np.float32(5.960464477539063e-08)))
    return np.where(value < np.float32(0.25), -value * polynomial, direct)


def _rows(logits: torch.Tensor, vocab_size: int) -> np.ndarray:
    """Return logits[:, :V] as float32, without a copy where they are already."""
    return logits[:, :vocab_size].float().numpy()


def _blocks(row: np.ndarray, block_size: int) -> np.ndarray:
    """Cut the last axis into blocks, the last one padded with -inf as the kernels' masked loads are."""
    vocab_size = row.shape[-1]
    num_blocks = -(-vocab_size // block_size)
    if num_blocks * block_size != vocab_size:
        padding = [(0, 0)] * (row.ndim - 1) + [(0, num_blocks * block_size - vocab_size)]
        row = np.pad(row, padding, constant_values=-np.inf)
    return row.reshape(*row.shape[:-1], num_blocks, block_size)


def _store_argmax(blocks: np.ndarray, argmax: torch.Tensor, maximum: torch.Tensor) -> None:
    """Write each block's first maximal token id and its value."""
    index = blocks.argmax(axis=-1)
    maximum.copy_(torch.from_numpy(np.take_along_axis(blocks, index[..., None], axis=-1)[..., 0]))
    index += np.arange(blocks.shape[-2]) * blocks.shape[-1]
    argmax.copy_(torch.from_numpy(index))


def make_gumbel_sample(original: Any) -> Callable[..., None]:
    """Build the replacement of `_gumbel_sample_kernel`: argmax of each vocabulary block, with noise at T > 0.

    Probabilistic drafting caches its logits as they are before the temperature. Kept interpreted: float64 noise.
    """

    def gumbel_sample(**kw: Any) -> None:
        argmax, maximum = kw["local_argmax_ptr"], kw["local_max_ptr"]
        if kw["USE_FP64"]:
            original[tuple(argmax.shape)](**kw)
            return
        rows = _rows(kw["logits_ptr"], kw["vocab_size"])
        states = kw["expanded_idx_mapping_ptr"].numpy()[: len(rows)]
        cache = kw["logits_cache_ptr"]
        if cache is not None:
            held = np.flatnonzero(states >= 0)
            column = kw["logits_cache_col_ptr"]
            column = column[held] if kw["PER_TOKEN_COL"] else column.expand(len(held))
            source = kw["logits_cache_source_ptr"][held, : kw["vocab_size"]]
            cache[torch.from_numpy(states[held]).long(), column.long(), : kw["vocab_size"]] = source
        temperature, seeds, pos = (kw[name].numpy() for name in ("temp_ptr", "seeds_ptr", "pos_ptr"))
        row_temperature = np.where(states >= 0, temperature[states], 0).astype(np.float32)
        if row_temperature.any():
            rows = rows.copy()
            salt = _DRAFT_NOISE_SALT if kw["IS_DRAFTING"] else 0
            for i in np.flatnonzero(row_temperature):
                if kw["APPLY_TEMPERATURE"]:
                    rows[i] /= row_temperature[i]
                rows[i] += _gumbel_noise(int(seeds[states[i]]), int(pos[i]) + salt, rows.shape[1])
        _store_argmax(_blocks(rows, kw["BLOCK_SIZE"]), argmax, maximum)

    return gumbel_sample


def make_local_logits_stats(original: Any) -> Callable[..., None]:
    """Build the replacement of `_compute_local_logits_stats_kernel`: per-block maximum, and argmax or sum of exp.

    Nothing is kept interpreted. Rows of bonus tokens, which nobody reads, are filled as well.
    """

    def local_logits_stats(**kw: Any) -> None:
        argmax, maximum, sumexp = (kw[f"target_local_{name}_ptr"] for name in ("argmax", "max", "sumexp"))
        blocks = _blocks(_rows(kw["target_logits_ptr"], kw["vocab_size"]), kw["BLOCK_SIZE"])
        _store_argmax(blocks, argmax, maximum)
        states = kw["expanded_idx_mapping_ptr"].numpy()[: len(blocks)]
        temperature = kw["temp_ptr"].numpy()[states]
        sampled = np.flatnonzero(temperature)
        if not len(sampled):
            return
        sumexp.numpy()[sampled] = _sum_exp(blocks[sampled], maximum.numpy()[sampled])
        if kw["HAS_DRAFT_LOGITS"]:
            steps = kw["expanded_local_pos_ptr"].numpy()[: len(blocks)]
            drafted = sampled[steps[sampled] < kw["draft_logits_ptr"].shape[1]]
            held = kw["draft_logits_ptr"][states[drafted], steps[drafted], : kw["vocab_size"]].float().numpy()
            scaled = _blocks(held / temperature[drafted, None], kw["BLOCK_SIZE"])
            peak = scaled.max(axis=-1)
            kw["draft_local_max_ptr"].numpy()[drafted] = peak
            kw["draft_local_sumexp_ptr"].numpy()[drafted] = _sum_exp(scaled, peak)

    return local_logits_stats


def _sum_exp(blocks: np.ndarray, peak: np.ndarray) -> np.ndarray:
    """Sum of exp(logit - peak) of each block; 0 for a block of -inf only."""
    with np.errstate(invalid="ignore"):
        sums = np.exp(blocks - peak[..., None]).sum(axis=-1)
    return np.where(peak > -np.inf, sums, np.float32(0))


def make_rejection(original: Any) -> Callable[..., None]:
    """Build the replacement of `_rejection_kernel` for batches that are greedy throughout.

    Kept interpreted: any batch with a request at T > 0, synthetic acceptance, lenient (fly) verification.
    """

    def rejection(**kw: Any) -> None:
        states, temperature = kw["idx_mapping_ptr"].numpy(), kw["temp_ptr"].numpy()
        num_reqs = len(kw["rejected_steps_ptr"])
        if kw["SYNTHETIC_MODE"] or kw.get("FLY_WINDOW_SIZE", 0) or temperature[states[:num_reqs]].any():
            original[(num_reqs,)](**kw)
            return
        # NaN reads as -inf, as in the kernel.
        peaks = np.nan_to_num(kw["target_local_max_ptr"].numpy(), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        block = peaks.argmax(axis=1)
        targets = kw["target_local_argmax_ptr"].numpy()[np.arange(len(block)), block]
        drafts, bounds = kw["draft_sampled_ptr"].numpy(), kw["cu_num_logits_ptr"].numpy()
        sampled = kw["sampled_ptr"].numpy()
        num_accepted = kw["rejected_steps_ptr"].numpy()
        for i in range(num_reqs):
            start, num_drafts = bounds[i], bounds[i + 1] - bounds[i] - 1
            target = targets[start : start + num_drafts]
            rejected = np.flatnonzero(drafts[start + 1 : start + 1 + num_drafts] != target)
            num_accepted[i] = rejected[0] if len(rejected) else num_drafts
            # The token after the accepted ones is the target's own; it is stored here, not resampled.
            stored = min(int(num_accepted[i]) + 1, int(num_drafts))
            sampled[i, :stored] = target[:stored]
        kw["target_rejected_logsumexp_ptr"].zero_()
        kw["draft_rejected_logsumexp_ptr"].zero_()

    return rejection


def make_resample(original: Any) -> Callable[..., None]:
    """Build the replacement of `_resample_kernel`: draw the token after the accepted ones, by vocabulary block.

    Kept interpreted: probabilistic drafting, watermarks, float64 noise. Greedy requests that rejected a draft need no
    draw and are left alone.
    """

    def resample(**kw: Any) -> None:
        argmax, maximum = kw["resampled_local_argmax_ptr"], kw["resampled_local_max_ptr"]
        if kw["HAS_DRAFT_LOGITS"] or kw["WATERMARK"] or kw["USE_FP64"]:
            original[tuple(argmax.shape)](**kw)
            return
        logits, vocab_size = kw["target_logits_ptr"], kw["vocab_size"]
        bounds, drafts = kw["cu_num_logits_ptr"].numpy(), kw["draft_sampled_ptr"].numpy()
        states, temperature = kw["expanded_idx_mapping_ptr"].numpy(), kw["temp_ptr"].numpy()
        for i, step in enumerate(kw["rejected_step_ptr"].numpy()):
            token = bounds[i] + step
            is_bonus = token == bounds[i + 1] - 1
            sampling = temperature[states[token]] != 0
            if not (sampling or is_bonus):
                continue
            row = _rows(logits[token : token + 1], vocab_size)[0]
            if sampling:
                row = row.copy()
                # Point-mass draft: the residual is the target without the rejected token.
                if not is_bonus and 0 <= drafts[token + 1] < vocab_size:
                    row[drafts[token + 1]] = -np.inf
                seed, pos = kw["seed_ptr"].numpy()[states[token]], kw["pos_ptr"].numpy()[token]
                row += _gumbel_noise(int(seed), int(pos), vocab_size)
            _store_argmax(_blocks(row, kw["BLOCK_SIZE"]), argmax[i], maximum[i])

    return resample


_GUMBEL = "vllm.v1.worker.gpu.sample.gumbel."
_REJECTION = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils."

REPLACEMENTS: dict[str, Callable[[Any], Callable[..., None]]] = {
    _GUMBEL + "_gumbel_sample_kernel": make_gumbel_sample,
    _REJECTION + "_compute_local_logits_stats_kernel": make_local_logits_stats,
    _REJECTION + "_rejection_kernel": make_rejection,
    _REJECTION + "_resample_kernel": make_resample,
}
"""Kernel name -> builder that takes the interpreted original and returns its replacement."""


def by_name(original: Any, replacement: Callable[..., None]) -> Callable[..., None]:
    """Adapt a replacement that takes keywords to a launch with positional arguments."""
    names = tuple(original.arg_names)

    def launch(*args: Any, **kwargs: Any) -> None:
        replacement(**dict(zip(names, args, strict=False)), **kwargs)

    return launch
