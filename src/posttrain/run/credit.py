"""Groups → rows to learn from, in three steps: advantages (pure), selection, annotation (what needs the model).

Statistics come first and filters after (law L9). What was left out is counted, by reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from posttrain.core.protocols import Advantage, Learner
from posttrain.core.types import Group
from posttrain.learn.samples import Selection, Truncated, to_samples


async def credit(
    groups: Sequence[Group],
    advantage: Advantage,
    learner: Learner,
    *,
    temperature: float,
    truncated: Truncated,
    reference: bool,
) -> Selection:
    """The step's samples, with the reference policy's log-probs where `reference` asks for them."""
    selection = to_samples(groups, advantage(groups), temperature=temperature, truncated=truncated)
    if not (reference and selection.samples):
        return selection
    rows = await learner.logprobs(selection.samples, reference=True)
    annotated = [
        dataclasses.replace(sample, reference_logprobs=row) for sample, row in zip(selection.samples, rows, strict=True)
    ]
    return dataclasses.replace(selection, samples=annotated)
