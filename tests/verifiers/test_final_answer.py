"""The one grammar for final answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.verifiers.final_answer import Refused, read_final_answer
from posttrain.verifiers.flags import Flag


@pytest.mark.parametrize(
    "reply",
    [
        "Answer: 34",
        "Answer: 34.",
        "  Answer:34 \n",
        "17 + 25 = 42. 42 - 8 = 34. Answer: 34",
        "Let me think.\nFirst 42, then 34\nAnswer: 34\n\n",
        "Easy!  Answer: 34",
        "<think></think>\nAnswer: 34",
    ],
)
def test_one_final_line_or_sentence_is_read(reply: str) -> None:
    assert read_final_answer(reply) == "34"


@pytest.mark.parametrize(
    ("reply", "flag"),
    [
        ("", Flag.NO_ANSWER),
        ("34", Flag.NO_ANSWER),
        ("The answer is 34.", Flag.NO_ANSWER),
        ("answer: 34", Flag.NO_ANSWER),
        ("ANSWER: 34", Flag.NO_ANSWER),
        ("Answer : 34", Flag.NO_ANSWER),
        ("So my Answer: 34", Flag.NO_ANSWER),
        ("Answer:", Flag.NO_ANSWER),
        ("Answer: .", Flag.NO_ANSWER),
        ("Answer: 34\nAnswer: 34", Flag.SEVERAL_ANSWERS),
        ("Answer: 34. Answer: 35", Flag.SEVERAL_ANSWERS),
        ("My answer: 5. Answer: 34", Flag.SEVERAL_ANSWERS),
        ("Answer: 34\nBecause 42 - 8 is 34.", Flag.TEXT_AFTER_ANSWER),
        ("Answer: 34. Because 42 - 8 is 34.", Flag.TEXT_AFTER_ANSWER),
        ("Answer: 34\u2028more", Flag.TEXT_AFTER_ANSWER),
        ("Answer: 34 or 35", Flag.HEDGED),
        ("Answer: either 34", Flag.HEDGED),
        ("Answer: about 34", Flag.HEDGED),
        ("Answer: ~34", Flag.HEDGED),
        ("Answer: " + "3" * 500, Flag.TOO_LONG),
        ("so. " * 10_000 + "Answer: 34", Flag.TOO_LONG),
    ],
)
def test_anything_else_is_refused_with_a_flag(reply: str, flag: Flag) -> None:
    refused = read_final_answer(reply)
    assert isinstance(refused, Refused)
    assert refused.flags == (flag,)
    assert refused.verdict().score == 0.0


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200), st.sampled_from(["", "Answer:", "\nAnswer: ", "answer:"]), st.text(max_size=50))
def test_any_text_is_read_or_refused_and_what_is_read_is_one_line(before: str, marker: str, after: str) -> None:
    answer = read_final_answer(before + marker + after)
    if isinstance(answer, str):
        assert answer
        assert len(answer.splitlines()) == 1
        assert answer in after or answer in before
