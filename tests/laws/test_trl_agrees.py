"""From rewards to loss and gradient as TRL 1.16, an independent implementation, computes them; and where not, why not.

Rewards, log-probs and masks are the same, in float64. Tolerances are those of advantages, which are kept in float32.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.laws.trl_parts import GRPO, RLOO, Step, loss_of, scored, trainer
from tests.rewards.parts import siblings
from torch import Tensor

from posttrain.core.registry import build
from posttrain.core.types import Annotations
from posttrain.losses.base import LossInputs

TOLERANCE = 1e-6
VOCABULARY = 6
GROUP_SIZE = 3
LENGTHS = (4, 2, 7, 1, 5, 3)
NO_CAP = 1e9
KL = {"name": "kl_penalty", "coefficient": 0.1, "estimator": "k3", "max_importance_weight": NO_CAP}

Weights = Callable[[Step], tuple[Tensor, float]]
"""A loss weight for each completion, and the step's denominator."""


def token_mean(step: Step) -> tuple[Tensor, float]:
    return torch.ones(len(step.lengths)), float(step.lengths.sum())


def sequence_mean(step: Step) -> tuple[Tensor, float]:
    return 1.0 / step.lengths, float(len(step.lengths))


def fixed_length(step: Step) -> tuple[Tensor, float]:
    """The constant is the longest completion possible."""
    return torch.full((len(step.lengths),), 1.0 / step.mask.shape[1]), float(len(step.lengths))


def sequence_sum(step: Step) -> tuple[Tensor, float]:
    """Fixed length with the constant 1."""
    return torch.ones(len(step.lengths)), float(len(step.lengths))


@dataclasses.dataclass(frozen=True)
class Recipe:
    theirs: dict[str, Any]
    losses: tuple[dict[str, Any], ...]
    advantage: str
    weights: Weights
    drift: float = 0.3
    """How far the policy has moved, in nats a token."""
    kind: Any = GRPO
    kl_in_reward: float = 0.0
    holes: bool = True
    """Whether completions have tokens in them that do not count; TRL's RLOO knows none."""


def clipped(**options: Any) -> dict[str, Any]:
    default = {"clip_low": 0.2, "clip_high": 0.2, "max_importance_weight": 0.0}
    return {"name": "clipped_policy_gradient", **default, **options}


ENTROPY = {"name": "entropy_bonus", "coefficient": 0.05}
DAPO = clipped(clip_high=0.28)
CISPO = {"name": "cispo", "clip_high": 0.5}
GSPO = {"name": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}
ONE_ACTION = {"name": "gspo", "clip_low": 0.2, "clip_high": 0.2, "length_normalized": False}
SEQUENCES = {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4}

RECIPES = {
    "grpo": Recipe({"loss_type": "grpo", "beta": 0.1}, (clipped(), KL), "group_mean_std", sequence_mean),
    "grpo_on_policy": Recipe(
        {"loss_type": "grpo", "beta": 0.1}, (clipped(), KL), "group_mean_std", sequence_mean, drift=0.0
    ),
    "grpo_two_sided": Recipe(
        {"loss_type": "grpo", "delta": 1.4}, (clipped(dual_clip=1.4),), "group_mean_std", sequence_mean, drift=0.6
    ),
    "dr_grpo": Recipe({"loss_type": "dr_grpo", "scale_rewards": "none"}, (clipped(),), "group_mean", fixed_length),
    "dapo": Recipe({"loss_type": "dapo", "epsilon_high": 0.28}, (DAPO,), "group_mean_std", token_mean),
    "dapo_with_entropy_bonus": Recipe(
        {"loss_type": "dapo", "entropy_coef": 0.05}, (clipped(), ENTROPY), "group_mean_std", token_mean
    ),
    "bnpo": Recipe({"loss_type": "bnpo"}, (clipped(),), "group_mean_std", token_mean),
    "gspo": Recipe({"loss_type": "grpo", **SEQUENCES}, (GSPO,), "group_mean_std", sequence_mean, drift=1e-3),
    "gspo_token_mean": Recipe({"loss_type": "dapo", **SEQUENCES}, (GSPO,), "group_mean_std", token_mean, drift=1e-3),
    "cispo": Recipe({"loss_type": "cispo", "epsilon_high": 1.5}, (CISPO,), "group_mean_std", token_mean),
    "rloo": Recipe({}, (ONE_ACTION,), "leave_one_out", sequence_sum, drift=0.1, kind=RLOO, holes=False),
    "rloo_with_kl": Recipe(
        {"beta": 0.2}, (ONE_ACTION,), "leave_one_out", sequence_sum, 0.1, RLOO, kl_in_reward=0.2, holes=False
    ),
}


