"""Queries judged by what they give, in SQLite in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import CallResult, IsolationTier, ResultClass, RunResult
from posttrain.core.types import Verdict, VerdictStatus
from posttrain.sandbox.local import LocalSandbox
from posttrain.verifiers.sql import Sql

CORRECT, INCORRECT = VerdictStatus.CORRECT, VerdictStatus.INCORRECT
GOLD: dict[str, Any] = {
    "schema": "CREATE TABLE pet (name TEXT, kind TEXT, age INTEGER, weight REAL, chip BLOB);",
    "data": [
        {"pet": [["Ann", "cat", 3, 4.5, None], ["Bob", "dog", 5, 20.0, None], ["Cam", "cat", 7, None, None]]},
        {"pet": [["Dan", "cat", 1, 2.0, None], ["Dan", "cat", 1, 2.0, None], ["Eva", "eel", None, 1.0, None]]},
        {"pet": []},
    ],
    "query": "SELECT name FROM pet WHERE kind = 'cat'",
    "wrong": ["SELECT DISTINCT name FROM pet WHERE kind = 'cat'", "SELECT name FROM pet"],
}


class Judge:
    """One event loop and one sandbox for all tests of the file: a slot is started once."""

    def __init__(self) -> None:
        self.loop = asyncio.Runner()
        self.sandbox = LocalSandbox()
        self.verifier = Sql()

    def __call__(self, reply: str, /, **changes: Any) -> Verdict:
        return self.loop.run(self.verifier.verify(reply, GOLD | changes, self.sandbox))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    judge = Judge()
    yield judge
    judge.loop.run(judge.sandbox.close())
    judge.loop.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM pet WHERE kind = 'cat'",
        "Like so:\n```sql\nselect p.name as who from pet p where p.kind in ('cat') order by age desc;\n```",
        "WITH c AS (SELECT * FROM pet WHERE kind LIKE 'cat') SELECT name FROM c -- done",
    ],
)
def test_another_query_that_gives_the_same_rows_is_correct(judge: Judge, query: str) -> None:
    verdict = judge(query)
    assert verdict.status is CORRECT
    assert verdict.parts == {"tests_passed": 1.0}
    assert verdict.isolation_tier == judge.sandbox.tier


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT name FROM pet WHERE kind = 'cat'",
        "SELECT name FROM pet",
        "SELECT name, kind FROM pet WHERE kind = 'cat'",
        "SELECT kind FROM pet WHERE kind = 'cat'",
        "SELECT upper(name) FROM pet WHERE kind = 'cat'",
        "SELECT 'Ann' UNION ALL SELECT 'Cam'",
        "SELECT nothing FROM pet",
        "SELEC name FROM pet",
        "SELECT name FROM pet WHERE kind = 'cat' LIMIT 1",
    ],
)
def test_other_rows_are_incorrect(judge: Judge, query: str) -> None:
    verdict = judge(query)
    assert verdict.status is INCORRECT
    assert verdict.score == 0.0


def test_the_order_of_rows_counts_where_the_task_says_so(judge: Judge) -> None:
    gold = {"query": "SELECT name FROM pet ORDER BY name DESC", "wrong": ["SELECT name FROM pet ORDER BY name"]}
    assert judge("SELECT name FROM pet ORDER BY 1 DESC", ordered=True, **gold).status is CORRECT
    assert judge("SELECT name FROM pet ORDER BY name", ordered=True, **gold).status is INCORRECT
    assert judge("SELECT name FROM pet ORDER BY name", query=gold["query"], wrong=[]).status is CORRECT


def test_types_are_exact_and_null_is_a_value(judge: Judge) -> None:
    ages = {"query": "SELECT sum(age) FROM pet", "wrong": ["SELECT total(age) FROM pet"]}
    assert judge("SELECT sum(age) FROM pet", **ages).status is CORRECT
    assert judge("SELECT sum(age) * 1.0 FROM pet", **ages).status is INCORRECT
    assert judge("SELECT coalesce(sum(age), 0) FROM pet", **ages).status is INCORRECT
    assert judge("SELECT cast(sum(age) AS TEXT) FROM pet", **ages).status is INCORRECT
    blobs = {"query": "SELECT cast(name AS BLOB) FROM pet", "wrong": ["SELECT name FROM pet"]}
    assert judge("SELECT cast(name AS BLOB) FROM pet", **blobs).status is CORRECT
    assert judge("SELECT hex(name) FROM pet", **blobs).status is INCORRECT


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"data": GOLD["data"][:1]}, "2 items"),
        ({"data": [{"pet": []}, {"pet": []}], "wrong": []}, "same on every"),
        ({"query": "SELECT 1", "wrong": []}, "same on every"),
        ({"query": "SELECT nothing FROM pet"}, "fails"),
        ({"query": "DELETE FROM pet"}, "fails"),
        ({"schema": "CREATE TABEL pet"}, "fails"),
        ({"wrong": ["SELECT name FROM pet WHERE kind = 'cat' ORDER BY age"]}, "wrong query"),
        ({"data": [{"dog": []}, {"pet": [[1]]}]}, "fails"),
        ({"data": [{'p"': []}, {}]}, "quotation"),
        ({"order": True}, "order"),
    ],
)
def test_a_task_that_cannot_tell_queries_apart_is_an_error(judge: Judge, changes: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        judge("SELECT name FROM pet", **changes)


def test_hidden_rows_are_not_in_reason_or_evidence(judge: Judge) -> None:
    verdict = judge("SELECT json_extract('{}', name) FROM pet")
    assert verdict.status is INCORRECT
    assert "Ann" not in f"{verdict.reason}{verdict.evidence}"


@pytest.mark.parametrize(
    "failure",
    [
        SandboxError("closed"),
        CallResult(RunResult(ResultClass.INFRASTRUCTURE_ERROR, IsolationTier.FULL, reason="closed"), ()),
        CallResult(RunResult(ResultClass.TIME_LIMIT, IsolationTier.FULL, reason="closed"), ()),
    ],
)
def test_a_failure_of_the_sandbox_is_no_verdict(told_sandbox: Any, failure: Any) -> None:
    told_sandbox.results = [failure]
    verdict = asyncio.run(Sql().verify("SELECT 1", GOLD, told_sandbox))
    assert verdict.status is VerdictStatus.NO_VERDICT
