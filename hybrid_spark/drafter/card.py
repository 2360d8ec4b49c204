"""The card that travels with an exported drafter: what it is for, what it was trained on, how it was measured."""

from typing import Any

__all__ = ["card_text"]


def card_text(config: dict[str, Any], num_bytes: int, facts: dict[str, Any], evaluation: dict[str, Any] | None) -> str:
    """Markdown of ``card.md``.

    Args:
        config: The checkpoint's ``config.json``.
        num_bytes: Size of the weights.
        facts: ``target``, ``num_output_tokens``, ``num_examples``, ``num_written``, ``num_steps``, ``minutes``,
            ``sources`` (name to licence), ``date``, ``versions``, ``calibration``.
        evaluation: Of ``evaluate``, or None.
    """
    layers = ", ".join(map(str, config["target_layer_ids"]))
    sources = "\n".join(f"- {name}: {licence}" for name, licence in facts["sources"].items())
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"""# A small DSpark drafter for {facts["target"]}

A {config["num_hidden_layers"]}-layer `Qwen3DSparkModel` draft model ({num_bytes / 1e6:.1f} MB, bfloat16; confidence
head float32) that drafts {config["block_size"]} tokens from the output of the target's layers {layers}. Embedding and
output matrix are the target's own. Licence: Apache-2.0, as the project.

## For what

Exercising DSpark, its confidence head and adaptive verification on a CPU: demo, tests and policy comparisons. It is
far smaller than a production drafter, and its acceptance says nothing about one.

## Trained on

{facts["num_output_tokens"]:,} output tokens of {facts["num_examples"]:,} greedy answers of the target itself (at most
{facts.get("max_output_tokens", 192)} tokens each). {facts["num_written"]:,} of the prompts the target wrote itself,
sampled after the header of a user's turn; the others were built from templates: chat, code edits, explanation,
summaries, documentation. Text inside those came from installed Python sources and docstrings:

{sources}

No benchmark prompt and none of the project's sample workloads was used. {facts["num_steps"]:,} steps,
{facts["minutes"]:.0f} minutes on one CPU thread, {facts["date"]}. {versions}.

Confidence head: ridge logistic regression with Platt scaling on {facts["calibration"]["num_slots"]:,} slots a decoder
reached on answers the drafter never saw, from templates of neither training nor evaluation
(log loss {facts["calibration"]["log_loss"]:.3f}, constant {facts["calibration"]["base_log_loss"]:.3f}).

## Measured

{_measured(evaluation)}
## Made by

`python -m hybrid_spark.drafter generate|train|calibrate|evaluate|export`; training seed 0.
"""


def _measured(evaluation: dict[str, Any] | None) -> str:
    if evaluation is None:
        return "Not evaluated.\n"
    rows = "\n".join(
        f"| {row['position']} | {_number(row['acceptance'])} | {row['num_drafts']:,} |"
        for row in evaluation["acceptance"]
    )
    num_drafts, num_slots = f"{evaluation['num_drafts']:,}", f"{evaluation['num_slots']:,}"
    errors = [f"{evaluation[name]:.3f}" for name in ("calibration_error", "calibration_error_first")]
    areas = [_number(evaluation[name]) for name in ("auc", "auc_first")]
    return f"""Offline at temperature 0: the target's recorded answers are replayed, and the drafter drafts where a
decoder would ({num_drafts} drafts, {evaluation["num_answers"]} answers to prompts from no training template, topic
or source file). Acceptance of position k: share of drafts whose first k + 1 tokens are all accepted.

| position | acceptance | drafts |
|---|---|---|
{rows}

Acceptance length {evaluation["acceptance_length"]:.2f} (bonus token included). Confidence on {num_slots} reached slots:
expected calibration error {errors[0]} (10 bins), AUC {areas[0]}; first slots alone {errors[1]} and {areas[1]}.
{_online(evaluation.get("online"))}"""


def _online(online: dict[str, Any] | None) -> str:
    if not online or "acceptance" not in online:
        return ""
    shares = " / ".join(f"{share:.3f}" for share in online["acceptance"])
    confidence = online.get("confidence")
    calibrated = (
        f"Its confidences on {confidence['num_slots']:,} verified slots: expected calibration error "
        f"{confidence['calibration_error']:.3f}, AUC {_number(confidence['auc'])}.\n"
        if confidence
        else ""
    )
    return f"""
Online, in a vLLM server at temperature 0 on {online["num_prompts"]} of these prompts: {shares} for positions
0 to 2, acceptance length {online["acceptance_length"]:.2f} ({online["num_drafts"]:,} drafts, the server's counters).
{calibrated}"""


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
