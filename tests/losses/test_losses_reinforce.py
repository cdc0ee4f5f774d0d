"""Truncated weights and tokens that are left out."""

from __future__ import annotations

import math

import pytest
from tests.losses.loss_parts import inputs, replaced, slopes, tensor

from posttrain.losses.reinforce import Reinforce


def test_weight_is_the_ratio_up_to_the_cap() -> None:
    given = inputs([0.1, 1.0, 1.9, 5.0, 5.0], [1.0, 2.0, -1.0, 1.0, -1.0])
    assert slopes(Reinforce(max_importance_weight=2.0), given) == pytest.approx([-0.1, -2.0, 1.9, -2.0, 2.0])
    assert slopes(Reinforce(max_importance_weight=0.0), given) == pytest.approx([-0.1, -2.0, 1.9, -5.0, 5.0])


def test_value_is_weight_times_advantage_times_log_prob() -> None:
    term = Reinforce()(inputs([1.0, 5.0], [3.0, -1.0])).terms["policy_loss"]
    assert term.tolist() == pytest.approx([6.0, -4.0])


def test_tokens_outside_the_mask_do_not_push_and_are_counted() -> None:
    loss = Reinforce(max_importance_weight=2.0, mask_low=0.5, mask_high=5.0)
    given = inputs([0.4, 0.6, 1.0, 4.0, 6.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    assert slopes(loss, given) == pytest.approx([0.0, -0.6, -1.0, -2.0, 0.0])
    out = loss(given)
    assert out.terms["policy_loss"].tolist()[::4] == [0.0, 0.0]
    assert out.metrics["masked_share"].tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert out.metrics["capped_share"].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


def test_each_bound_of_the_mask_works_alone() -> None:
    given = inputs([0.4, 6.0], [1.0, 1.0])
    assert slopes(Reinforce(mask_low=0.5), given) == pytest.approx([0.0, -2.0])
    assert slopes(Reinforce(mask_high=5.0), given) == pytest.approx([-0.4, 0.0])
    assert Reinforce()(given).metrics["masked_share"].tolist() == [0.0, 0.0]


def test_log_prob_that_is_not_a_number_is_not_masked_away() -> None:
    given = replaced(inputs([1.0], [1.0]), trainer_logprobs=tensor([math.nan]))
    assert Reinforce(mask_low=0.5, mask_high=5.0)(given).terms["policy_loss"].isnan().all()


@pytest.mark.parametrize(
    "options",
    [{"max_importance_weight": 0.5}, {"max_importance_weight": math.nan}, {"mask_low": 1.0}, {"mask_low": -0.1},
     {"mask_high": 1.0}, {"mask_high": math.nan}],
    ids=str,
)  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Reinforce(**options)
