"""The growing token stream; the laws it serves have tests of their own in `tests/laws`."""

from __future__ import annotations

import math

import pytest

from posttrain.core.stream import TokenStream


def test_empty_stream_has_four_empty_arrays_of_the_right_types() -> None:
    stream = TokenStream()
    arrays = [stream.tokens(), stream.sampled(), stream.logprobs(), stream.versions()]
    assert [len(array) for array in arrays] == [0, 0, 0, 0]
    assert [array.dtype.name for array in arrays] == ["int32", "bool", "float32", "int32"]


def test_spans_name_the_sampled_tokens_in_the_whole_stream() -> None:
    stream = TokenStream()
    stream.observe([1, 2, 3])
    assert stream.sample([4, 5], [-0.1, -0.2], [0, 0]) == (3, 5)
    stream.observe([6])
    assert stream.sample([7], [-0.3], [1]) == (6, 7)
    assert len(stream) == 7


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf, 0.001])
def test_log_prob_that_is_none_is_refused_and_appends_nothing(logprob: float) -> None:
    stream = TokenStream()
    with pytest.raises(ValueError, match="not a finite number at most 0"):
        stream.sample([1, 2], [-1.0, logprob], [0, 0])
    assert len(stream) == 0


def test_certain_token_with_log_prob_zero_is_taken() -> None:
    stream = TokenStream()
    stream.sample([1], [0.0], [0])
    assert stream.sampled().tolist() == [True]


def test_sampled_token_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="no weight version"):
        TokenStream().sample([1], [-0.1], [-1])


def test_arrays_taken_earlier_do_not_change_when_the_stream_grows() -> None:
    stream = TokenStream()
    stream.observe([1, 2])
    before = stream.tokens()
    stream.observe([3])
    before[0] = 99
    assert stream.tokens().tolist() == [1, 2, 3]
