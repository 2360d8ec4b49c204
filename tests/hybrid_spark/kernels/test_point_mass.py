"""Slots that the draft model did not sample are verified as point masses by vLLM's own sampler."""

import pytest
import torch

pytest.importorskip("vllm")

from hybrid_spark.kernels.point_mass import write_point_masses

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_ROWS, NUM_SLOTS, NUM_MODEL_SLOTS, VOCAB_SIZE = 3, 5, 2, 11


def _logits() -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.randn((NUM_ROWS, NUM_SLOTS, VOCAB_SIZE), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    logits[:, NUM_MODEL_SLOTS:] = -float("inf")
    return logits, torch.zeros((NUM_ROWS, NUM_SLOTS), dtype=torch.int64, device=DEVICE)


def _write(
    logits: torch.Tensor, placed: torch.Tensor, rows: list[int], tokens: list[list[int]], *lengths: list[int]
) -> None:
    num_tokens, num_model_tokens = (torch.tensor(length, dtype=torch.int32, device=DEVICE) for length in lengths)
    write_point_masses(
        logits,
        placed,
        torch.tensor(rows, device=DEVICE),
        torch.tensor(tokens, device=DEVICE),
        num_tokens,
        num_model_tokens,
        num_model_slots=NUM_MODEL_SLOTS,
    )


def _mass(row: torch.Tensor) -> list[int]:
    assert set(row.tolist()) == {0.0, -float("inf")}
    return [int(index) for index in (row == 0).nonzero()]


def test_ngram_slots_become_point_masses_and_the_draft_models_stay() -> None:
    logits, placed = _logits()
    before = logits.clone()
    # Row 2: an n-gram chain of 4. Row 0: DSpark's chain, extended by 2.
    _write(logits, placed, [2, 0], [[5, 6, 7, 8, 0], [1, 2, 3, 4, 0]], [4, 4], [0, 2])
    assert [_mass(logits[2, slot]) for slot in range(4)] == [[5], [6], [7], [8]]
    assert torch.equal(logits[0, :2], before[0, :2])
    assert [_mass(logits[0, slot]) for slot in (2, 3)] == [[3], [4]]
    assert torch.equal(logits[1], before[1])
    assert torch.equal(logits[:, 4], before[:, 4])


def test_a_tail_slot_forgets_the_token_of_the_step_before() -> None:
    logits, placed = _logits()
    for token in (3, 9, 9, 0):
        _write(logits, placed, [1], [[1, 2, token, 0, 0]], [3], [2])
        assert _mass(logits[1, 2]) == [token]


@pytest.mark.parametrize("token", [-1, VOCAB_SIZE])
def test_a_token_that_the_draft_model_does_not_know_touches_no_other_slot(token: int) -> None:
    logits, placed = _logits()
    _write(logits, placed, [1], [[1, 2, 9, 0, 0]], [3], [2])
    before = logits.clone()
    _write(logits, placed, [1], [[1, 2, token, 0, 0]], [3], [2])
    before[1, 2] = -float("inf")
    assert torch.equal(logits, before)
    _write(logits, placed, [1], [[1, 2, 4, 0, 0]], [3], [2])
    assert _mass(logits[1, 2]) == [4]


def test_logits_of_half_the_width_hold_them_exactly() -> None:
    logits, placed = _logits()
    logits = logits.to(torch.bfloat16)
    _write(logits, placed, [2], [[5, 6, 7, 8, 0]], [4], [0])
    assert [_mass(logits[2, slot]) for slot in range(4)] == [[5], [6], [7], [8]]


# Interpreted, vLLM's kernel computes with -inf in lanes past the vocabulary and masks the result.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_the_sampler_treats_them_as_it_treats_greedy_drafts(temperature: float) -> None:
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

    generator = torch.Generator().manual_seed(1)
    num_reqs, num_steps, vocab = 16, 3, 17
    target = (2 * torch.randn((num_reqs * (num_steps + 1), vocab), generator=generator)).to(DEVICE)
    drafts = torch.randint(0, vocab, (num_reqs, num_steps), generator=generator).to(DEVICE)
    # Half of the drafts are likely, so that prefixes of every length are accepted.
    for request in range(num_reqs):
        for step in range(request % 4):
            drafts[request, min(step, num_steps - 1)] = target[
                request * (num_steps + 1) + min(step, num_steps - 1)
            ].argmax()
    logits = torch.full((num_reqs, num_steps, vocab), -float("inf"), device=DEVICE)
    rows = torch.arange(num_reqs, device=DEVICE)
    counts = torch.full((num_reqs,), num_steps, dtype=torch.int32, device=DEVICE)
    placed = torch.zeros((num_reqs, num_steps), dtype=torch.int64, device=DEVICE)
    write_point_masses(logits, placed, rows, drafts, counts, torch.zeros_like(counts), num_model_slots=2)

    sampled = torch.zeros((num_reqs, num_steps + 1), dtype=torch.int32, device=DEVICE)
    sampled[:, 1:] = drafts
    expanded = rows.repeat_interleave(num_steps + 1)
    local_pos = torch.arange(num_steps + 1, dtype=torch.int32, device=DEVICE).repeat(num_reqs)
    temperatures = torch.full((num_reqs,), temperature, device=DEVICE)
    seeds = torch.arange(num_reqs, device=DEVICE) + 7
    cu_num_logits = torch.arange(num_reqs + 1, dtype=torch.int32, device=DEVICE) * (num_steps + 1)

    def verify(draft_logits: torch.Tensor | None) -> tuple[list[list[int]], list[int]]:
        tokens, num_sampled = rejection_sample(
            target / temperature,
            draft_logits,
            sampled.flatten(),
            cu_num_logits,
            torch.arange(len(expanded), device=DEVICE),
            rows,
            expanded,
            local_pos,
            temperatures,
            seeds,
            num_steps,
        )
        return [row[:count].tolist() for row, count in zip(tokens, num_sampled, strict=True)], num_sampled.tolist()

    tokens, num_sampled = verify(logits)
    assert (tokens, num_sampled) == verify(None)
    assert len(set(num_sampled)) > 1, "every request accepted the same number of drafts"
