"""``python -m hybrid_spark.drafter generate|train|calibrate|evaluate|export|online``: a small DSpark drafter."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from hybrid_spark.drafter.corpus import Example

__all__ = ["main"]

DEFAULT_LAYERS = (9, 19, 29)
CHECKPOINT = "drafter.pt"


def _cache() -> Path:
    root = os.environ.get("HYBRID_SPARK_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "hybrid-spark"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hybrid_spark.drafter", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser("generate", help="the target's greedy answers and hidden states (resumes)")
    generate.add_argument("--split", choices=("train", "calibration", "evaluation"), default="train")
    generate.add_argument("--seed", type=int, default=0, help="another seed in another process adds other prompts")
    generate.add_argument(
        "--prompts",
        choices=("templates", "written"),
        default="templates",
        help="of the train split: from templates, or written by the target itself",
    )
    generate.add_argument("--num-output-tokens", type=int, default=500_000)
    generate.add_argument("--num-slots", type=int, default=64)
    generate.add_argument("--max-output-tokens", type=int, default=192)
    train = commands.add_parser("train", help="distil the target into the drafter")
    train.add_argument("--num-steps", type=int, default=6000)
    train.add_argument("--max-minutes", type=float, help="anneal and stop by the clock instead of by --num-steps")
    train.add_argument("--num-seqs", type=int, default=10, help="answers a step, 40 anchors of each")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--resume", action="store_true", help="start from the checkpoint in --work")
    calibrate = commands.add_parser("calibrate", help="fit the confidence head on answers the drafter never saw")
    evaluate = commands.add_parser("evaluate", help="acceptance and calibration on prompts from no training template")
    online = commands.add_parser("online", help="acceptance in a running vLLM server, recorded beside `evaluate`'s")
    online.add_argument("--url", required=True, help="root of a server that drafts with the exported folder")
    online.add_argument("--max-output-tokens", type=int, default=96)
    online.add_argument("--num-concurrent", type=int, default=8)
    online.add_argument("--steps", type=Path, help="its record_steps folder: judge its confidences, not its acceptance")
    for command in (calibrate, evaluate, online):
        command.add_argument("--num-answers", type=int, help="use only the first so many answers of the split")
    export = commands.add_parser("export", help="write the checkpoint folder vLLM loads, with its card")
    export.add_argument("folder", type=Path)
    export.add_argument("--target-name", default="SmolLM2-135M-Instruct", help="for the card")
    for command in (generate, train, calibrate, evaluate, online, export):
        command.add_argument("--target", type=Path, required=True, help="folder of the target model")
        command.add_argument("--work", type=Path, default=_cache() / "drafter", help="folder of the corpus and weights")
        command.add_argument("--num-threads", type=int, default=1, help="more than one rarely helps: small products")
    return parser


def _generate(args: argparse.Namespace) -> None:
    from transformers import AutoTokenizer  # type: ignore[attr-defined, unused-ignore]

    from hybrid_spark.drafter.generate import GenerateConfig, generate
    from hybrid_spark.drafter.prompts import draw_prompts
    from hybrid_spark.drafter.sources import collect
    from hybrid_spark.drafter.target import LlamaTarget
    from hybrid_spark.drafter.written import write_prompts

    if args.prompts == "written" and args.split != "train":
        raise ValueError(f"--prompts written is for the train split, got --split {args.split}.")
    tokenizer = AutoTokenizer.from_pretrained(str(args.target))

    def encode(text: str) -> list[int]:
        message = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))

    config = GenerateConfig(
        corpus=args.work / "corpus",
        split=args.split,
        seed=args.seed,
        num_output_tokens=args.num_output_tokens,
        num_slots=args.num_slots,
        max_output_tokens=args.max_output_tokens,
    )
    target = LlamaTarget(args.target, DEFAULT_LAYERS)
    if args.prompts == "written":
        # A message of one known token tells where the header ends, whatever the template puts after the message.
        probe = encode("x")
        header = probe[: len(probe) - probe[::-1].index(tokenizer.encode("x", add_special_tokens=False)[0]) - 1]
        config.corpus.mkdir(parents=True, exist_ok=True)
        stop = set(tokenizer.all_special_ids)
        prompts = write_prompts(target, header, tokenizer.decode, stop, config.corpus, seed=args.seed)
    else:
        prompts = draw_prompts(args.split, collect(), seed=args.seed)
    num_tokens = generate(config, target, prompts, encode, tokenizer.eos_token_id)
    print(f"{args.split}: {num_tokens} output tokens in {config.corpus}")


def _train(args: argparse.Namespace) -> None:
    from hybrid_spark.drafter.target import LlamaTarget
    from hybrid_spark.drafter.train import DrafterConfig, DSparkDrafter, TrainConfig, load_drafter, train

    target = LlamaTarget(args.target, DEFAULT_LAYERS)
    if DEFAULT_LAYERS[-1] != len(target.layers) - 1:
        raise ValueError(f"the last aux layer must be the target's last, {len(target.layers) - 1}.")
    if args.resume:
        drafter, _ = load_drafter(args.work / CHECKPOINT, target.embedding)
    else:
        sizes = DrafterConfig(hidden_size=target.hidden_size, vocab_size=target.vocab_size)
        drafter = DSparkDrafter(sizes, target.embedding)
    config = TrainConfig(num_steps=args.num_steps, max_minutes=args.max_minutes, num_seqs=args.num_seqs, seed=args.seed)
    print(json.dumps(train(drafter, target.final_norm, args.work / "corpus", args.work / CHECKPOINT, config)))


def _calibrate(args: argparse.Namespace) -> None:
    from hybrid_spark.drafter.confidence import apply_fit, fit_confidence
    from hybrid_spark.drafter.export import serving_copy
    from hybrid_spark.drafter.train import load_drafter, save_drafter
    from hybrid_spark.drafter.visit import visit

    drafter, facts = load_drafter(args.work / CHECKPOINT, _embedding(args.target))
    corpus = args.work / "corpus"
    fit = fit_confidence(visit(serving_copy(drafter), corpus, _examples(args, "calibration")))
    apply_fit(drafter, fit)
    facts["calibration"] = summary = {
        "ridge": fit.ridge,
        "log_loss": fit.log_loss,
        "base_log_loss": fit.base_log_loss,
        "num_slots": fit.num_slots,
    }
    save_drafter(drafter, args.work / CHECKPOINT, **facts)
    print(json.dumps(summary))


def _evaluate(args: argparse.Namespace) -> None:
    from hybrid_spark.drafter.evaluate import evaluate
    from hybrid_spark.drafter.export import serving_copy, weights_digest
    from hybrid_spark.drafter.train import load_drafter

    drafter, _ = load_drafter(args.work / CHECKPOINT, _embedding(args.target))
    corpus = args.work / "corpus"
    result = evaluate(serving_copy(drafter), corpus, _examples(args, "evaluation"))
    result["weights_sha256"] = weights_digest(drafter)
    (args.work / "evaluation.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def _online(args: argparse.Namespace) -> None:
    from hybrid_spark.drafter.online import calibration_online, measure_online

    path = args.work / "evaluation.json"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; run `evaluate` first: it says which weights these are.")
    evaluation = json.loads(path.read_text(encoding="utf-8"))
    prompts = [example.tokens[: example.num_prompt_tokens] for example in _examples(args, "evaluation")]
    measured = measure_online(
        args.url,
        prompts,
        max_output_tokens=args.max_output_tokens,
        num_concurrent=1 if args.steps else args.num_concurrent,
    )
    if args.steps:
        # Such a server verifies what its budget admits; its acceptance by position is not the drafter's.
        measured = evaluation.get("online", {}) | {"confidence": calibration_online(args.steps)}
    else:
        measured |= {key: value for key, value in evaluation.get("online", {}).items() if key == "confidence"}
    evaluation["online"] = measured
    path.write_text(json.dumps(evaluation, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(evaluation["online"]))


def _export(args: argparse.Namespace) -> None:
    import datetime
    import importlib.metadata

    from hybrid_spark.drafter.export import export
    from hybrid_spark.drafter.sources import licences
    from hybrid_spark.drafter.train import load_drafter

    drafter, facts = load_drafter(args.work / CHECKPOINT, _embedding(args.target))
    if "calibration" not in facts:
        raise ValueError("the confidence head was not fitted; run `calibrate` first.")
    measured = args.work / "evaluation.json"
    facts |= {
        "target": args.target_name,
        "sources": licences(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers")},
    }
    evaluation = json.loads(measured.read_text(encoding="utf-8")) if measured.exists() else None
    size = export(drafter, args.folder, target_layer_ids=DEFAULT_LAYERS, facts=facts, evaluation=evaluation)
    print(f"{args.folder}: {size} bytes of weights")


def _examples(args: argparse.Namespace, split: str) -> "list[Example]":
    """Answers of a split in the order their prompts were drawn; the file's order would put short answers first."""
    from hybrid_spark.drafter.corpus import read_examples

    examples = read_examples(args.work / "corpus", split)
    return sorted(examples, key=lambda example: example.prompt_id)[: args.num_answers]


def _embedding(target: Path) -> "Tensor":
    from safetensors import safe_open

    path = target / "model.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; --target must be a folder with the model in one file.")
    with safe_open(str(path), framework="pt") as file:
        return file.get_tensor("model.embed_tokens.weight")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 2 on bad input."""
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    import torch

    torch.set_num_threads(args.num_threads)
    try:
        globals()[f"_{args.command}"](args)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
