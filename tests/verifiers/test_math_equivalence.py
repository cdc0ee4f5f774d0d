"""Mathematical answers that are and are not the same, in both orders, and the policy that the page states."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from posttrain.core.registry import build
from posttrain.core.types import VerdictStatus
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.math_equivalence import MathEquivalence

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAGE = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text(encoding="utf-8")
POLICY = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (yes|no) \|", PAGE, re.MULTILINE)


def pairs(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


def is_correct(reply: str, gold: str) -> bool:
    """Of a gold that nobody may use, nothing is right."""
    try:
        return MathEquivalence().verify(reply, gold).status is VerdictStatus.CORRECT
    except ValueError:
        return False


@pytest.mark.parametrize("file", ["math_pairs.jsonl", "math_own_pairs.jsonl"])
def test_every_pair_comes_out_as_stated_in_both_orders(file: str) -> None:
    rows = pairs(file)
    assert len(rows) >= 60
    found = {
        row["id"]: (is_correct(row["answer"], row["gold"]), is_correct(row["gold"], row["answer"])) for row in rows
    }
    assert found == {row["id"]: (row["equivalent"], row["equivalent"]) for row in rows}


@pytest.mark.parametrize(("gold", "answer", "same"), POLICY)
def test_the_policy_is_what_its_page_says(gold: str, answer: str, same: str) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", rf"\boxed{{{gold}}}") == (same == "yes")


def test_the_page_has_a_policy() -> None:
    assert len(POLICY) == len(re.findall(r"^\| `", PAGE, re.MULTILINE)) >= 20


def test_pairs_that_are_a_matter_of_judgement_come_out_alike_in_both_orders() -> None:
    for row in pairs("math_judgement_pairs.jsonl"):
        assert is_correct(row["answer"], row["gold"]) == is_correct(row["gold"], row["answer"]), row["id"]


@pytest.mark.parametrize(
    ("reply", "flag"),
    [
        (r"\boxed{5} or \boxed{7}", Flag.SEVERAL_ANSWERS),
        (r"\boxed{__import__('os').system('true')}", Flag.CODE_IN_ANSWER),
        (r"\boxed{" + "(" * 500 + "7" + ")" * 500 + "}", Flag.TOO_DEEP),
        (r"\boxed{" + "7" * 1500 + "}", Flag.TOO_LARGE),
        (r"\boxed{nan}", Flag.NOT_FINITE),
        (r"\boxed{}", Flag.NO_ANSWER),
        (r"\boxed{3+4}", Flag.UNEVALUATED),
    ],
)
def test_what_a_reply_tries_is_incorrect_and_flagged(reply: str, flag: str) -> None:
    verdict = MathEquivalence().verify(reply, "7")
    assert verdict.status is VerdictStatus.INCORRECT
    assert flag in verdict.flags


@pytest.mark.parametrize("reply", [r"\boxed{9^{9^{9}}}", r"\boxed{10^{10^{10}}!}", r"\boxed{2^{2^{2^{2^{2^{2}}}}}}"])
@pytest.mark.parametrize("gold", ["7", "9^{9}"])
def test_what_nobody_could_compute_is_incorrect_and_not_computed(reply: str, gold: str) -> None:
    assert MathEquivalence().verify(reply, gold).status is VerdictStatus.INCORRECT


@pytest.mark.parametrize("gold", ["", None, True, [7], "(" * 500])
def test_a_gold_that_cannot_be_read_is_no_wrong_answer(gold: Any) -> None:
    with pytest.raises(ValueError, match="expected answer"):
        MathEquivalence().verify("7", gold)


def test_it_has_a_name() -> None:
    assert isinstance(build("verifier", "math"), MathEquivalence)
