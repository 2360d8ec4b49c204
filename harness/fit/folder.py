"""The folder of a fit, written whole or not at all, and never over another one unasked."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import ConfigError

__all__ = ["COEFFICIENTS_FILE", "FIT_FILE", "check_free", "new_folder"]

COEFFICIENTS_FILE = "coefficients.json"
FIT_FILE = "fit.json"


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something.

    Raises:
        ConfigError: It holds a fit and `overwrite` is false, or something else, which is never replaced.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"--out={folder} must be a folder, and is a file. Name another.")
    if not any(folder.iterdir()):
        return
    if not (folder / FIT_FILE).is_file():
        raise ConfigError(f"--out={folder} holds other files than a fit's. Name another folder.")
    if not overwrite:
        raise ConfigError(f"--out={folder} already holds a fit. Name another folder, or replace it with --overwrite.")


@contextmanager
def new_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A staging folder that takes its place when the block ends well.

    Raises:
        ConfigError: The place is taken (`check_free`), or cannot be written.
    """
    check_free(folder, overwrite=overwrite)
    suffix = uuid.uuid4().hex[:8]
    staging, former = (folder.with_name(f".{folder.name}.{what}-{suffix}") for what in ("incomplete", "former"))
    try:
        staging.mkdir(parents=True)
        yield staging
        check_free(folder, overwrite=overwrite)
        if folder.exists():
            os.rename(folder, former)
        os.rename(staging, folder)
    except OSError as error:
        raise ConfigError(f"--out={folder} cannot be written: {error}. Name another folder.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(former, ignore_errors=True)
