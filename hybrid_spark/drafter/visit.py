"""Walk recorded answers the way a decoder does: draft, keep the accepted prefix, draft again after the rejection.

A decoder visits harder positions than the average (it re-drafts right where the drafter just failed), so acceptance
and calibration are only meaningful at the anchors it visits. At temperature 0 the walk needs no target: the answer
is the target's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hybrid_spark.drafter.corpus import Example, load_batch
from hybrid_spark.drafter.model import DSparkDrafter

__all__ = ["Visits", "visit"]


@dataclass(kw_only=True, slots=True)
class Visits:
    """N drafts and their M reached slots (those whose earlier slots were all accepted and that could be judged)."""

    num_accepted: Tensor
    """int64[N]."""
    num_judged: Tensor
    """int64[N]: slots with a recorded token to compare with; fewer than K near the end of an answer."""
    example: Tensor
    """int64[N]: index of the answer."""
    slot: Tensor
    """int64[M]."""
    slot_example: Tensor
    """int64[M]: index of the answer."""
    accepted: Tensor
    """bool[M]."""
    confidence: Tensor
    """float32[M]."""
    features: Tensor
    """float32[M, H + rank]: the confidence head's input."""

    def acceptance(self, position: int) -> tuple[float | None, int]:
        """Share of drafts whose first ``position + 1`` tokens are all accepted, and of how many judgeable drafts."""
        judged = self.num_judged > position
        count = int(judged.sum())
        return ((self.num_accepted[judged] > position).float().mean().item() if count else None), count

    @property
    def acceptance_length(self) -> float:
        """Tokens a draft yields on average, the target's own bonus token included."""
        return 1 + self.num_accepted.float().mean().item()


@torch.inference_mode()
def visit(drafter: DSparkDrafter, corpus: Path, examples: Sequence[Example], *, num_seqs: int = 16) -> Visits:
    """Decode every example with ``drafter`` and record what happened.

    Args:
        drafter: In the number format it is to be served in.
        corpus: Folder of ``generate``.
        examples: Answers to walk.
        num_seqs: Examples walked side by side.
    """
    drafter.eval()
    block = drafter.config.block_size
    parts: dict[str, list[Tensor]] = {name: [] for name in Visits.__dataclass_fields__}
    order = sorted(range(len(examples)), key=lambda index: len(examples[index].tokens))
    for start in range(0, len(order), num_seqs):
        rows = order[start : start + num_seqs]
        batch = load_batch(corpus, [examples[row] for row in rows])
        numbers, last = torch.tensor(rows), batch.num_tokens - 1
        context = drafter.context(batch.states.to(drafter.fc.weight.dtype))
        positions, lanes = batch.num_prompt_tokens.clone(), torch.arange(len(rows))
        while bool((positions < last).any()):
            # Finished rows are drafted along at their last anchor and thrown away: simpler than compacting the context.
            active = positions < last
            at = positions.minimum(last - 1)
            draft = drafter.draft(context, batch.tokens[lanes, at], at)
            following = at[:, None] + 1 + torch.arange(block)
            judged = (following <= last[:, None]) & active[:, None]
            equal = draft.tokens == batch.tokens.gather(1, following.minimum(last[:, None]))
            prefix = (equal & judged).long().cumprod(1)
            num_accepted = prefix.sum(1)
            reached = judged & torch.cat([torch.ones(len(rows), 1, dtype=torch.int64), prefix[:, :-1]], 1).bool()
            parts["num_accepted"].append(num_accepted[active])
            parts["num_judged"].append(judged.sum(1)[active])
            parts["example"].append(numbers[active])
            parts["slot"].append(torch.arange(block).expand(len(rows), -1)[reached])
            parts["slot_example"].append(numbers[:, None].expand(-1, block)[reached])
            parts["accepted"].append(equal[reached])
            parts["confidence"].append(draft.confidence[reached])
            parts["features"].append(draft.features[reached])
            positions = torch.where(active, positions + num_accepted + 1, positions)
    return Visits(**{name: torch.cat(tensors) for name, tensors in parts.items()})
