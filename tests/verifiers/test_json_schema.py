"""JSON against a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import Verdict, VerdictStatus
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.json_schema import JsonSchema
from posttrain.verifiers.json_text import read_json, same_json

CORRECT, INCORRECT = VerdictStatus.CORRECT, VerdictStatus.INCORRECT
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "born": {"type": "string", "format": "date"},
        "friends": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def verdict(reply: str, schema: Any = None, **gold: Any) -> Verdict:
    return JsonSchema().verify(reply, {"schema": PERSON if schema is None else schema, **gold})


@pytest.mark.parametrize(
    "reply",
    [
        '{"name": "Ann", "age": 3}',
        'Here it is.\n```json\n{"name": "Ann", "age": 3.0}\n```\nDone.',
        '{"name": "Ann", "age": 3, "born": "2024-02-29", "friends": [{"name": "Bob", "age": 4, "friends": []}]}',
    ],
)
def test_json_that_fits_is_correct_alone_or_in_its_one_block(reply: str) -> None:
    assert verdict(reply).status is CORRECT


@pytest.mark.parametrize(
    "reply",
    [
        '{"name": "Ann"}',
        '{"name": "Ann", "age": "3"}',
        '{"name": "Ann", "age": true}',
        '{"name": "Ann", "age": -1}',
        '{"name": "", "age": 3}',
        '{"name": "Ann", "age": 3, "extra": 1}',
        '{"name": "Ann", "age": 3, "born": "2023-02-29"}',
        '{"name": "Ann", "age": 3, "friends": [{}]}',
        "[]",
        "null",
    ],
)
def test_json_that_does_not_fit_is_incorrect_and_the_schema_is_not_quoted(reply: str) -> None:
    judged = verdict(reply)
    assert judged.status is INCORRECT
    assert "friends" not in judged.reason
    assert "minLength'" not in judged.reason


def test_a_stored_value_is_compared_as_json() -> None:
    gold = {"value": {"name": "Ann", "age": 3}}
    assert verdict('{"age": 3.0, "name": "Ann"}', **gold).status is CORRECT
    assert verdict('{"name": "Ann", "age": 4}', **gold).status is INCORRECT
    assert verdict("null", {}, value=None).status is CORRECT
    assert verdict("false", {}, value=0).status is INCORRECT


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("date-time", "2024-02-29T23:59:59Z", "2024-02-30T00:00:00Z"),
        ("date-time", "2024-02-29T23:59:59.5+02:00", "2024-02-29 23:59:59"),
        ("email", "a.b@example.org", "a@b"),
        ("hostname", "example.org", "-example.org"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("ipv6", "::1", ":::1"),
        ("uri", "https://example.org/a?b", "example"),
        ("uuid", "12345678-1234-1234-1234-123456789abc", "12345678123412341234123456789abc"),
        ("date", "2024-02-29", "２０２４-02-29"),
    ],
)
def test_a_format_is_checked(form: str, good: str, bad: str) -> None:
    schema = {"type": "string", "format": form}
    assert verdict(json.dumps(good), schema).status is CORRECT
    assert verdict(json.dumps(bad), schema).status is INCORRECT
    assert verdict(json.dumps(good + "x" * 400), schema).status is INCORRECT


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({}, "lets everything pass"),
        ({"allOf": [{}, {"title": "x"}]}, "lets everything pass"),
        ({"type": "objekt"}, "broken"),
        ({"pattern": "("}, "broken"),
        ({"$ref": "https://example.org/schema"}, "outside"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "outside"),
        ({"type": "object", "$id": "https://example.org/", "properties": {"a": {"$ref": "#"}}}, "id"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "none"),
        ({"$ref": "#"}, "without end"),
        ({"type": "object", "requird": ["a"]}, "requird"),
        ({"type": "string", "format": "phone"}, "phone"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "2020-12"),
    ],
)
def test_a_schema_that_could_not_judge_is_an_error(schema: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        verdict("{}", schema)


@pytest.mark.parametrize(
    "gold", [None, {}, {"schema": 5}, {"schema": PERSON, "extra": 1}, {"schema": PERSON, "value": 5}]
)
def test_a_task_of_another_shape_is_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match=r"schema"):
        JsonSchema().verify("{}", gold)


def test_a_schema_nested_without_end_is_an_error() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        schema = {"not": schema}
    with pytest.raises(ValueError, match="nested"):
        verdict("{}", schema)


def test_the_deepest_reply_that_is_read_ends() -> None:
    tree = {"type": "object", "properties": {"n": {"allOf": [{"$ref": "#"}]}}}
    assert verdict('{"n":' * 31 + "{}" + "}" * 31, tree).status is CORRECT
    assert verdict('{"n":' * 32 + "{}" + "}" * 32, tree).flags == (Flag.TOO_DEEP,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=5) | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(JSON)
def test_what_json_writes_is_read_back_as_the_same(value: Any) -> None:
    assert same_json(value, read_json(json.dumps(value)))
    assert not same_json(value, [value])


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=60))
def test_no_text_makes_the_verifier_raise(text: str) -> None:
    assert verdict(text).status is INCORRECT
