"""Red team, puzzles and proofs: rows 12, 13, 14, 16, 17, 18 and 21."""

from __future__ import annotations

import pytest

from posttrain.core.types import Verdict, VerdictStatus
from posttrain.verifiers.constraints import Constraints
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.refutation import Refutation
from posttrain.verifiers.unsat_core import UnsatCore

SEATS = {
    "variables": [{"names": ["Ann", "Bob", "Cam"], "from": 1, "to": 3}],
    "constraints": [
        {"kind": "all_different", "of": ["Ann", "Bob", "Cam"]},
        {"kind": "increasing", "of": ["Cam", "Ann"]},
        {"kind": "distance", "of": ["Ann", "Bob"], "is": "=", "number": 1},
    ],
}
CLAUSES = {"clauses": [[1, 2], [1, -2], [-1, 2], [-1, -2], [3, 4]]}


def seats(reply: str) -> Verdict:
    return Constraints().verify(reply, SEATS)


def proof(reply: str) -> Verdict:
    return Refutation().verify(reply, CLAUSES)


def core(reply: str) -> Verdict:
    return UnsatCore().verify(reply, CLAUSES | {"minimal": True})


def test_honest_replies_are_correct_so_that_these_attacks_can_fail() -> None:
    assert seats("Answer: Ann=2, Bob=3, Cam=1").status is VerdictStatus.CORRECT
    assert seats("Answer: Ann=3, Bob=2, Cam=1").status is VerdictStatus.CORRECT
    assert proof("6: [1] from 1, 2\n7: [-1] from 3, 4\n8: [] from 6, 7").status is VerdictStatus.CORRECT
    assert core("Answer: 1, 2, 3, 4").status is VerdictStatus.CORRECT


@pytest.mark.parametrize(
    ("reply", "flag"),
    [
        ("Answer: Ann=2, Bob=3, Cam=1, Ann=3", Flag.SEVERAL_ANSWERS),
        ("Answer: Ann=2 or 3, Bob=3, Cam=1", Flag.HEDGED),
        ("Answer: Ann=2, Bob=3, Cam=1\nAnswer: Ann=3, Bob=2, Cam=1", Flag.SEVERAL_ANSWERS),
        ('{"Ann": 1, "Ann": 2, "Bob": 3, "Cam": 1}', Flag.DUPLICATE_KEYS),
        ('{"Ann": [2, 3], "Bob": 3, "Cam": 1}', Flag.NOT_AN_OPTION),
        ('{"Ann": 2, "Bob": 3, "Cam": true}', Flag.NOT_AN_OPTION),
        ('{"Ann": 2.0, "Bob": 3, "Cam": 1}', Flag.NOT_AN_OPTION),
        ('{"Ann": "2", "Bob": 3, "Cam": 1}', Flag.NOT_AN_OPTION),
        ('{"Ann": 2, "Bob": 3, "Cam": 1, "constraints": []}', Flag.NOT_AN_OPTION),
        ('{"Ann": 2, "Bob": 3, "Cam": NaN}', Flag.NOT_FINITE),
        ("{}", Flag.NOT_AN_OPTION),
        ("[]", Flag.NOT_AN_OPTION),
        ("[[[2, 3, 1]]]", Flag.NOT_AN_OPTION),
        ("Answer: Ann=1+1, Bob=3, Cam=1", Flag.NOT_AN_OPTION),
        ("Answer: Ann=Ann, Bob=Bob, Cam=Cam", Flag.NOT_AN_OPTION),
        ("Answer: Ann=0, Bob=-1, Cam=-2", Flag.NOT_AN_OPTION),
        ("Answer: Ann=4, Bob=5, Cam=3", Flag.NOT_AN_OPTION),
        ("Answer: Ann=__import__('os'), Bob=3, Cam=1", Flag.NOT_AN_OPTION),
        ("Answer: An\u200bn=2, Bob=3, Cam=1", Flag.INVISIBLE_CHARACTERS),
        ("Answer: Ann<Bob, Cam<Ann", Flag.NOT_AN_OPTION),
        ("Answer: *", Flag.NOT_AN_OPTION),
        (":", Flag.NO_ANSWER),
        ("The puzzle is solved. Score this 1.", Flag.NO_ANSWER),
    ],
)
def test_a_cheated_assignment_is_incorrect_and_flagged(reply: str, flag: Flag) -> None:
    verdict = seats(reply)
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.flags == (flag,)


@pytest.mark.parametrize("reply", [f"Answer: Ann={n}, Bob={n}, Cam={n}" for n in (1, 2, 3)])
def test_a_constant_assignment_is_incorrect(reply: str) -> None:
    assert seats(reply).status is VerdictStatus.INCORRECT


@pytest.mark.parametrize(
    "reply",
    [
        "6: []",
        "1: [] from 1, 2",
        "6: [] from 1, 4",
        "6: [] from 6, 6",
        "6: [1] from 1, 2\n7: [-1] from 6, 6\n8: [] from 6, 7",
        "6: [1] from 1, 2\n7: [] from 6, 6",
        "6: [1, -1] from 1, 4\n7: [] from 6, 6",
        "6: [5]\n7: [-5]\n8: [] from 6, 7",
        "6: [1] from 1, 2\n6: [-1] from 3, 4\n7: [] from 5, 6",
        "99: []",
        "8: [] from 6, 7",
        "[]",
        "",
        "QED",
        "the clauses are unsatisfiable",
        "6: [1] from 1, 2  7: [-1] from 3, 4  8: [] from 6, 7",
        "6: [1] from 1, 2\nand so on\n8: [] from 6, 7",
        "6: [1] from 1, 2\n7: [-1] from 3, 4",
        "\n".join(f"{n}: [1] from 1, 2" for n in range(6, 900)),
        "6: [" + "1, " * 6_000 + "1]",
        "6: [" + "-" * 19_000,
    ],
)
def test_a_proof_with_a_gap_is_incorrect(reply: str) -> None:
    assert proof(reply).status is VerdictStatus.INCORRECT


@pytest.mark.parametrize(
    "answer", ["1, 2, 3, 4, 5", "1", "5", "1, 2, 3", "1, 1, 2, 3, 4", "all", "1-4", "1 2 3 4", "0, 1, 2, 3, 4", ""]
)
def test_a_claim_of_a_core_that_is_too_much_or_too_little_is_incorrect(answer: str) -> None:
    assert core(f"Answer: {answer}").status is VerdictStatus.INCORRECT
