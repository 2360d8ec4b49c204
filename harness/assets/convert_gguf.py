"""Convert a GGUF file to bfloat16 safetensors with tokenizer and chat template; run as a script.

Usage: convert_gguf.py MODEL.gguf OUTPUT_FOLDER
"""

import json
import sys
from pathlib import Path

GPT2_REGEX_AND_DIGITS = "smollm"


def convert(gguf: Path, folder: Path) -> None:
    """Write the model into a folder that exists."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    options = {}
    if hasattr(transformers, "GgufConfig"):  # transformers before 5 dequantised without being asked
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.bfloat16, **options)
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise SystemExit(f"{name} has values that are not finite")
    # GGUF stores float32: 9.999999747378752e-06 is the original's 1e-05.
    model.config.rms_norm_eps = float(f"{model.config.rms_norm_eps:.6g}")
    model.generation_config = GenerationConfig(
        bos_token_id=model.config.bos_token_id,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    restore_pre_tokenizer(tokenizer, gguf)
    tokenizer.save_pretrained(folder)
    drop_local_traces(folder)


def restore_pre_tokenizer(tokenizer, gguf: Path) -> None:  # type: ignore[no-untyped-def]
    """Split digits one by one where the GGUF says so: transformers' GGUF reader ignores `tokenizer.ggml.pre`.

    Without it runs of spaces before a digit are cut at another place than in training.
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(str(gguf)).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() == GPT2_REGEX_AND_DIGITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )


def drop_local_traces(folder: Path) -> None:
    """Remove what describes this conversion rather than the model, so that equal input gives equal files."""
    for name, keys in {
        "config.json": ("_name_or_path", "_model_name_or_path"),
        "generation_config.json": ("_from_model_config",),
        "tokenizer_config.json": ("is_local", "local_files_only", "name_or_path"),
    }.items():
        path = folder / name
        content = json.loads(path.read_text(encoding="utf-8"))
        kept = {key: value for key, value in content.items() if key not in keys}
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
