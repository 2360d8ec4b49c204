"""What runs on a node: one repeat of one cell, its records sent home."""

import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import ray

from harness.cell import run_cell
from harness.plan import Run
from harness.schema import Record

__all__ = ["StatusBoard", "make_board", "run_remote", "unpack"]


class StatusBoard:
    """Where running cells say what they are doing; the driver reads it once a second."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def set(self, key: str, text: str) -> None:
        """Replace a run's line."""
        self._texts[key] = text

    def texts(self) -> dict[str, str]:
        """All lines by run."""
        return self._texts


def make_board() -> Any:
    """Start the board as a Ray actor; returns its handle."""
    return ray.remote(num_cpus=0, max_restarts=0)(StatusBoard).remote()


# max_retries=0: a task that Ray silently ran twice would measure a cell twice; retries are the sweep's, and recorded
@ray.remote(max_retries=0)
def run_remote(
    run: Run, overrides: list[str], store_root: str | None, board: Any, key: str, guard_pids: list[int]
) -> tuple[Record, bytes | None]:
    """Run one repeat.

    Args:
        run: The cell and the number of the repeat.
        overrides: Command-line overrides, for the record.
        store_root: The sweep's folder if this node shares the driver's disk; null packs the files and returns them.
        board: Handle of the `StatusBoard`.
        key: The run's key on the board.
        guard_pids: Processes of this node besides our own whose death must end the server.

    Returns:
        The record, and the repeat's folder as a tar archive if the driver must store it.
    """

    def on_status(text: str) -> None:
        board.set.remote(key, text)

    if store_root is not None:
        record = run_cell(
            run.cell,
            run.repeat,
            store_root=Path(store_root),
            overrides=overrides,
            on_status=on_status,
            guard_pids=guard_pids,
        )
        return record, None
    with tempfile.TemporaryDirectory(prefix="hybrid-spark-") as folder:
        root = Path(folder)
        record = run_cell(run.cell, run.repeat, store_root=root, overrides=overrides, on_status=on_status)
        stored = next(root.glob(f"{record.cell_id}/r*"), None)  # none where the node's disk is full
        return record, _pack(stored) if stored else None


def _pack(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, arcname=".")
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Unpack a repeat's files into a staging folder."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
