"""L12: masks come from what was appended, never from a search; only tokens that the policy sampled are trainable."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.stream import TokenStream

FEW_IDS = st.lists(st.integers(0, 2), max_size=6)
"""So few that every marker and every turn occurs in prompts and tool output too."""
APPENDS = st.lists(st.tuples(st.booleans(), FEW_IDS), max_size=8)


@settings(max_examples=200, deadline=None)
@given(APPENDS)
def test_mask_follows_the_sampled_spans_whatever_the_ids_look_like(appends: list[tuple[bool, list[int]]]) -> None:
    stream = TokenStream()
    mask: list[bool] = []
    for sampled, tokens in appends:
        if sampled:
            stream.sample(tokens, [-0.5] * len(tokens), [0] * len(tokens))
        else:
            stream.observe(tokens)
        mask += [sampled] * len(tokens)
    assert stream.sampled().tolist() == mask


def test_reply_repeated_in_the_prompt_and_by_a_tool_is_trained_once() -> None:
    stream = TokenStream()
    reply = [7, 8, 9]
    stream.observe([1, *reply, 2])
    stream.sample(reply, [-0.1, -0.2, -0.3], [0, 0, 0])
    stream.observe(reply)
    assert stream.sampled().tolist() == [False] * 5 + [True] * 3 + [False] * 3


def test_tokens_that_were_not_sampled_carry_no_log_prob_and_no_version() -> None:
    stream = TokenStream()
    stream.observe([1, 2])
    stream.sample([3], [-0.25], [4])
    stream.observe([5])
    assert stream.logprobs().tolist() == [0.0, 0.0, -0.25, 0.0]
    assert stream.versions().tolist() == [-1, -1, 4, -1]
