"""What attempts are worth in a step: weights by schedule and rule, the record of them, the penalty on length."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rewards.parts import FAILURE, attempt

from posttrain.core.types import Cost, Group, Split, StopReason, Trajectory, Verdict, VerdictStatus
from posttrain.domains.arithmetic_steps import ArithmeticSteps
from posttrain.rewards.compose import total
from posttrain.rewards.spec import PartSpec, RewardSpec
from posttrain.run.rewarding import Rewarding
from posttrain.run.rl_stage import RlStage
from posttrain.store.position import Position

FORM, NO_FORM = "Answer: 1", "1"
SPEC = RewardSpec(
    {
        "outcome": PartSpec(1.0),
        "process": PartSpec(0.4, schedule=[(1, 1.0), (3, 0.5)]),
        "format": PartSpec(0.1),
        "efficiency": PartSpec(0.2),
    }
)


def rewarding(spec: RewardSpec = SPEC, **stage: Any) -> Rewarding:
    return Rewarding(RlStage(kind="rl", **stage), {"toy": spec, "other": RewardSpec()})


def tried(
    place: int, correct: bool, *, process: float | None = 1.0, reply: str = FORM, tokens: int = 10, **fields: Any
) -> Trajectory:
    status = VerdictStatus.CORRECT if correct else VerdictStatus.INCORRECT
    verdict = Verdict(status, float(correct), parts={} if process is None else {"process": process})
    built = attempt(1.0, name=f"g/{place}", verdict=verdict, reply=reply, cost=Cost(tokens))
    return replace(built, **fields)


def grouped(*attempts: Trajectory) -> Group:
    return Group("g", attempts[0].task, attempts)


def totals(groups: Sequence[Group]) -> list[float]:
    return [t.reward.total for group in groups for t in group.trajectories if t.reward is not None]


def test_the_weights_of_the_step_decide_and_are_recorded_with_the_attempt() -> None:
    wrong = grouped(tried(0, False))
    found = [rewarding().rewarded([wrong], step, {"toy/process": 0.5}) for step in (1, 2, 3, 9)]
    assert [totals(groups)[0] for groups in found] == pytest.approx([0.2, 0.15, 0.1, 0.1])
    reward = found[1][0].trajectories[0].reward
    assert reward is not None
    assert reward.weights == pytest.approx({"outcome": 1.0, "process": 0.15, "format": 0.1, "efficiency": 0.2})


def test_factors_of_other_domains_and_parts_change_nothing() -> None:
    assert rewarding().weights(1, {"other/process": 0.5, "toys/process": 0.5}) == rewarding().weights(1, {})


def test_the_penalty_on_length_comes_on_top_and_the_total_can_be_computed_again() -> None:
    cut = grouped(tried(0, True, stop=StopReason.MAX_NEW_TOKENS), tried(1, False, stop=StopReason.MAX_NEW_TOKENS))
    found = rewarding(truncated="penalise").rewarded([cut], 1, {})
    rewards = [t.reward for t in found[0].trajectories if t.reward is not None]
    assert totals(found) == pytest.approx([1.0 + 0.4 + 0.1 - 0.5, 0.4 - 0.5])
    assert all(r.parts["overlong"] == -1.0 and total(r) == r.total for r in rewards)
    assert totals(rewarding().rewarded([cut], 1, {})) == pytest.approx([1.5, 0.4])


def test_a_steps_record_has_every_parts_mean_weight_and_saturated_share() -> None:
    half = grouped(tried(0, True, tokens=5), tried(1, True, tokens=15, reply=NO_FORM), tried(2, False, process=0.25))
    full = grouped(tried(0, True), tried(1, True), replace(tried(2, False), failure=FAILURE))
    found = rewarding().rewarded([half, full], 1, {})
    values = rewarding().values(found, 1, {})
    assert values == pytest.approx(
        {
            "reward/toy/outcome": 0.8,
            "reward/toy/process": 0.85,
            "reward/toy/format": 0.8,
            "reward/toy/efficiency": 0.125,  # over the four correct ones
            "reward_weight/toy/outcome": 1.0,
            "reward_weight/toy/process": 0.4,
            "reward_weight/toy/format": 0.1,
            "reward_weight/toy/efficiency": 0.2,
            "reward_saturated/toy/outcome": 0.5,
            "reward_saturated/toy/process": 0.5,
            "reward_saturated/toy/format": 0.5,
            "reward_saturated/toy/efficiency": 0.0,
        }
    )


def test_what_verdicts_lack_is_seen_in_the_record() -> None:
    found = rewarding().rewarded([grouped(tried(0, False, process=None), tried(1, False))], 1, {})
    assert rewarding().values(found, 1, {})["reward_missing/toy/process"] == 0.5


def test_a_step_without_correct_attempts_measures_no_efficiency() -> None:
    found = rewarding().rewarded([grouped(tried(0, False), tried(1, False))], 1, {})
    assert "reward/toy/efficiency" not in rewarding().values(found, 1, {})


def test_a_reward_of_the_outcome_alone_adds_nothing_to_the_record() -> None:
    plain = rewarding(RewardSpec())
    assert plain.values(plain.rewarded([grouped(tried(0, True))], 1, {}), 1, {}) == {}


def test_every_change_of_a_weight_has_its_cause() -> None:
    changes = rewarding().changes(Position(2, 1), {}, {"toy/format": 0.5}, {"toy/format": "it was saturated"})
    assert [(c.position, c.domain, c.part, c.before, c.after, c.cause) for c in changes] == [
        (Position(2, 1), "toy", "format", 0.1, 0.05, "it was saturated"),
        (Position(2, 1), "toy", "process", 0.4, pytest.approx(0.3), "the schedule of step 2"),
    ]
    assert rewarding().changes(Position(2, 5), {"toy/format": 0.5}, {"toy/format": 0.5}, {}) == []


def test_behind_the_last_step_no_weight_changes() -> None:
    assert rewarding(steps=1).changes(Position(0, 1), {}, {"toy/format": 0.5}, {"toy/format": "late"}) == []


def test_the_worked_example_of_the_documentation() -> None:
    """docs/rewards.md: each row's reply, tokens, parts and total, judged by the domain that it names."""
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text().partition("## A worked example")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:3] == "| `"]
    domain = ArithmeticSteps()
    example = replace(domain.task(Split.TRAIN, 0, 0, 1), hidden={"terms": [5, 7, -4]})

    def judged(place: int, reply: str, tokens: str) -> Trajectory:
        verdict = asyncio.run(domain.environment(example, None).step(reply.strip("`"), truncated=False)).verdict
        cost = Cost(int(tokens))
        return attempt(1.0, name=f"g/{place}", at=example, verdict=verdict, reply=reply.strip("`"), cost=cost)

    group = grouped(*(judged(place, row[0], row[1]) for place, row in enumerate(rows)))
    spec = RewardSpec({**SPEC.parts, "process": PartSpec(0.4), "format": PartSpec(0.2)})
    found = Rewarding(RlStage(kind="rl"), {domain.name: spec}).rewarded([group], 1, {})
    assert len(rows) == 5
    for row, trajectory in zip(rows, found[0].trajectories, strict=True):
        assert trajectory.reward is not None
        parts = trajectory.reward.parts
        shown = ["withheld" if n in trajectory.reward.withheld else f"{parts[n]:g}" for n in SPEC.parts]
        assert shown == row[2:6]
        assert f"{trajectory.reward.total:.4g}" == row[6]