@dataclasses.dataclass(frozen=True)
class Policy:
    """Logits that are differentiated, and what follows from them at the temperature sampled with."""

    logits: Tensor  # [B, T, V]
    logprobs: Tensor  # [B, T]
    entropy: Tensor  # [B, T]

    def gradient(self, loss: Tensor) -> Tensor:
        (result,) = torch.autograd.grad(loss, self.logits, retain_graph=True)
        return result


def example(seed: int, drift: float, *, holes: bool = True, temperature: float = 0.7) -> tuple[Step, Policy]:
    """Two groups of three completions with rewards that differ."""
    draw = torch.Generator().manual_seed(seed)
    shape = (len(LENGTHS), max(LENGTHS))
    logits = torch.randn(*shape, VOCABULARY, generator=draw, dtype=torch.float64).requires_grad_()
    tokens = torch.randint(VOCABULARY, shape, generator=draw)
    table = torch.log_softmax(logits / temperature, dim=-1)
    logprobs = table.gather(2, tokens[..., None])[..., 0]
    mask = torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]
    if holes:
        mask[2, 3] = mask[4, 1:3] = False

    def near(spread: float) -> Tensor:
        return logprobs.detach() + spread * torch.randn(*shape, generator=draw, dtype=torch.float64)

    rewards = torch.rand(len(LENGTHS), generator=draw, dtype=torch.float64)
    step = Step(mask, near(drift), near(0.5), rewards, GROUP_SIZE)
    return step, Policy(logits, logprobs, -(table.exp() * table).sum(dim=-1))


def our_advantages(step: Step, name: str, kl_in_reward: float = 0.0) -> Tensor:
    """`[B]`, of attempts that earned the same."""
    lengths = step.lengths.tolist()
    groups = []
    references: dict[str, Any] = {}
    behaviors: dict[str, Any] = {}
    for number, start in enumerate(range(0, len(lengths), step.group_size)):
        rows = range(start, start + step.group_size)
        rewards = [None if math.isnan(reward) else reward for reward in step.rewards[list(rows)].tolist()]
        groups.append(siblings(rewards, [(lengths[row],) for row in rows], name=f"g{number}", index=number))
        for row, trajectory in zip(rows, groups[-1].trajectories, strict=True):
            for found, values in ((references, step.reference_logprobs), (behaviors, step.old_logprobs)):
                array = torch.zeros(len(trajectory.tokens), dtype=torch.float64).numpy()
                array[trajectory.sampled] = values[row][step.mask[row]].numpy()
                found[trajectory.trajectory_id] = array
    annotations = Annotations(policy_logprobs=behaviors, reference_logprobs=references, kl_in_reward=kl_in_reward)
    credit = build("advantage", name)(groups, annotations)
    arrays = [array for of_group in credit for array in of_group]
    sampled = [trajectory.sampled for group in groups for trajectory in group.trajectories]
    firsts = [float(array[mask][0]) for array, mask in zip(arrays, sampled, strict=True)]
    return torch.tensor(firsts, dtype=torch.float64)


def our_loss(
    step: Step, policy: Policy, losses: Sequence[dict[str, Any]], advantages: Tensor, weights: Weights
) -> Tensor:
    """Σ weight · term / denominator over the tokens that count, as the trainer reduces."""
    rows, _ = torch.where(step.mask)
    inputs = LossInputs(
        trainer_logprobs=policy.logprobs[step.mask],
        behavior_logprobs=step.old_logprobs[step.mask],
        advantages=advantages[rows],
        segments=rows,
        num_segments=len(step.mask),
        reference_logprobs=step.reference_logprobs[step.mask],
        entropy=policy.entropy[step.mask],
    )
    by_sequence, denominator = weights(step)
    terms = [term for spec in losses for term in build("loss", spec)(inputs).terms.values()]
    return torch.stack([(by_sequence[rows] * term).sum() for term in terms]).sum() / denominator


