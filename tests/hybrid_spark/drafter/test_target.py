from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from hybrid_spark.drafter.target import KVCache, LlamaTarget
from tests.hybrid_spark.drafter.conftest import AUX_LAYERS

PROMPTS = [[5, 9, 33], [1, 60, 7, 7, 12, 40, 22], [44, 45, 46, 47, 48]]


def test_batched_greedy_decoding_and_its_states_equal_transformers(target: LlamaTarget, target_folder: Path) -> None:
    reference = AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float32).eval()
    captured: dict[int, torch.Tensor] = {}
    for index in AUX_LAYERS:
        reference.model.layers[index].register_forward_hook(
            lambda module, args, output, index=index: captured.update(
                {index: output[0] if isinstance(output, tuple) else output}
            )
        )
    cache = KVCache(target, len(PROMPTS), 32)
    sequences, states = [list(prompt) for prompt in PROMPTS], []
    for slot, prompt in enumerate(PROMPTS):
        token, aux = target.prefill(torch.tensor(prompt), cache, slot)
        sequences[slot].append(token)
        states.append([aux])
    for _ in range(10):
        positions = torch.tensor([len(sequence) - 1 for sequence in sequences])
        following, aux = target.decode(torch.tensor([s[-1] for s in sequences]), positions, cache)
        for slot, token in enumerate(following.tolist()):
            sequences[slot].append(token)
            states[slot].append(aux[slot : slot + 1])
    for slot, prompt in enumerate(PROMPTS):
        with torch.inference_mode():
            logits = reference(torch.tensor([sequences[slot][:-1]])).logits[0]
        assert logits[len(prompt) - 1 :].argmax(-1).tolist() == sequences[slot][len(prompt) :]
        expected = torch.stack([captured[index].reshape(-1, 32) for index in AUX_LAYERS], dim=1)
        torch.testing.assert_close(torch.cat(states[slot]), expected, atol=1e-4, rtol=1e-4)


def test_an_idle_slot_does_not_disturb_the_others(target: LlamaTarget) -> None:
    alone, shared = KVCache(target, 1, 32), KVCache(target, 3, 32)
    token, _ = target.prefill(torch.tensor(PROMPTS[1]), alone, 0)
    target.prefill(torch.tensor(PROMPTS[1]), shared, 1)
    position = len(PROMPTS[1])
    expected, _ = target.decode(torch.tensor([token]), torch.tensor([position]), alone)
    found, _ = target.decode(torch.tensor([0, token, 0]), torch.tensor([0, position, 0]), shared)
    assert found[1] == expected[0]


def test_an_aux_layer_the_target_lacks_is_refused(target_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"aux layers \(0, 4\).*below 4"):
        LlamaTarget(target_folder, (0, 4))
