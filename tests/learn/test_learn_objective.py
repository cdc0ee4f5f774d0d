"""A stage's losses side by side."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from tests.losses.loss_parts import random_inputs, replaced

from posttrain.core.errors import ConfigError, UnknownNameError
from posttrain.learn.objective import Objective

POLICY, KL, ENTROPY, VALUE = (
    {"name": "clipped_policy_gradient"},
    {"name": "kl_penalty", "coefficient": 0.1},
    {"name": "entropy_bonus", "coefficient": 0.1},
    {"name": "value"},
)
GIVEN = random_inputs([3, 2])


def test_terms_and_metrics_of_all_losses_stand_side_by_side() -> None:
    out = Objective.build([POLICY, KL, ENTROPY, VALUE]).terms(GIVEN, {})
    assert list(out.terms) == ["policy_loss", "kl_loss", "entropy_loss", "value_loss"]
    assert {"importance_ratio", "kl", "value_error", "entropy"} <= out.metrics.keys()
    assert set(out.maxima) == {"mismatch_max"}
    alone = Objective.build([KL]).terms(GIVEN, {})
    assert torch.equal(out.terms["kl_loss"], alone.terms["kl_loss"])


def test_factor_scales_the_terms_of_its_loss_alone() -> None:
    objective = Objective.build([POLICY, KL])
    plain, scaled = (objective.terms(GIVEN, factors) for factors in ({}, {"kl_penalty": 2.5}))
    assert torch.equal(scaled.terms["kl_loss"], 2.5 * plain.terms["kl_loss"])
    assert torch.equal(scaled.terms["policy_loss"], plain.terms["policy_loss"])
    assert torch.equal(scaled.metrics["kl"], plain.metrics["kl"])


def test_entropy_is_reported_once_and_without_gradient_where_it_is_given() -> None:
    out = Objective.build([POLICY]).terms(GIVEN, {})
    assert GIVEN.entropy is not None
    assert torch.equal(out.metrics["entropy"], GIVEN.entropy.detach())
    assert not out.metrics["entropy"].requires_grad
    assert "entropy" not in Objective.build([POLICY]).terms(replaced(GIVEN, entropy=None), {}).metrics


def test_what_a_stage_needs_is_what_any_of_its_losses_needs() -> None:
    def needs(*specs: Mapping[str, object]) -> tuple[bool, bool]:
        objective = Objective.build(list(specs))
        return objective.needs_reference, objective.needs_critic

    assert needs(POLICY, ENTROPY) == (False, False)
    assert needs(POLICY, KL) == (True, False)
    assert needs(VALUE, POLICY) == (False, True)


def test_no_loss_the_same_loss_twice_and_unknown_losses_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs losses that differ"):
        Objective.build([])
    with pytest.raises(ConfigError, match="needs losses that differ"):
        Objective.build([KL, KL])
    with pytest.raises(UnknownNameError, match="did you mean 'value'"):
        Objective.build([POLICY, {"name": "valu"}])


def test_two_losses_for_one_term_are_refused() -> None:
    with pytest.raises(ConfigError, match="term of the same name"):
        Objective.build([POLICY, {"name": "gspo"}]).terms(GIVEN, {})


def test_factor_of_an_absent_loss_is_refused() -> None:
    objective = Objective.build([POLICY, KL])
    objective.check_factors({"kl_penalty": 1.0})
    with pytest.raises(ConfigError, match="no loss of this stage 'entropy_bonus'"):
        objective.check_factors({"entropy_bonus": 1.0})
