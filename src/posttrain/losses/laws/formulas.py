"""Laws about what is computed: the KL that a term names (L5), and the plain policy gradient on fresh data (L6)."""

from __future__ import annotations

import torch
from torch import Tensor

from posttrain.losses.base import Loss, LossInputs
from posttrain.losses.laws.case import SIMPLEST, Case
from posttrain.losses.laws.fields import reads
from posttrain.losses.laws.measure import ABSOLUTE, BrokenError, gradient_by, measure, same

KL_TERM = "kl_loss"
"""A term of this name says that it is a multiple of KL(policy ‖ reference)."""

ONES = ("importance_ratio",)
ZEROS = ("clipped_share", "capped_share", "masked_share")
"""Metrics whose value on fresh data is known, where a loss reports them."""

VOCABULARIES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((0, 1), (0, 0)),
    ((0, 2), (0, 0)),
    ((0, 0), (0, 2)),
    ((0, 1, 2), (0, 0, 0)),
    ((2, 0, 1), (0, 1, 0)),
)
"""Logits of a policy and of a reference."""


def is_policy_loss(loss: Loss) -> str:
    """Nothing, or why the law about policy losses says nothing."""
    return "" if reads(loss, ["advantages"], in_terms=True) else "it reads no advantages"


def is_kl(loss: Loss) -> str:
    terms = loss(Case(((SIMPLEST,),)).inputs()[0]).terms
    return "" if KL_TERM in terms else f"it has no term {KL_TERM}"


def on_policy(loss: Loss, case: Case) -> None:
    """The gradient by a token's log-prob, beyond what is there without advantages, is minus its advantage."""
    fresh = case.fresh()
    said = measure(loss, fresh)
    for names, wanted in ((ONES, 1.0), (ZEROS, 0.0)):
        for name in names:
            value = said.get(f"metric {name}")
            if value is not None and not same(value, torch.full_like(value, wanted)):
                raise BrokenError(f"on fresh data {name} is {_plain(value)} and not {wanted:.0f}")
    key = gradient_by("trainer_logprobs")
    ours = said[key] - measure(loss, fresh.filled(["advantages"], 0.0))[key]
    plain = -fresh.column("loss_weights") * fresh.column("advantages")
    if not same(ours, plain):
        raise BrokenError(
            f"on fresh data the gradient by the log-probs is {_plain(ours)} and the plain policy gradient's is "
            f"{_plain(plain)}"
        )


def means_kl(loss: Loss) -> None:
    """Each word of a small vocabulary once, weighed by its probability: nothing is left to chance."""
    coefficient: float | None = None
    for policy_logits, reference_logits in VOCABULARIES:
        logits = torch.tensor(policy_logits, dtype=torch.float64, requires_grad=True)
        reference = torch.tensor(reference_logits, dtype=torch.float64).log_softmax(-1)
        value = _mean_term(loss, logits.log_softmax(-1), reference)
        (ours,) = torch.autograd.grad(value, logits)
        (exact,) = torch.autograd.grad(_kl(logits.log_softmax(-1), reference), logits)
        if coefficient is None:
            coefficient = float(ours @ exact / (exact @ exact))
        no_pull = abs(coefficient) < ABSOLUTE < abs(value)
        if coefficient < -ABSOLUTE or no_pull or not same(ours, coefficient * exact):
            times = f"{coefficient:.6g} times, as for simpler inputs," if coefficient > ABSOLUTE else "a multiple of"
            raise BrokenError(
                f"the gradient of the mean {KL_TERM} by the policy's logits is {_plain(ours)} and not {times} that of "
                f"KL(policy ‖ reference), {_plain(exact)}",
                f"every word of a vocabulary, weighed by its probability; logits of the policy {list(policy_logits)}, "
                f"of the reference {list(reference_logits)}",
            )


def _kl(policy: Tensor, reference: Tensor) -> Tensor:
    return (policy.exp() * (policy - reference)).sum()


def _mean_term(loss: Loss, policy: Tensor, reference: Tensor) -> Tensor:
    constants = dict.fromkeys(("advantages", "values", "old_values", "returns"), torch.zeros_like(reference))
    entropy = torch.ones_like(reference)
    words = torch.arange(len(reference))  # a sample each
    given = LossInputs(
        trainer_logprobs=policy,
        behavior_logprobs=policy.detach(),
        segments=words,
        num_segments=len(words),
        reference_logprobs=reference,
        entropy=entropy,
        **constants,
    )
    return (policy.detach().exp() * loss(given).terms[KL_TERM]).sum()


def _plain(values: Tensor) -> str:
    return f"[{', '.join(f'{value + 0.0:.6g}' for value in values.tolist())}]"
