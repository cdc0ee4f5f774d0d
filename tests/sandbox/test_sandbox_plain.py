"""What may leave a sandbox, and that it arrives as it was."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.plain import MAX_CHARACTERS, MAX_DEPTH, NotPlainError, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def decoded(text: str) -> Any:
    """Through the host's own door: as the answer to an input."""
    conversation = Conversation([[]])
    message = conversation.next_message()
    assert message is not None
    token = conversation._token
    assert conversation.feed(f'{{"token":"{token}","value":{text}}}\n'.encode()), conversation.violation
    return conversation.outputs()[0].value


def with_types(value: Any) -> Any:
    """A value in which 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return dict, [(key, with_types(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [with_types(item) for item in value]
    return type(value), repr(value)


@settings(max_examples=150, deadline=None)
@given(plain)
def test_plain_data_arrives_with_its_exact_types(value: Any) -> None:
    assert with_types(decoded(encode(value))) == with_types(value)


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Colour(enum.IntEnum):
    RED = 1


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        Liar(3),
        Colour.RED,
        [Liar(3)],
        type("S", (str,), {})("text"),
        type("L", (list,), {})(),
        {1: 2},
        {Liar(3): 1},
        {1, 2},
        b"bytes",
        1j,
        object(),
        math.nan,
        math.inf,
        "\ud800",
        2**9000,
        "a" * (MAX_CHARACTERS + 1),
        ["a" * 1000] * 1100,
        nested(MAX_DEPTH + 1),
        cyclic(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_does_not_leave(value: Any) -> None:
    with pytest.raises(NotPlainError):
        encode(value)


def test_the_deepest_plain_value_passes() -> None:
    assert decoded(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


def test_shared_parts_that_would_multiply_are_refused_early() -> None:
    value: list[Any] = ["x"]
    for _ in range(MAX_DEPTH - 1):
        value = [value, value]
    with pytest.raises(NotPlainError, match="larger than"):
        encode(value)


def test_the_form_is_json() -> None:
    assert json.loads(encode({"a": (1, [2.5, None])})) == {"dict": {"a": {"tuple": [1, [2.5, None]]}}}
