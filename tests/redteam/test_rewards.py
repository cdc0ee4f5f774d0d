"""Red team, rewards: rows 16 and 18 to 20 of the list of cheats; none earns what an honest right answer does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.rewards.parts import attempt, group

from posttrain.core.types import Cost, Reward, Split, Task, Verdict
from posttrain.domains.arithmetic_steps import ArithmeticSteps, read_steps
from posttrain.rewards.group_reward import rewarded
from posttrain.rewards.spec import PartSpec, RewardSpec
from posttrain.verifiers.reply_grammar import form, misformed

SPEC = RewardSpec({"outcome": PartSpec(1.0), "format": PartSpec(0.2), "efficiency": PartSpec(0.3)})
CALLS = RewardSpec({"outcome": PartSpec(1.0), "calls": PartSpec(0.3, kind="efficiency", source="tool_calls")})
RIGHT, WRONG = Verdict.correct(), Verdict.incorrect("other number")
Tried = tuple[str, int, Verdict]


def earned(*tried: Tried) -> list[float]:
    """What replies of a number of tokens with a verdict earn as siblings."""
    attempts = [
        attempt(1.0, name=f"g/{place}", reply=reply, cost=Cost(tokens), verdict=verdict)
        for place, (reply, tokens, verdict) in enumerate(tried)
    ]
    found = rewarded(group(*attempts), SPEC, SPEC.weights_at(1, {}), form).trajectories
    return [reward_of(t.reward).total for t in found]


def reward_of(reward: Reward | None) -> Reward:
    assert reward is not None
    return reward


@pytest.mark.parametrize(
    "reply",
    [
        # 18: empty blocks
        "<think></think>\nAnswer: 12",
        "<think> \n\t </think>\nAnswer: 12",
        "<think>...</think>\nAnswer: 12",
        "<think>---!?</think>\nAnswer: 12",
        # repeated blocks, or a second one
        "<think>5 + 7 = 12</think><think>5 + 7 = 12</think>\nAnswer: 12",
        "<think>yes it is</think> <think></think>\nAnswer: 12",
        "Well. <think>5 + 7 = 12</think>\nAnswer: 12",
        # nested, stray, unclosed and foreign tags
        "<think><think>5 + 7 = 12</think></think>\nAnswer: 12",
        "<think>5 + 7 = 12<think>\nAnswer: 12",
        "5 + 7 = 12</think>\nAnswer: 12",
        "< think >5 + 7 = 12</ think >\nAnswer: 12",
        "<THINK>5 + 7 = 12</THINK>\nAnswer: 12",
        "<reasoning>5 + 7 = 12</reasoning>\nAnswer: 12",
        "<think>5 + 7 = 12</think>\nAnswer: <answer>12</answer>",
        # the answer before the reasoning, or inside of it
        "Answer: 12\n<think>5 + 7 = 12</think>",
        "Answer: 12. Since 5 + 7 = 12.",
        "<think>Answer: 12</think>",
        "<think>Answer: 12</think>\nAnswer: 12",
        # content that says nothing: the same again
        "5 + 7 = 12. 5 + 7 = 12. Answer: 12",
        "5 + 7 = 12.\n5  +  7 = 12!\nAnswer: 12",
        "Let me THINK. Let me think. Answer: 12",
        "<think>" + "wait and see " * 20 + "</think>\nAnswer: 12",
        "step by step " * 10 + ". Answer: 12",
        "a b c d e " * 3 + ". Answer: 12",
    ],
)
def test_form_without_content_is_no_form(reply: str) -> None:
    assert misformed(reply)
    assert not misformed("<think>5 + 7 = 12</think>\nAnswer: 12")
    honest = "5 + 7 = 12. Answer: 12"
    cheat, plain = earned((reply, 10, RIGHT), (honest, 10, RIGHT))
    assert cheat < plain


@pytest.mark.parametrize("reply", ["Answer: 3", "<think>Five and seven.</think>\nAnswer: 3"])
def test_perfect_form_of_a_wrong_answer_earns_nothing(reply: str) -> None:
    assert earned((reply, 1, WRONG), ("5 + 7 = 12. Answer: 12", 10, RIGHT))[0] == 0.0


def test_the_shortest_wrong_answer_earns_nothing_and_every_right_one_more() -> None:
    """19: clipping to win the efficiency term."""
    clipped, right, longest = earned(("12", 1, WRONG), ("Answer: 12", 40, RIGHT), ("Answer: 12", 400, RIGHT))
    assert clipped == 0.0
    assert right > longest >= 1.0


def test_padding_never_earns_more_and_never_less_than_a_plain_right_answer() -> None:
    """19: length to look careful; the term is one-sided, so that nobody is punished for reasoning either."""
    amounts = [
        earned(("Answer: 12", n, RIGHT), ("Answer: 12", 50, RIGHT), ("Answer: 12", 50, RIGHT))[0] for n in range(1, 200)
    ]
    assert amounts == sorted(amounts, reverse=True)
    assert min(amounts) == pytest.approx(1.2)
    assert max(amounts) < 1.5


@pytest.mark.parametrize("calls", [1, 5, 50])
def test_calls_pay_through_the_outcome_alone(calls: int) -> None:
    """20: an attempt that calls tools earns what its answer is worth, and at most what one without calls does."""
    many = attempt(1.0, turns=(1,) * (calls + 1), name="g/0")
    siblings = [many, attempt(1.0, name="g/1"), replace(many, trajectory_id="g/2", sibling=2, verdict=WRONG)]
    found = rewarded(group(*siblings), CALLS, CALLS.weights_at(1, {}), form).trajectories
    called, without, wrong = (reward_of(t.reward).total for t in found)
    assert wrong == 0.0
    assert called <= without
    assert called == 1.0


@pytest.mark.parametrize(("null_level", "expected"), [(0.0, 0.25), (0.25, 0.0)])
def test_a_constant_policy_earns_nothing_above_chance(null_level: float, expected: float) -> None:
    """16: one answer to everything, right in a quarter of the tasks."""
    spec = RewardSpec({"outcome": PartSpec(1.0, null_level=null_level)})
    attempts = [attempt(1.0, name=f"g/{n}", verdict=RIGHT if n == 0 else WRONG) for n in range(4)]
    found = rewarded(group(*attempts), spec, spec.weights_at(1, {}), form).trajectories
    assert sum(reward_of(t.reward).total for t in found) / 4 == pytest.approx(expected)


TERMS = (5, 7, -4)


@pytest.mark.parametrize(
    ("reply", "counted"),
    [
        ("5 + 7 = 12. 12 - 4 = 8. Answer: 8", 2),
        ("7 - 4 = 3. 5 + 3 = 8. Answer: 8", 2),
        ("", 0),
        ("Answer: 8", 0),
        ("5 + 7 = 12. Answer: 8", 1),
        ("1 + 1 = 2. 2 + 2 = 4. Answer: 8", 0),  # true, and about nothing here
        ("5 + 7 = 12. 5 + 7 = 12. Answer: 8", 1),  # the same again
        ("5 + 7 = 12. 12 + 0 = 12. 12 - 4 = 8. Answer: 8", 1),  # padding
        ("5 + 7 = 13. 13 - 4 = 9. Answer: 9", 0),  # untrue
        ("12 - 4 = 8. 5 + 7 = 12. Answer: 8", 0),  # a result before it is there
        ("5 + 7 = 12 = 12. 12 - 4 = 8. Answer: 8", 0),
        ("5 + 7 - 4 = 8. Answer: 8", 0),
        ("Answer: 8. 5 + 7 = 12. 12 - 4 = 8.", 0),  # after the answer
        ("5 + 5 = 10. 10 - 4 = 6. Answer: 8", 0),  # one term taken twice
        ("5 + 7 = 12. 12 - 4 = 8. 8 + 0 = 8. Answer: 8", 2),
    ],
)
def test_steps_count_where_they_lead_to_the_answer(reply: str, counted: int) -> None:
    assert read_steps(reply, TERMS).counted == counted


def test_steps_without_the_answer_are_no_answer() -> None:
    domain = ArithmeticSteps()
    task: Task = domain.task(Split.TRAIN, 0, 0, 1)
    reply = domain.demonstration(task).replace("Answer: ", "Answer: 9")
    assert read_steps(reply, task.hidden["terms"]).share == 1.0
