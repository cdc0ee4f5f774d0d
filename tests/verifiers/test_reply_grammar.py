"""The grammar of replies: what has the form, and that everything else lacks it with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.verifiers.reply_grammar import form, misformed

WELL_FORMED = [
    "Answer: 12",
    "5 + 7 = 12. Answer: 12",
    "First 5 + 7 = 12.\nThen 12 - 4 = 8.\nAnswer: 8",
    "<think>Five and seven make twelve.</think>\nAnswer: 12",
    "  <think>\nFive and seven.\nThat is twelve.\n</think>\n\nSo it is twelve. Answer: 12.",
    "So. 5 + 7 = 12. So. Answer: 12",
    "2 + 2 = 4. 2 * 2 = 4. Answer: 4",
    "If a < b and b > c, then a may be c. Answer: 3",
]


@pytest.mark.parametrize("reply", WELL_FORMED)
def test_honest_replies_have_the_form(reply: str) -> None:
    assert misformed(reply) == ""
    assert form(reply) == 1.0


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "begins with 'Answer:'"),
        ("Answer: 3\nAnswer: 3", "2 answers"),
        ("Answer: 3. And so on.", "behind the answer"),
        ("<think>because</think>\nAnswer: 3 <think>more</think>", "a tag beside"),
        ("<think>Five and seven. Answer: 12", "not closed"),
    ],
)
def test_what_lacks_the_form_says_why(reply: str, reason: str) -> None:
    assert reason in misformed(reply)
    assert form(reply) == 0.0


@given(st.text(max_size=300))
def test_any_text_is_answered(reply: str) -> None:
    assert form(reply) in (0.0, 1.0)
