"""The contract kit of losses: every registered loss passes, and each mistake is found by the name of its law."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.core.registry import build, names
from posttrain.losses.base import LossInputs, Terms
from posttrain.testing import LawResult, check_loss

OPTIONS: list[dict[str, Any]] = [
    *({"name": name} for name in names("loss")),
    {"name": "gspo", "length_normalized": False},
    {"name": "reinforce", "max_importance_weight": 0.0, "mask_low": 0.5, "mask_high": 2.0},
    {"name": "clipped_policy_gradient", "dual_clip": 3.0, "max_importance_weight": 0.0},
    {"name": "kl_penalty", "estimator": "k1"},
    {"name": "kl_penalty", "estimator": "k2", "coefficient": 0.0},
    {"name": "value", "clip": 0.0},
]


@dataclass(frozen=True)
class OwnLoss:
    """A user's loss: a formula for its one term."""

    formula: Callable[[LossInputs], Tensor]
    needs_reference: bool = False
    needs_critic: bool = False
    term: str = "policy_loss"

    def __call__(self, inputs: LossInputs) -> Terms:
        return Terms({self.term: self.formula(inputs)})


def plain(inputs: LossInputs) -> Tensor:
    return -inputs.advantages * inputs.trainer_logprobs


def ratio(inputs: LossInputs) -> Tensor:
    return (inputs.trainer_logprobs - inputs.behavior_logprobs).exp()


def reference(inputs: LossInputs) -> Tensor:
    assert inputs.reference_logprobs is not None
    return inputs.reference_logprobs


def draws(inputs: LossInputs) -> Tensor:
    return plain(inputs) + 0.0 * torch.rand_like(inputs.advantages)


def changes_its_input(inputs: LossInputs) -> Tensor:
    inputs.advantages.mul_(2.0)
    return plain(inputs)


def previous_token(inputs: LossInputs) -> Tensor:
    return -inputs.advantages.roll(1) * inputs.trainer_logprobs


def mean_of_the_sample(inputs: LossInputs) -> Tensor:
    sums = torch.zeros(inputs.num_segments, dtype=inputs.advantages.dtype)
    lengths = sums.index_add(0, inputs.segments, torch.ones_like(inputs.advantages))
    return plain(inputs) * (1.0 / lengths)[inputs.segments]


def most_tokens(inputs: LossInputs) -> Tensor:
    return plain(inputs) + 0.0 * torch.bincount(inputs.segments).max()


BROKEN: dict[str, tuple[Callable[[LossInputs], Tensor], str]] = {
    "reduces": (lambda i: plain(i).mean(), "form"),
    "has_no_gradient": (lambda i: plain(i).detach(), "form"),
    "returns_another_dtype": (lambda i: plain(i).float(), "form"),
    "changes_its_input": (changes_its_input, "purity"),
    "draws": (draws, "purity"),
    "reads_the_neighbour": (previous_token, "L1 cutting"),
    "reads_the_neighbour_in_order": (previous_token, "L1 order"),
    "divides_by_the_number_of_tokens": (lambda i: plain(i) / len(i.advantages), "L2 reduction"),
    "centres_over_the_micro_batch": (lambda i: plain(i) - plain(i).mean(), "L3 neighbours"),
    "reads_a_reference_unasked": (
        lambda i: plain(i) if i.reference_logprobs is None else plain(i) + 0.0 * i.reference_logprobs,
        "L3 unread fields",
    ),
    "needs_a_reference_unsaid": (lambda i: plain(i) + 0.1 * (i.trainer_logprobs - reference(i)), "L3 needs"),
    "takes_the_largest_of_none": (most_tokens, "L4 empty"),
    "is_nan_at_advantage_zero": (lambda i: plain(i) * i.advantages / i.advantages, "finite"),
    "overflows": (lambda i: plain(i) * ratio(i).square().square().square().detach(), "finite"),
    "flips_the_sign": (lambda i: -plain(i), "L6 on-policy"),
    "forgets_to_detach_the_ratio": (lambda i: plain(i) * ratio(i), "L6 on-policy"),
    "divides_by_the_length": (mean_of_the_sample, "L6 on-policy"),
    "hides_nan": (lambda i: plain(i).nan_to_num(), "NaN shows"),
}


def broken(results: list[LawResult]) -> dict[str, LawResult]:
    return {result.law: result for result in results if not result}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_registered_loss_obeys_the_laws(options: dict[str, Any]) -> None:
    results = check_loss(build("loss", options))
    assert all(results), broken(results)
    assert len(results) == 13


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_mistake_is_found_by_the_name_of_its_law(mistake: str) -> None:
    formula, law = BROKEN[mistake]
    found = broken(check_loss(OwnLoss(formula)))
    assert law in found, found
    assert found[law].smallest_input


def test_a_correct_loss_of_ones_own_passes() -> None:
    assert all(check_loss(OwnLoss(lambda i: -ratio(i).clamp(max=9.0) * i.advantages)))


@pytest.mark.parametrize(
    "naive",
    [
        lambda i: i.trainer_logprobs - reference(i),
        lambda i: torch.expm1(reference(i) - i.trainer_logprobs) - reference(i) + i.trainer_logprobs,
        lambda i: -(i.trainer_logprobs - reference(i)).square() / 2,
    ],
    ids=["k1", "k3", "negative_k2"],
)
def test_a_term_that_says_kl_and_has_another_gradient_is_found(naive: Callable[[LossInputs], Tensor]) -> None:
    found = broken(check_loss(OwnLoss(naive, needs_reference=True, term="kl_loss")))
    assert set(found) == {"L5 KL"}
    assert "logits of the policy" in found["L5 KL"].smallest_input


def test_a_need_that_nothing_reads_is_found() -> None:
    assert set(broken(check_loss(OwnLoss(plain, needs_reference=True)))) == {"L3 needs"}
    assert set(broken(check_loss(OwnLoss(plain, needs_critic=True)))) == {"L3 needs"}


def test_a_metric_with_a_gradient_is_found() -> None:
    class Loss(OwnLoss):
        def __call__(self, inputs: LossInputs) -> Terms:
            return Terms({"policy_loss": plain(inputs)}, {"ratio": ratio(inputs)})

    assert [(r.law, r.what) for r in check_loss(Loss(plain))] == [("form", "metric ratio carries a gradient")]


def test_the_smallest_input_is_small_and_has_simple_numbers() -> None:
    results = broken(check_loss(OwnLoss(lambda i: plain(i) / len(i.advantages))))
    assert results["L2 reduction"].smallest_input == (
        "segments=[0, 1], num_segments=2, trainer_logprobs=[-1, -1], behavior_logprobs=[-1, -1], "
        f"advantages={results['L2 reduction'].smallest_input.partition('advantages=')[2]}"
    )
    one = broken(check_loss(OwnLoss(lambda i: -plain(i))))["L6 on-policy"]
    assert one.smallest_input.startswith("segments=[0], num_segments=1, trainer_logprobs=[-1]")


def test_an_exception_of_the_loss_is_its_own_and_a_sentence() -> None:
    def raises(inputs: LossInputs) -> Tensor:
        raise RuntimeError("no such thing")

    (result,) = check_loss(OwnLoss(raises))
    assert result.law == "form"
    assert result.what == "the loss raises RuntimeError: no such thing"


def test_the_same_is_tried_every_time() -> None:
    loss = OwnLoss(previous_token)
    assert check_loss(loss) == check_loss(loss)


def test_hypothesis_and_torch_are_not_needed_to_import_it() -> None:
    program = "import sys, posttrain.testing; sys.exit(bool({'torch', 'hypothesis', 'pytest'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
