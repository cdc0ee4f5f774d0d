"""L3 for every registered loss: what stands in one sample is not read for another, NaN and infinities included.

Masked tokens never reach a loss (`tests/laws/test_l03_masked_values.py`); what is left to leak is the neighbour.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.loss_parts import (
    CONSTANTS,
    DIFFERENTIATED,
    SEEDS,
    gradients,
    policy_losses,
    random_inputs,
    registered_losses,
    replaced,
)

from posttrain.core.registry import build
from posttrain.losses.base import LossInputs

POISONS = st.sampled_from([math.nan, math.inf, -math.inf, 1e30])


def poisoned(clean: LossInputs, segment: int, poison: float) -> LossInputs:
    fields = {}
    for name in (*CONSTANTS, *DIFFERENTIATED):
        dirty = getattr(clean, name).detach().masked_fill(clean.segments == segment, poison)
        fields[name] = dirty.requires_grad_(name in DIFFERENTIATED)
    return replaced(clean, **fields)


@pytest.mark.parametrize("name", registered_losses())
@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 4), min_size=2, max_size=4), seed=SEEDS, poison=POISONS, data=st.data())
def test_poison_in_one_sample_does_not_reach_another(
    name: str, lengths: list[int], seed: int, poison: float, data: st.DataObject
) -> None:
    clean = random_inputs(lengths, seed)
    segment = data.draw(st.integers(0, len(lengths) - 1))
    dirty = poisoned(clean, segment, poison)
    others = clean.segments != segment
    loss = build("loss", name)
    before, after = loss(clean), loss(dirty)
    for kind in ("terms", "metrics", "maxima"):
        for key, values in getattr(before, kind).items():
            assert torch.equal(getattr(after, kind)[key][others], values[others]), key
    ours, theirs = (gradients(loss, given, others.double()) for given in (clean, dirty))
    for field, values in ours.items():
        assert torch.equal(theirs[field][others], values[others]), field


@pytest.mark.parametrize("name", policy_losses())
@pytest.mark.parametrize("field", ["trainer_logprobs", "behavior_logprobs", "advantages"])
def test_poison_in_a_loss_token_is_not_swallowed(name: str, field: str) -> None:
    """A loss that hides a NaN trains on with a wrong mean; one that passes it on stops the step."""
    clean = random_inputs([3, 2])
    dirty = getattr(clean, field).detach().clone()
    dirty[1] = math.nan
    found = build("loss", name)(replaced(clean, **{field: dirty})).terms["policy_loss"]
    assert found[1].isnan()
