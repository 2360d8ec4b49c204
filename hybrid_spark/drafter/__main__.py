"""``python -m hybrid_spark.drafter generate|train|calibrate|export|evaluate``: a small DSpark drafter from scratch."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

DEFAULT_LAYERS = (9, 19, 29)


def _cache() -> Path:
    root = os.environ.get("HYBRID_SPARK_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "hybrid-spark"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hybrid_spark.drafter", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser("generate", help="the target's greedy answers and hidden states (resumes)")
    generate.add_argument("--split", choices=("train", "calibration", "evaluation"), default="train")
    generate.add_argument("--seed", type=int, default=0, help="another seed in another process adds other prompts")
    generate.add_argument("--num-output-tokens", type=int, default=500_000)
    generate.add_argument("--num-slots", type=int, default=64)
    generate.add_argument("--max-output-tokens", type=int, default=192)
    for command in (generate,):
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
    prompts = draw_prompts(args.split, collect(), seed=args.seed)
    num_tokens = generate(config, target, prompts, encode, tokenizer.eos_token_id)
    print(f"{args.split}: {num_tokens} output tokens in {config.corpus}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 2 on bad input."""
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    import torch

    torch.set_num_threads(args.num_threads)
    try:
        globals()[f"_{args.command}"](args)
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
