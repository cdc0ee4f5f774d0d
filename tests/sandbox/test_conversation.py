"""The host's half of a call, against a program that writes whatever it likes."""

from __future__ import annotations

import marshal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import UserError
from posttrain.core.sandboxing import OutputStatus, ResultClass
from posttrain.sandbox.conversation import Conversation


def asked(conversation: Conversation) -> tuple[str, list[Any]]:
    """Ask the next input; its token and arguments as the program sees them."""
    message = conversation.next_message()
    assert message is not None
    assert int.from_bytes(message[:4], "big") == len(message) - 4
    token, arguments = marshal.loads(message[4:])
    return token, arguments


def test_inputs_go_in_one_at_a_time_and_tuples_stay_tuples() -> None:
    conversation = Conversation([[1, (2, 3)], ["b"]])
    token, arguments = asked(conversation)
    assert arguments == [1, (2, 3)]
    assert conversation.feed(f'{{"token":"{token}","value":5}}\n'.encode())
    token, arguments = asked(conversation)
    assert arguments == ["b"]
    assert conversation.feed(f'{{"token":"{token}","raised":"ValueError: no","limit":""}}\n'.encode())
    assert conversation.next_message() is None
    assert [output.status for output in conversation.outputs()] == [OutputStatus.VALUE, OutputStatus.RAISED]


@pytest.mark.parametrize(
    "answer",
    [
        b"not json\n",
        b"[1]\n",
        b"{}\n",
        b'{"token":"","value":1}\n',
        b'{"token":"0000000000000000","value":1}\n',
        b'{"token":"TOKEN"}\n',
        b'{"token":"TOKEN","value":1,"raised":"both"}\n',
        b'{"token":"TOKEN","verdict":"correct"}\n',
        b'{"token":"TOKEN","raised":5}\n',
        b'{"token":"TOKEN","raised":"E","limit":"infrastructure_error"}\n',
        b'{"token":"TOKEN","value":NaN}\n',
        b'{"token":"TOKEN","value":1e999}\n',
        b'{"token":"TOKEN","value":"\\ud800"}\n',
        b'{"token":"TOKEN","value":{"set":[1]}}\n',
        b'{"token":"TOKEN","value":{"tuple":[],"dict":{}}}\n',
        b'{"token":"TOKEN","value":' + b"9" * 5000 + b"}\n",
        b'{"token":"TOKEN","value":' + b"[" * 40 + b"]" * 40 + b"}\n",
        b'{"token":"TOKEN","value":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"token":"TOKEN","value":1}\n{"token":"TOKEN","value":1}\n',
        b'{"token":"TOKEN","value":1}\nx',
        b"x" * (1 << 21),
        b'"' + b"x" * (1 << 21) + b'"\n',
        b"\xff\xfe\n",
    ],
)
def test_any_other_answer_is_a_violation_and_the_rest_is_missing(answer: bytes) -> None:
    conversation = Conversation([[1], [2]])
    token, _ = asked(conversation)
    assert not conversation.feed(answer.replace(b"TOKEN", token.encode()))
    assert conversation.violation.startswith("protocol violation: ")
    assert {output.status for output in conversation.outputs()} == {OutputStatus.MISSING}


def test_after_a_violation_nothing_is_believed() -> None:
    conversation = Conversation([[1]])
    token, _ = asked(conversation)
    conversation.feed(b"junk\n")
    assert not conversation.feed(f'{{"token":"{token}","value":5}}\n'.encode())
    assert conversation.outputs()[0].status is OutputStatus.MISSING


def test_a_second_answer_to_the_same_input_is_a_violation() -> None:
    conversation = Conversation([[1]])
    token, _ = asked(conversation)
    answer = f'{{"token":"{token}","value":5}}\n'.encode()
    assert conversation.feed(answer)
    assert not conversation.feed(answer)
    assert conversation.violation


def test_a_used_token_does_not_answer_the_next_input() -> None:
    conversation = Conversation([[1], [2]])
    token, _ = asked(conversation)
    assert conversation.feed(f'{{"token":"{token}","value":5}}\n'.encode())
    asked(conversation)
    assert not conversation.feed(f'{{"token":"{token}","value":5}}\n'.encode())
    assert [output.status for output in conversation.outputs()] == [OutputStatus.VALUE, OutputStatus.MISSING]


def test_a_source_that_cannot_be_loaded_says_why() -> None:
    conversation = Conversation([[1], [2]])
    asked(conversation)
    assert not conversation.feed(b'{"load_failed":"MemoryError: ","limit":"memory_limit"}\n')
    assert not conversation.violation
    assert conversation.limit is ResultClass.MEMORY_LIMIT
    assert [output.error for output in conversation.outputs()] == ["MemoryError: "] * 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"\n", b'{"token":"', b'"value":1}', b'{"load_failed":"x"}']))
)
def test_bytes_of_any_kind_neither_raise_nor_become_a_value(pieces: list[bytes]) -> None:
    conversation = Conversation([[1]])
    asked(conversation)
    for piece in pieces:
        assert not conversation.feed(piece)
    assert conversation.outputs()[0].status is OutputStatus.MISSING


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=6))
def test_an_answer_may_come_in_pieces(cuts: list[int]) -> None:
    conversation = Conversation([[1]])
    token, _ = asked(conversation)
    rest = f'{{"token":"{token}","value":{{"tuple":[1,2]}}}}\n'.encode()
    for cut in cuts:
        piece, rest = rest[: min(cut, len(rest) - 1)], rest[min(cut, len(rest) - 1) :]
        assert not conversation.feed(piece)
    assert conversation.feed(rest)
    assert conversation.outputs()[0].value == (1, 2)


def test_inputs_that_are_no_plain_data_are_the_callers_mistake() -> None:
    with pytest.raises(UserError, match="input 1"):
        Conversation([[1], [{2, 3}]])
