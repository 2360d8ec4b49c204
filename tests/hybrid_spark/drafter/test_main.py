import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_spark.drafter.__main__ import main


def test_a_step_whose_input_is_missing_names_the_step_before(
    tmp_path: Path, target_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--target", str(target_folder), "--work", str(tmp_path)]) == 2
    assert "run `train` first" in capsys.readouterr().err


def test_a_folder_without_weights_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--target", str(tmp_path), "--work", str(tmp_path)]) == 2
    assert "model.safetensors does not exist" in capsys.readouterr().err


def test_importing_hybrid_spark_or_asking_for_help_loads_no_torch() -> None:
    code = (
        "import sys, hybrid_spark, hybrid_spark.drafter.__main__ as m\n"
        "try: m.main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
