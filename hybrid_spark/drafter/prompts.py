"""Prompts for the target model: templates times words times snippets, drawn with a fixed seed."""

import random
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hybrid_spark.drafter.sources import Snippet
from hybrid_spark.drafter.templates import FILLERS, HELD_OUT_FILLERS, TEMPLATES

__all__ = ["FAMILY_SHARE", "Prompt", "draw_prompts"]

FAMILY_SHARE = {"chat": 0.5, "code": 0.34, "text": 0.16, "mixed": 1.0}
"""Share of the training prompts each family of templates gets (``mixed`` is the held-out splits' only family)."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Prompt:
    """One user message and where it comes from."""

    prompt_id: str
    split: str
    family: str
    template: int
    """Index of the template in its family."""
    origin: str
    """Where the snippet inside comes from; empty when the prompt has none."""
    text: str


def draw_prompts(split: str, snippets: Sequence[Snippet], *, seed: int = 0) -> Iterator[Prompt]:
    """Endless distinct prompts of one split; the same seed and snippets give the same prompts in the same order.

    Args:
        split: ``train``, ``calibration`` or ``evaluation``.
        snippets: From ``sources.collect``; only those of ``split`` are used.
        seed: Seed of the draw.

    Raises:
        ValueError: An unknown split, or no snippet of a needed kind in it.
    """
    if split not in TEMPLATES:
        raise ValueError(f"split must be one of {sorted(TEMPLATES)}, got {split!r}.")
    pools = {kind: [s for s in snippets if s.kind == kind and s.split == split] for kind in ("code", "passage")}
    if not all(pools.values()):
        raise ValueError(f"split {split!r} needs at least one snippet of each kind (code, passage).")
    words = HELD_OUT_FILLERS if split == "evaluation" else FILLERS
    chooser = random.Random(f"{split}/{seed}")
    families = list(TEMPLATES[split])
    shares = [FAMILY_SHARE[family] for family in families]
    seen: set[str] = set()
    used: Counter[str] = Counter()
    while True:
        family = chooser.choices(families, shares)[0]
        template = chooser.randrange(len(TEMPLATES[split][family]))
        text, origin = _fill(TEMPLATES[split][family][template], words, pools, chooser)
        if text in seen:
            used["repeat"] += 1
            if used["repeat"] > 1000 + 10 * len(seen):
                return
            continue
        seen.add(text)
        number = f"{split}-{seed}-{len(seen):06d}"
        yield Prompt(prompt_id=number, split=split, family=family, template=template, origin=origin, text=text)


def _fill(
    template: str, words: dict[str, tuple[str, ...]], pools: dict[str, list[Snippet]], chooser: random.Random
) -> tuple[str, str]:
    fields = {field for _, field, _, _ in string.Formatter().parse(template) if field}
    values: dict[str, str] = {}
    origin = ""
    for kind in ("code", "passage"):
        if kind in fields:
            snippet = chooser.choice(pools[kind])
            values |= {kind: snippet.text, "name": snippet.name}
            origin = snippet.origin
    for field, low, high in (("n", 2, 9), ("m", 11, 60), ("k", 2, 10)):
        values[field] = str(chooser.randint(low, high))
    for field in sorted(fields - values.keys()):
        kind = field.rstrip("23")
        taken = [values[other] for other in values if other.rstrip("23") == kind]
        values[field] = chooser.choice([word for word in words[kind] if word not in taken])
    return template.format_map(values), origin