def both(recipe: Recipe, step: Step, policy: Policy) -> tuple[Tensor, Tensor]:
    """Our loss and theirs, from rewards on."""
    advantages = our_advantages(step, recipe.advantage, recipe.kl_in_reward)
    ours = our_loss(step, policy, recipe.losses, advantages, recipe.weights)
    return ours, loss_of(recipe.kind, step, policy.logprobs, policy.entropy, **recipe.theirs)


def difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).detach().abs())


def assert_same(policy: Policy, ours: Tensor, theirs: Tensor) -> None:
    assert difference(ours, theirs) < TOLERANCE
    gradients = [policy.gradient(loss) for loss in (ours, theirs)]
    assert gradients[1].abs().max() > 1e-3
    assert (gradients[0] - gradients[1]).abs().max() < TOLERANCE


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RECIPES)
def test_same_rewards_give_the_same_loss_and_gradient(name: str, seed: int) -> None:
    recipe = RECIPES[name]
    step, policy = example(seed, recipe.drift, holes=recipe.holes)
    assert_same(policy, *both(recipe, step, policy))


def test_examples_are_clipped_and_not_clipped() -> None:
    """Otherwise the comparison would say nothing of clipping."""
    for name in ("grpo", "grpo_two_sided", "dapo", "gspo", "cispo", "rloo"):
        recipe, shares = RECIPES[name], []
        for seed in range(3):
            step, policy = example(seed, recipe.drift, holes=recipe.holes)
            rows, _ = torch.where(step.mask)
            inputs = LossInputs(
                policy.logprobs[step.mask], step.old_logprobs[step.mask], our_advantages(step, recipe.advantage)[rows],
                rows, len(step.mask),
            )  # fmt: skip
            shares.append(float(build("loss", recipe.losses[0])(inputs).metrics["clipped_share"].mean()))
        assert 0.0 < sum(shares) / 3 < 1.0, name


def in_two_micro_batches(step: Step, policy: Policy, **options: Any) -> Tensor:
    """TRL's loss of a step whose gradient it accumulates over two micro-batches of a group each."""
    whole = scored(trainer(GRPO, step, policy.logprobs, policy.entropy, **options), step)
    losses = []
    for rows in (slice(0, GROUP_SIZE), slice(GROUP_SIZE, None)):
        options |= {"current_gradient_accumulation_steps": 2, "steps_per_generation": 2}
        bare = trainer(GRPO, step, policy.logprobs[rows], policy.entropy[rows], **options)
        part = {name: value[rows] if value.dim() else value for name, value in whole.items()}
        losses.append(bare._compute_loss(bare.model, part))
    return torch.stack(losses).sum()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "cispo", "gspo"])
def test_accumulated_over_micro_batches_it_is_still_the_same(name: str) -> None:
    recipe = RECIPES[name]
    step, policy = example(0, recipe.drift)
    ours, _ = both(recipe, step, policy)
    assert_same(policy, ours, in_two_micro_batches(step, policy, **recipe.theirs))


# ── where ours differs ────────────────────────────────────────────────────────────────────────────────────────


def test_bnpo_divides_each_micro_batch_by_its_own_tokens() -> None:
    """As its name says, and against law L2: tokens of short micro-batches then count more. Ours divides once."""
    recipe = RECIPES["bnpo"]
    step, policy = example(0, recipe.drift)
    ours, _ = both(recipe, step, policy)
    theirs = in_two_micro_batches(step, policy, **recipe.theirs)
    assert difference(ours, theirs) > 1e-3


