"""Templates whose values are escaped: markup, and control characters that a browser or a terminal would act on."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.tables.render import printable

__all__ = ["escaping_environment"]


def escaping_environment(folder: Path) -> Environment:
    """Jinja's environment of a template folder; only `Markup` is left as it is, and an unknown name is an error."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _visible(value: Any) -> Any:
    """Control characters are replaced before the template escapes a string; markup is escaped already."""
    return printable(value, keep="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value
