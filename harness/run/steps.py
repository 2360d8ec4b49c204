"""The server's step records: collected after each segment, so that none is lost when the server stops."""

import time
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["StepFiles"]

FLUSH_REQUEST = "flush"
"""The plugin's step recorder writes what it holds and removes a file of this name from its folder."""
FLUSH_TIMEOUT_S = 30.0
_POLL_S = 0.05


@dataclass(kw_only=True, slots=True)
class StepFiles:
    """Parts of a running server's step records, `steps-<pid>-<n>.parquet`.

    Args:
        folder: Where the server writes them.
        timeout_s: Bound on the recorder's answer.
    """

    folder: Path
    timeout_s: float = FLUSH_TIMEOUT_S
    _seen: set[str] = field(default_factory=set)

    def collect(self) -> tuple[list[str], str | None]:
        """Return the parts written since the last call, by name in order, and what is wrong with them, if anything.

        Call it once the server is idle. Without a step of a full batch there is no part.
        """
        note = self._flush()
        parts = sorted(path.name for path in self.folder.glob("steps-*.parquet"))
        new = [name for name in parts if name not in self._seen]
        self._seen.update(new)
        return new, note

    def discard(self) -> None:
        """Remove the parts written so far: those of the warm-up."""
        new, _ = self.collect()
        for name in new:
            (self.folder / name).unlink()

    def _flush(self) -> str | None:
        if not self.folder.is_dir():
            return "the server keeps no step records"
        request = self.folder / FLUSH_REQUEST
        request.touch()
        deadline = time.monotonic() + self.timeout_s
        while request.exists():
            if time.monotonic() > deadline:
                request.unlink(missing_ok=True)
                return f"step records may be missing: the server confirmed none within {self.timeout_s:g} s"
            time.sleep(_POLL_S)
        return None
