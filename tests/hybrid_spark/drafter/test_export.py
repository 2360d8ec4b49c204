import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hybrid_spark.drafter.corpus import load_batch, read_examples
from hybrid_spark.drafter.evaluate import evaluate
from hybrid_spark.drafter.export import MAX_BYTES, export, load_export, serving_copy, weights_digest
from hybrid_spark.drafter.model import DrafterConfig, DSparkDrafter
from hybrid_spark.drafter.target import LlamaTarget
from tests.hybrid_spark.drafter.conftest import AUX_LAYERS
from tests.hybrid_spark.drafter.test_train import make_drafter

FACTS = {
    "target": "toy",
    "num_output_tokens": 10,
    "num_examples": 2,
    "num_written": 1,
    "num_steps": 3,
    "minutes": 1.0,
    "sources": {"Python 3.11 standard library": "PSF-2.0"},
    "date": "2026-01-01",
    "versions": {"torch": "2"},
    "calibration": {"num_slots": 5, "log_loss": 0.5, "base_log_loss": 0.6},
}


@pytest.fixture
def drafter(target: LlamaTarget) -> DSparkDrafter:
    made = make_drafter(target).eval()
    with torch.no_grad():
        made.aux_scale.uniform_(0.5, 2.0)
        made.markov_head["markov_w2"].weight.normal_()
    return made


def test_an_exported_drafter_drafts_what_the_serving_copy_drafts(
    drafter: DSparkDrafter, corpus: Path, tmp_path: Path
) -> None:
    export(drafter, tmp_path, target_layer_ids=AUX_LAYERS, facts=FACTS, evaluation=None)
    served, loaded = serving_copy(drafter), load_export(tmp_path, drafter.embedding)
    batch = load_batch(corpus, read_examples(corpus, "evaluation"))
    anchors = batch.num_prompt_tokens
    ids = batch.tokens.gather(1, anchors[:, None])[:, 0]
    expected = served.draft(served.context(batch.states), ids, anchors)
    found = loaded.draft(loaded.context(batch.states), ids, anchors)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.confidence, expected.confidence)


def test_the_scale_of_the_states_is_folded_into_fc(drafter: DSparkDrafter, corpus: Path) -> None:
    batch = load_batch(corpus, read_examples(corpus, "evaluation")[:2])
    expected = drafter.context(batch.states.float())
    found = serving_copy(drafter).float().context(batch.states.float())
    torch.testing.assert_close(found.values[0], expected.values[0], atol=0.05, rtol=0.05)


def test_the_checkpoint_has_the_tensors_vllm_loads(drafter: DSparkDrafter, tmp_path: Path) -> None:
    export(drafter, tmp_path, target_layer_ids=AUX_LAYERS, facts=FACTS, evaluation=None)
    layer = "layers.0"
    assert set(load_file(str(tmp_path / "model.safetensors"))) == {
        "fc.weight",
        "hidden_norm.weight",
        "norm.weight",
        *(f"{layer}.self_attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
        *(f"{layer}.mlp.{name}.weight" for name in ("gate_proj", "up_proj", "down_proj")),
        *(f"{layer}.{name}.weight" for name in ("input_layernorm", "post_attention_layernorm")),
        "markov_head.markov_w1.weight",
        "markov_head.markov_w2.weight",
        "confidence_head.proj.weight",
        "confidence_head.proj.bias",
    }
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["target_layer_ids"] == config["dflash_config"]["target_layer_ids"] == list(AUX_LAYERS)


def test_the_card_states_the_measured_acceptance_or_its_absence(
    drafter: DSparkDrafter, corpus: Path, tmp_path: Path
) -> None:
    export(drafter, tmp_path, target_layer_ids=AUX_LAYERS, facts=FACTS, evaluation=None)
    assert "Not evaluated." in (tmp_path / "card.md").read_text()
    result = evaluate(serving_copy(drafter), corpus, read_examples(corpus, "evaluation"))
    result["weights_sha256"] = weights_digest(drafter)
    export(drafter, tmp_path, target_layer_ids=AUX_LAYERS, facts=FACTS, evaluation=result)
    card = (tmp_path / "card.md").read_text()
    assert f"| 0 | {result['acceptance'][0]['acceptance']:.3f} |" in card
    assert "Python 3.11 standard library: PSF-2.0" in card


def test_an_evaluation_of_other_weights_is_refused(drafter: DSparkDrafter, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="other weights"):
        export(drafter, tmp_path, target_layer_ids=AUX_LAYERS, facts=FACTS, evaluation={"weights_sha256": "0"})


def test_more_than_ten_megabytes_are_refused(tmp_path: Path) -> None:
    config = DrafterConfig(hidden_size=64, vocab_size=40_000, markov_rank=64, num_heads=3, num_kv_heads=3)
    large = DSparkDrafter(config, torch.zeros(40_000, 64))
    with pytest.raises(ValueError, match=f"more than {MAX_BYTES}"):
        export(large, tmp_path, target_layer_ids=AUX_LAYERS, facts=FACTS, evaluation=None)
    assert not (tmp_path / "model.safetensors").exists()
