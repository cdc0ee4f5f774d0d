"""L14: ids, mask, log-probs and versions are one structure with one length, checked at every append."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.stream import TokenStream
from posttrain.core.types import Message, Role, Sample, Split, StopReason, Task, Trajectory

LENGTH = st.integers(0, 4)


def lengths(stream: TokenStream) -> set[int]:
    return {len(stream.tokens()), len(stream.sampled()), len(stream.logprobs()), len(stream.versions()), len(stream)}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(LENGTH, LENGTH, LENGTH), max_size=6))
def test_append_of_unequal_lengths_is_refused_whole_and_all_others_are_kept(
    appends: list[tuple[int, int, int]],
) -> None:
    stream = TokenStream()
    expected = 0
    for tokens, logprobs, versions in appends:
        arguments = ([5] * tokens, [-0.5] * logprobs, [0] * versions)
        if tokens == logprobs == versions:
            stream.sample(*arguments)
            expected += tokens
        else:
            with pytest.raises(ValueError, match="cannot be appended"):
                stream.sample(*arguments)
        assert lengths(stream) == {expected}


def trajectory(**fields: Any) -> Trajectory:
    task = Task("d", (Message(Role.USER, "?"),), {}, Split.TRAIN, 0, 0, 1)
    arrays = {
        "tokens": np.zeros(3, np.int32),
        "sampled": np.zeros(3, np.bool_),
        "behavior_logprobs": np.zeros(3, np.float32),
        "versions": np.zeros(3, np.int32),
    }
    return Trajectory("t", task, "g", 0, **{**arrays, **fields}, turns=(), reply="", stop=StopReason.STOP)


def sample(**fields: Any) -> Sample:
    arrays = {
        "tokens": np.zeros(3, np.int32),
        "trainable": np.zeros(3, np.bool_),
        "behavior_logprobs": np.zeros(3, np.float32),
        "advantages": np.zeros(3, np.float32),
        "loss_weights": np.ones(3, np.float32),
        "versions": np.zeros(3, np.int32),
        "reference_logprobs": None,
    }
    return Sample("t", 0, "g", "d", **{**arrays, **fields})


@pytest.mark.parametrize("field", ["tokens", "sampled", "behavior_logprobs", "versions"])
@pytest.mark.parametrize("length", [0, 2, 4])
def test_trajectory_with_one_array_of_another_length_is_refused(field: str, length: int) -> None:
    with pytest.raises(ValueError, match="differ in length"):
        trajectory(**{field: getattr(trajectory(), field).repeat(2)[:length]})


@pytest.mark.parametrize(
    "field",
    ["tokens", "trainable", "behavior_logprobs", "advantages", "loss_weights", "versions", "reference_logprobs"],
)
@pytest.mark.parametrize("length", [0, 2, 4])
def test_sample_with_one_array_of_another_length_is_refused(field: str, length: int) -> None:
    with pytest.raises(ValueError, match="differ in length"):
        sample(**{field: np.zeros(length, np.float32)})
