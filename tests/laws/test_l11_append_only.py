"""L11: the sampled ids are the trained ids: what went into the stream is in it for good, as it went in."""

from __future__ import annotations

import inspect

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core import stream as stream_module
from posttrain.core.stream import TokenStream

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=6)
APPENDS = st.lists(st.tuples(st.booleans(), TOKENS), max_size=8)
"""(the policy sampled it, ids)"""


def append(stream: TokenStream, sampled: bool, tokens: list[int]) -> None:
    if sampled:
        stream.sample(tokens, [-0.5] * len(tokens), [3] * len(tokens))
    else:
        stream.observe(tokens)


@settings(max_examples=100, deadline=None)
@given(APPENDS)
def test_stream_is_its_appends_in_order_and_every_earlier_state_is_its_prefix(
    appends: list[tuple[bool, list[int]]],
) -> None:
    stream = TokenStream()
    ids: list[int] = []
    for sampled, tokens in appends:
        before = stream.tokens()
        append(stream, sampled, tokens)
        ids += tokens
        np.testing.assert_array_equal(stream.tokens()[: len(before)], before)
    assert stream.tokens().tolist() == ids
    assert stream.tokens().dtype == np.int32


@settings(max_examples=100, deadline=None)
@given(APPENDS)
def test_span_of_a_sampled_turn_gives_back_the_very_ids(appends: list[tuple[bool, list[int]]]) -> None:
    stream = TokenStream()
    spans: list[tuple[tuple[int, int], list[int]]] = []
    for sampled, tokens in appends:
        if sampled:
            spans.append((stream.sample(tokens, [-0.5] * len(tokens), [0] * len(tokens)), tokens))
        else:
            stream.observe(tokens)
    for (start, end), tokens in spans:
        assert stream.tokens()[start:end].tolist() == tokens


def test_stream_offers_no_way_to_take_back_replace_or_re_encode() -> None:
    public = {name for name, _ in inspect.getmembers(TokenStream, inspect.isfunction) if not name.startswith("_")}
    assert public == {"observe", "sample", "tokens", "sampled", "logprobs", "versions"}
    assert not {"tokenizer", "decode", "encode"} & set(vars(stream_module))
