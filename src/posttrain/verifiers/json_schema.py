"""Answers that are one JSON value, checked against a schema (JSON Schema 2020-12) and perhaps against a stored value.

`gold` is `{"schema": …, "value": …}`, the value optional. The reply is the JSON, or has it in its one fenced block. A
schema that is broken, that refers outside itself, that uses a keyword or a format which nothing would check, or that
lets everything pass is an error of the task. Nothing is fetched. A slow `pattern` is ended by whoever set the deadline.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.fenced import read_fenced
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.json_text import read_json, same_json

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_DEPTH = 32
MAX_FORMATTED_CHARACTERS = 300
MAX_ANSWER_CHARACTERS = 500

_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS = (
    *("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_REFERENCES = ("$ref", "$dynamicRef")
_KNOWN = {
    *(*_MAPS_OF_SCHEMAS, *_LISTS_OF_SCHEMAS, *_SCHEMAS, *_REFERENCES),
    *("type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
    *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains"),
    *("maxProperties", "minProperties", "required", "dependentRequired", "format"),
    *("$schema", "$anchor", "$dynamicAnchor", "$comment", "title", "description", "default", "examples", "deprecated"),
}
_PROBES: tuple[Json, ...] = (None, True, 0, 0.5, "", "a", [], [0], {}, {"a": 0})
"""What lets all of these pass asks for nothing; what cannot end on them ends on nothing."""
_MISSING = object()


@dataclass(frozen=True)
class JsonSchema:
    """The reply is JSON that fits the task's schema and, where there is one, is its value."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        schema, wanted = _read_gold(gold)
        text = read_fenced(reply, ("json", ""), "JSON")
        value = text if isinstance(text, Refused) else read_json(text)
        if isinstance(value, Refused):
            return value.verdict()
        answer = str(text)[:MAX_ANSWER_CHARACTERS]
        try:
            error = next(schema.iter_errors(value), None)
        except RecursionError:  # on the probes it ended, so that it is the reply's depth
            return Verdict.incorrect("the JSON is nested too deeply for its schema", flags=(Flag.TOO_DEEP,))
        if error is not None:
            # The error's own message quotes the schema.
            return Verdict.incorrect(f"the JSON does not fit its schema ({error.validator})", answer=answer)
        if wanted is not _MISSING and not same_json(wanted, value):
            return Verdict.incorrect("the JSON fits its schema and is another value", answer=answer)
        return Verdict.correct(answer=answer)


@gold_record
class SchemaGold:
    """`JsonSchema`'s gold, as it is written; a value that is absent is not compared."""

    schema: dict[str, Any]
    value: Any = None


_read = gold_reader(SchemaGold, "a schema")


def _read_gold(gold: Json) -> tuple[Draft202012Validator, Json]:
    """The schema, ready, and the value or `_MISSING`. Raises ValueError for a task that cannot be judged."""
    record: SchemaGold = _read(gold)
    wanted = gold.get("value", _MISSING)
    if str(record.schema.get("$schema", DIALECT)).rstrip("#") != DIALECT:
        raise ValueError(f"only JSON Schema 2020-12 is read, not {record.schema['$schema']!r}")
    for part in _parts(record.schema, 0):
        _check_part(part)
    try:
        Draft202012Validator.check_schema(record.schema)
        root = Registry().resolver_with_root(DRAFT202012.create_resource(record.schema))
        for reference in _references(record.schema):
            # Looked up now: a reference that only some replies reach would fail them and not the task.
            root.lookup(reference)
        validator = Draft202012Validator(record.schema, registry=Registry(), format_checker=_FORMATS)
        passed = [validator.is_valid(probe) for probe in _PROBES]
        fits = wanted is _MISSING or validator.is_valid(wanted)
    except SchemaError as error:
        raise ValueError(f"the schema is broken: {error.message}") from None
    except RecursionError:
        raise ValueError("the schema refers to itself without end") from None
    except (Unresolvable, re.error) as error:
        raise ValueError(f"the schema cannot be used: {error}") from None
    if wanted is _MISSING and all(passed):
        raise ValueError("the schema lets everything pass, and no value is given")
    if not fits:
        raise ValueError("the task's own value does not fit its schema")
    return validator, wanted


def _parts(schema: Json, depth: int) -> Iterator[dict[str, Json]]:
    """All objects in it that are schemas, itself included."""
    if depth > MAX_SCHEMA_DEPTH:
        raise ValueError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH}")
    if not isinstance(schema, dict):
        return
    yield schema
    inner = [schema[key] for key in _SCHEMAS if key in schema]
    for key in _MAPS_OF_SCHEMAS:
        inner += schema[key].values() if isinstance(schema.get(key), dict) else []
    for key in _LISTS_OF_SCHEMAS:
        inner += schema[key] if isinstance(schema.get(key), list) else []
    for part in inner:
        yield from _parts(part, depth + 1)


def _check_part(part: dict[str, Json]) -> None:
    if unknown := sorted(part.keys() - _KNOWN):
        raise ValueError(f"nothing would check the schema's keyword {unknown[0]!r}")
    if "format" in part and part["format"] not in _FORMAT_RULES:
        raise ValueError(f"nothing would check the format {part['format']!r}; known are {', '.join(_FORMAT_RULES)}")
    if not all(str(part[key]).startswith("#") for key in _REFERENCES if key in part):
        raise ValueError("the schema refers to something outside itself")


def _references(schema: dict[str, Json]) -> Iterator[str]:
    for part in _parts(schema, 0):
        yield from (part[key] for key in _REFERENCES if key in part)


def _pattern(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.ASCII).fullmatch


def _moment(text: str) -> object:
    shape = r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:[Zz]|[+-][01]\d:[0-5]\d|[+-]2[0-3]:[0-5]\d)"
    match = re.fullmatch(shape, text, re.ASCII)
    return match and datetime.datetime.fromisoformat(f"{match[1]}T{match[2]}")


def _date(text: str) -> object:
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) and datetime.date.fromisoformat(text)


_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_FORMAT_RULES: dict[str, Callable[[str], object]] = {
    "date": _date,
    "date-time": _moment,
    "email": _pattern(r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}"),
    "hostname": _pattern(rf"{_LABEL}(?:\.{_LABEL}){{0,10}}"),
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uri": _pattern(r"[A-Za-z][A-Za-z0-9+.-]{0,20}:[^\s<>\"{}|\\^`\x00-\x1f]{1,279}"),
    "uuid": _pattern(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
}


def _formats() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, rule in _FORMAT_RULES.items():

        def check(value: object, rule: Callable[[str], object] = rule) -> bool:
            return not isinstance(value, str) or (len(value) <= MAX_FORMATTED_CHARACTERS and bool(rule(value)))

        checker.checkers = {**checker.checkers, name: (check, ValueError)}
    return checker


_FORMATS = _formats()