def test_kl_without_bias_correction_has_the_gradient_of_another_kl() -> None:
    """TRL's option `use_bias_correction_kl = False` differentiates k3 as it is: the gradient of KL(reference ‖ policy).
    Ours is always that of KL(policy ‖ reference), which TRL's documentation promises with the option on (law L5)."""
    step, policy = example(0, drift=0.0)
    recipe = RECIPES["grpo_on_policy"]
    ours, _ = both(recipe, step, policy)
    naive = loss_of(GRPO, step, policy.logprobs, policy.entropy, **recipe.theirs, use_bias_correction_kl=False)
    assert difference(ours, naive) < TOLERANCE
    gradients = [policy.gradient(loss) for loss in (ours, naive)]
    assert (gradients[0] - gradients[1]).abs().max() > 1e-3


def test_entropy_bonus_is_reduced_like_the_policy_term() -> None:
    """TRL's is a mean over tokens beside any loss type. Ours goes through the stage's one reduction (law L2), so the
    two agree under `token_mean` (above), and not under `sequence_mean`, where a long reply's tokens count less."""
    theirs = {"loss_type": "grpo", "entropy_coef": 0.05}
    recipe = Recipe(theirs, (clipped(), ENTROPY), "group_mean_std", sequence_mean)
    step, policy = example(0, recipe.drift)
    assert difference(*both(recipe, step, policy)) > 1e-4


def test_masked_values_are_multiplied_by_zero_and_not_left_out() -> None:
    """0 · NaN is NaN: what stands in TRL's padding must be finite. Ours is not read (law L3)."""
    recipe = RECIPES["grpo"]
    step, policy = example(0, recipe.drift)
    poisoned = dataclasses.replace(step, old_logprobs=step.old_logprobs.masked_fill(~step.mask, float("nan")))
    clean, _ = both(recipe, step, policy)
    ours, theirs = both(recipe, poisoned, policy)
    assert torch.equal(ours, clean)
    assert theirs.isnan()


def test_attempt_without_a_reward_is_no_part_of_the_mean() -> None:
    """TRL gives an unscorable completion the advantage 0 and divides by it all the same. Ours leaves it out of the
    step (laws L9 and L23), so that failures of ours do not lower the learning rate; the advantages are the same."""
    step, policy = example(0, drift=0.0)
    step = dataclasses.replace(step, rewards=step.rewards.index_fill(0, torch.tensor([1]), float("nan")))
    theirs = scored(trainer(GRPO, step, policy.logprobs, policy.entropy), step)["advantages"]
    ours = our_advantages(step, "group_mean_std")
    assert torch.allclose(ours, theirs, rtol=0, atol=TOLERANCE)
    assert ours[1] == 0.0
    kept = torch.tensor([0, 2, 3, 4, 5])
    without = Step(step.mask[kept], step.old_logprobs[kept], step.reference_logprobs[kept], step.rewards[kept], 1)
    left = Policy(policy.logits, policy.logprobs[kept], policy.entropy[kept])
    smaller = our_loss(without, left, (clipped(),), ours[kept], sequence_mean)
    assert_same(policy, smaller * 5 / 6, loss_of(GRPO, step, policy.logprobs, policy.entropy))


def test_rloo_by_tokens_has_the_same_first_update_and_another_value() -> None:
    """The preset `rloo` writes −A log π token by token. On fresh data that has the gradient of TRL's −A · ratio of the
    whole completion; the value differs, as no gradient goes through it. In further updates of a step TRL weighs by the
    product of all ratios, which few long completions survive unclipped; ours by each token's own."""
    spec = {"name": "reinforce", "max_importance_weight": 0.0}
    gradients = {}
    for drift in (0.0, 0.1):
        step, policy = example(0, drift, holes=False)
        ours = our_loss(step, policy, (spec,), our_advantages(step, "leave_one_out"), sequence_sum)
        theirs = loss_of(RLOO, step, policy.logprobs, policy.entropy)
        assert difference(ours, theirs) > 1e-3
        gradients[drift] = [policy.gradient(loss) for loss in (ours, theirs)]
    first, further = gradients[0.0], gradients[0.1]
    assert (first[0] - first[1]).abs().max() < TOLERANCE
    assert (further[0] - further[1]).abs().max() > 1e-2
