"""One ratio for a sequence: what it is, what is clipped, and which derivative it has."""

from __future__ import annotations

import math

import pytest
import torch
from tests.losses.loss_parts import inputs, random_inputs, replaced, slopes, tensor
from torch import Tensor

from posttrain.losses.base import LossInputs
from posttrain.losses.gspo import GSPO

LENGTHS = [3, 1, 5, 2]
WIDE = GSPO(clip_low=1.0, clip_high=1e9)


def one_advantage_per_sequence(seed: int = 0, spread: float = 0.05) -> LossInputs:
    given = random_inputs(LENGTHS, seed, spread=spread)
    return replaced(given, advantages=tensor([1.0, -0.5, -2.0, 0.7])[given.segments])


def paper_objective(given: LossInputs, low: float, high: float, *, length_normalized: bool = True) -> Tensor:
    """`[num_segments]`: −min(s A, clip(s) A) with the derivative through s, sequence by sequence."""
    result = []
    for segment in range(given.num_segments):
        own = given.segments == segment
        log_ratios = given.trainer_logprobs[own] - given.behavior_logprobs[own]
        ratio = (log_ratios.mean() if length_normalized else log_ratios.sum()).exp()
        advantage = given.advantages[own][0]
        result.append(-torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage))
    return torch.stack(result)


@pytest.mark.parametrize("length_normalized", [True, False], ids=["mean", "product"])
@pytest.mark.parametrize("bounds", [(3e-4, 4e-4), (0.05, 0.02), (0.1, 1e9)], ids=str)
def test_sequences_have_value_and_gradient_of_the_papers_objective(
    bounds: tuple[float, float], length_normalized: bool
) -> None:
    given = one_advantage_per_sequence(seed=1, spread=2 * bounds[0])
    wanted = paper_objective(given, *bounds, length_normalized=length_normalized)
    weights = (1.0 / tensor([float(n) if length_normalized else 1.0 for n in LENGTHS]))[given.segments]
    ours = GSPO(*bounds, length_normalized)(given).terms["policy_loss"] * weights
    sums = torch.zeros(len(LENGTHS), dtype=torch.float64).index_add(0, given.segments, ours)
    assert torch.allclose(sums, wanted, rtol=0, atol=1e-12)
    mine, papers = (torch.autograd.grad(value.sum(), given.trainer_logprobs)[0] for value in (ours, wanted))
    assert papers.abs().max() > 0.1
    assert torch.allclose(mine, papers, rtol=0, atol=1e-12)


def test_ratio_is_the_geometric_mean_of_its_own_sequence() -> None:
    given = inputs([2.0, 0.5, 4.0, 3.0], [1.0] * 4, segments=torch.tensor([0, 0, 0, 1]), num_segments=2)
    means = WIDE(given).metrics["sequence_ratio"].tolist()
    assert means == pytest.approx([4.0 ** (1 / 3)] * 3 + [3.0])
    products = GSPO(1.0, 1e9, length_normalized=False)(given).metrics["sequence_ratio"].tolist()
    assert products == pytest.approx([4.0] * 3 + [3.0])


def test_whole_sequences_are_clipped_whatever_their_single_tokens_do() -> None:
    given = inputs([9.0, 0.2, 9.0, 0.1], [1.0, 1.0, -1.0, -1.0], segments=torch.tensor([0, 0, 1, 1]), num_segments=2)
    loss = GSPO(clip_low=0.2, clip_high=0.2)  # ratios 1.34 and 0.95
    assert slopes(loss, given) == pytest.approx([0.0, 0.0, 0.9**0.5, 0.9**0.5])
    assert loss(given).metrics["clipped_share"].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_each_tokens_own_advantage_reaches_that_token() -> None:
    """GSPO-token: the sequence's ratio, the token's advantage and the token's gradient."""
    given = inputs([2.0, 0.5], [3.0, -1.0])
    assert slopes(WIDE, given) == pytest.approx([-3.0, 1.0])


def test_clipping_looks_at_the_sign_of_each_tokens_advantage() -> None:
    given = inputs([2.0, 2.0], [1.0, -1.0])
    assert slopes(GSPO(), given) == pytest.approx([0.0, 2.0])


def test_infinitely_unlikely_sequence_stays_finite() -> None:
    far = replaced(inputs([1.0] * 3, [-1.0] * 3), behavior_logprobs=tensor([-1e6] * 3))
    for loss in (WIDE, GSPO(length_normalized=False)):
        out = loss(far)
        for values in (*out.terms.values(), *out.metrics.values(), *slopes(loss, far)):
            assert torch.isfinite(torch.as_tensor(values)).all()


@pytest.mark.parametrize("options", [{"clip_low": 0.0}, {"clip_low": 1.5}, {"clip_high": math.nan}], ids=str)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        GSPO(**options)  # type: ignore[arg-type]
