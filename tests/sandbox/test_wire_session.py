"""What a remote session and its server say to one another comes as it was written, and is bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.sandboxing import (
    CellResult,
    IsolationTier,
    ResultClass,
    RunResult,
    SandboxLimits,
    TestOutcome,
    TestResult,
)
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.wire_session import (
    DIFF,
    READ,
    RUN_TESTS,
    VERBS,
    Opened,
    VerbRequest,
    max_verb_answer_bytes,
    read_verb,
    read_verb_answer,
    write_verb,
    write_verb_answer,
)

LIMITS = SandboxLimits(wall_s=60.0)
RESULT = RunResult(ResultClass.SIGNAL, IsolationTier.FULL, "\0ü", "", -9, True, 1.5, 0.5, 7.0, "why")
FORMS: dict[str, tuple[st.SearchStrategy[dict[str, Any]], st.SearchStrategy[Any]]] = {
    "exec": (
        st.fixed_dictionaries({"argv": st.lists(st.text()), "stdin": st.text(), "limits": st.just(LIMITS)}),
        st.just(RESULT),
    ),
    "cell": (
        st.fixed_dictionaries({"code": st.text(), "limits": st.just(LIMITS)}),
        st.builds(CellResult, st.just(RESULT), st.booleans(), st.booleans()),
    ),
    "read": (st.fixed_dictionaries({"path": st.text()}), st.binary()),
    "write": (st.fixed_dictionaries({"path": st.text(), "content": st.binary()}), st.none()),
    "edit": (st.fixed_dictionaries({"path": st.text(), "old": st.text(), "new": st.text()}), st.none()),
    "list": (st.fixed_dictionaries({"path": st.text()}), st.lists(st.text())),
    "run_tests": (
        st.fixed_dictionaries(
            {
                "tests": st.dictionaries(st.text(), st.text()),
                "expected": st.lists(st.text()),
                "limits": st.just(LIMITS),
            }
        ),
        st.dictionaries(st.text(), st.sampled_from(TestOutcome)).map(
            lambda outcomes: TestResult(RESULT, outcomes, "a")
        ),
    ),
    "snapshot": (st.just({}), st.text()),
    "restore": (st.fixed_dictionaries({"snapshot": st.text()}), st.none()),
    "diff": (st.just({}), st.dictionaries(st.text(), st.none() | st.binary())),
    "fork": (st.just({}), st.builds(Opened, st.text(), st.floats(min_value=0.1, max_value=1e9))),
}


@settings(deadline=None)
@given(name=st.sampled_from(sorted(VERBS)), number=st.integers(min_value=1), data=st.data())
def test_nothing_of_a_verb_is_lost_on_the_way(name: str, number: int, data: st.DataObject) -> None:
    arguments, answers = FORMS[name]
    asked, answer = VerbRequest("session", number, VERBS[name], data.draw(arguments)), data.draw(answers)
    body = write_verb(asked)
    assert read_verb(body) == asked
    answered = write_verb_answer(asked.verb, answer)
    assert read_verb_answer(asked.verb, answered) == answer


@pytest.mark.parametrize("answer", [b"{}", b'{"answer":7}', b'{"answer":"!"}', b"", b"[]"])
def test_a_malformed_answer_is_one(answer: bytes) -> None:
    with pytest.raises(MalformedError):
        read_verb_answer(READ, answer)


def test_no_honest_answer_to_a_verb_is_too_large() -> None:
    session, step = SandboxLimits(disk_mib=1), SandboxLimits(output_kib=1)
    body = write_verb(VerbRequest("x", 1, DIFF, {}))
    changes: dict[str, bytes | None] = {f"{n}": bytes(1 << 10) for n in range(2 << 10)}
    assert len(write_verb_answer(DIFF, changes)) <= max_verb_answer_bytes(body, session, step)
    body = write_verb(VerbRequest("x", 1, RUN_TESTS, {"tests": {}, "expected": ["\x01"] * 1000, "limits": step}))
    outcomes = {f"{n}\x01": TestOutcome.MISSING for n in range(1000)}
    result = TestResult(RunResult(ResultClass.OK, IsolationTier.FULL, "\U0001f71c" * 256), outcomes, "a" * 64, "a" * 64)
    tests_alone = max_verb_answer_bytes(body, SandboxLimits(disk_mib=0), step) - (2 << 20)
    assert len(write_verb_answer(RUN_TESTS, result)) <= tests_alone
