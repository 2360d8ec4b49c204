"""What must not reach a record or a log: secrets, by name, value and shape; and where folders lie on this machine."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["REDACTED", "Redactor", "is_secret_name", "machine_places"]

REDACTED = "<redacted>"
_SECRET_WORDS = ("token", "key", "secret", "password", "passwd", "passphrase", "credential", "credentials", "bearer")
_MIN_VALUE_LENGTH = 6
"""Shorter values ("1", "true") would be cut out of innocent text."""
_SHAPES = (
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s:@]+(?=@)"),
)
_NAMED = re.compile(
    r"(?i)((?:api[-_]?key|(?:hf|hub|auth|access|api)[-_]token|secret|password)['\"]?\s*[:=,]\s*\[?['\"]?)"
    r"[^\s'\",\]}]{4,}"
)
"""`--api-key=...` inside a longer text, `'api_key': ['...']` in vLLM's list of arguments."""


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, argument or key of this name holds a secret.

    Words are compared whole, so that `max_num_batched_tokens` and `tokenizer` are not secrets while `HF_TOKEN`,
    `--api-key`, `apiKey` and `AWS_SECRET_ACCESS_KEY` are.
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]
    return any(word in _SECRET_WORDS or word.endswith(("apikey", "accesskey", "authtoken")) for word in words)


def machine_places(run_dir: Path | None = None) -> dict[str, str]:
    """Folders of this machine and what records call them, so that a record reads the same wherever it was made.

    Args:
        run_dir: The run's own folder, which moves when it is complete.
    """
    places = {str(Path(sys.prefix)): "<env>", str(Path(__file__).resolve().parents[1]): "<project>"}
    home = Path.home()
    if len(home.parts) > 1:
        places[str(home)] = "~"
    if run_dir is not None:
        places |= {str(run_dir): "<run>", str(run_dir.resolve()): "<run>"}
    return places


class Redactor:
    """Removes secrets, and the places of folders, from what is about to be written.

    Args:
        environs: Environments whose secret variables' values must not appear anywhere.
        places: Folder -> its name in records.
    """

    def __init__(self, *environs: Mapping[str, str], places: Mapping[str, str] | None = None) -> None:
        values = {
            value
            for environ in environs or (os.environ,)
            for name, value in environ.items()
            if is_secret_name(name) and len(value) >= _MIN_VALUE_LENGTH
        }
        self._values = sorted(values, key=len, reverse=True)  # a value that contains another goes first
        longest_first = sorted((places or {}).items(), key=lambda place: len(place[0]), reverse=True)
        self._places = [(re.compile(rf"(?<![\w.~-]){re.escape(path)}(?![\w.-])"), name) for path, name in longest_first]

    def text(self, text: str) -> str:
        """Free text, such as a log's tail."""
        for value in self._values:
            text = text.replace(value, REDACTED)
        for shape in _SHAPES:
            text = shape.sub(REDACTED, text)
        for path, name in self._places:
            text = path.sub(name, text)
        return _NAMED.sub(rf"\1{REDACTED}", text)

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Environment variables: secret ones keep their name only."""
        return {name: REDACTED if is_secret_name(name) else self.text(value) for name, value in env.items()}

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line, with `--name=value` and `--name value` both understood."""
        cleaned: list[str] = []
        after_secret = False
        for argument in argv:
            name, separator, _ = argument.partition("=")
            is_option = argument.startswith("-")
            if after_secret and not is_option:
                cleaned.append(REDACTED)
                continue
            if separator and is_secret_name(name):
                cleaned.append(f"{name}={REDACTED}")
            else:
                cleaned.append(self.text(argument))
            after_secret = is_option and not separator and is_secret_name(name)
        return cleaned

    def tree(self, value: Any) -> Any:
        """Nested plain values: entries under a secret name are replaced, every text is cleaned."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                key: REDACTED if is_secret_name(str(key)) and isinstance(item, str) and item else self.tree(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            if all(isinstance(item, str) for item in value):
                return self.argv(value)  # such as engine.extra_args
            return [self.tree(item) for item in value]
        return value

    def file(self, path: Path) -> bool:
        """Clean a log file in place.

        Returns:
            Whether anything was removed.
        """
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return False
        cleaned = self.text(text)
        if cleaned == text:
            return False
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(cleaned, encoding="utf-8", errors="surrogateescape")
        temporary.replace(path)
        return True
