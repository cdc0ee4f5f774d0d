"""One item of an answer: a value with its unit, a tuple, set, interval, matrix, ratio, equation or inequality."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from posttrain.verifiers.math.answers import Answer, Colon, Domain, Kind, Matrix, Sequence, Value
from posttrain.verifiers.math.exact import folded
from posttrain.verifiers.math.expression import Apply, Expression, Number, apply, negative, nodes, number
from posttrain.verifiers.math.intervals import REALS, Interval, Region, point
from posttrain.verifiers.math.parser import in_base, parse, parse_all
from posttrain.verifiers.math.relations import is_relation, read_relation
from posttrain.verifiers.math.splitting import closing_of, split, unwrapped
from posttrain.verifiers.math.tokens import Token, Unreadable
from posttrain.verifiers.math.units import read_suffix, take_currency

_MAX_SIGNS = 4
_MAX_DETERMINANT = 4
_SET_OPERATIONS = ("cup", "cap", "setminus")
_MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "smallmatrix", "array")


def read_item(tokens: list[Token]) -> Answer:
    """Raises `Unreadable`."""
    tokens = unwrapped(tokens)
    if not tokens:
        raise Unreadable("an item is empty")
    if any(token.kind == "command" and token.text == "begin" for token in tokens):
        return _matrix(tokens)
    if is_relation(tokens):
        return read_relation(tokens, read_item)
    operands, operations = split(tokens, lambda token: token.kind == "command" and token.text in _SET_OPERATIONS)
    if operations:
        return _combined(operands, operations)
    parts, colons = split(tokens, lambda token: token.kind == ":")
    if colons:
        return _colon(parts)
    collection = _collection(tokens)
    return _value(tokens) if collection is None else collection


def region_of(answer: Answer) -> Region:
    """Raises `Unreadable` where it is none."""
    if isinstance(answer, Domain):
        return answer.region
    if isinstance(answer, Sequence) and all(isinstance(item, Value) for item in answer.items):
        values = [item.expression for item in answer.items if isinstance(item, Value)]
        if answer.kind is Kind.TUPLE and len(values) == 2:
            interval = Interval(values[0], values[1])
            if not interval.is_empty:
                return Region.of([interval])
        if answer.kind in (Kind.SET, Kind.LIST):
            return Region.of(point(value) for value in values)
    if isinstance(answer, Value):
        return Region.of([point(answer.expression)])
    raise Unreadable("it is no part of the real line")


def _combined(operands: list[list[Token]], operations: list[Token]) -> Answer:
    region = region_of(read_item(operands[0]))
    for operation, operand in zip(operations, operands[1:], strict=True):
        other = region_of(read_item(operand))
        if operation.text == "cup":
            region = region.union(other)
        else:
            region = region.intersection(other if operation.text == "cap" else other.complement())
    return Domain(region)


def _colon(parts: list[list[Token]]) -> Answer:
    if len(parts) > 3:
        raise Unreadable("too many colons")
    last = parts[-1]
    suffix = "".join(token.text for token in last[1:] if token.kind not in ("{", "}", ".")).lower()
    heads = [part[0] for part in parts if part]
    plain = all(len(part) == 1 for part in parts[:-1]) and len(heads) == len(parts)
    if not plain or suffix not in ("", "am", "pm") or not all(token.text.isdigit() for token in heads):
        raise Unreadable("a colon stands between integers only")
    return Colon(tuple(int(token.text) for token in heads), suffix)


def _collection(tokens: list[Token]) -> Answer | None:  # noqa: PLR0911 - one line for each case
    first, last = tokens[0], tokens[-1]
    if first.kind == "command":
        if first.text == "emptyset" and len(tokens) == 1:
            return Sequence(Kind.SET, ())
        if first.text == "mathbb" and [token.text for token in tokens[1:]] in (["{", "R", "}"], ["R"], []):
            return Domain(REALS)
        if first.text == "langle" and last.text == "rangle":
            return Sequence(Kind.TUPLE, tuple(read_item(part) for part in _commas(tokens[1:-1])))
    if first.kind == "]" and last.kind == "[":  # the French open interval
        return _interval("(", ")", _commas(tokens[1:-1]))
    if closing_of(tokens) != len(tokens) - 1 or first.kind not in ("(", "[", "{", "\\{"):
        return _french(tokens)
    inner = tokens[1:-1]
    if first.kind == "\\{":
        return _set(inner)
    parts = _commas(inner)
    if len(parts) == 1:
        return None
    if first.kind == "{":
        return Sequence(Kind.SET, tuple(read_item(part) for part in parts))
    if len(parts) == 2 and (first.kind, last.kind) != ("(", ")"):
        return _interval(first.kind, last.kind, parts)
    return Sequence(Kind.TUPLE, tuple(read_item(part) for part in parts))


def _french(tokens: list[Token]) -> Answer | None:
    """`]0, 1]` and `[0, 1[`, whose brackets do not match."""
    if (tokens[0].kind, tokens[-1].kind) not in (("]", "]"), ("[", "["), ("]", ")"), ("(", "[")):
        return None
    parts = _commas(tokens[1:-1])
    opening = "(" if tokens[0].kind in ("]", "(") else "["
    closing = ")" if tokens[-1].kind in ("[", ")") else "]"
    return _interval(opening, closing, parts) if len(parts) == 2 else None


def _interval(opening: str, closing: str, parts: list[list[Token]]) -> Answer:
    if len(parts) != 2:
        raise Unreadable("an interval has two ends")
    low, high = (parse_all(unwrapped(part)) for part in parts)
    try:
        interval = Interval(low, high, opening == "[", closing == "]")
        if not interval.is_empty:
            return Domain(Region.of([interval]))
    except Unreadable:
        pass  # its ends have variables
    kinds = {"[]": Kind.CLOSED, "(]": Kind.HALF_OPEN_LEFT, "[)": Kind.HALF_OPEN_RIGHT}
    return Sequence(kinds.get(opening + closing, Kind.TUPLE), (Value(low), Value(high)))


def _set(inner: list[Token]) -> Answer:
    bars, bar = split(inner, lambda token: token.kind in ("|", ":") or token.text == "mid")
    if len(bar) == 1 and is_relation(bars[1]):  # {x | x > 2}
        condition = read_item(bars[1])
        if isinstance(condition, Domain) and condition.name is not None:
            return dataclasses.replace(condition, name=None)
        raise Unreadable("a set's condition is no inequality of one variable")
    items: list[Answer] = []
    for part in _commas(inner) if inner else []:
        item = read_item(part)
        items.extend(item.items if isinstance(item, Sequence) and item.kind is Kind.LIST else (item,))
    return Sequence(Kind.SET, tuple(items))


def _commas(tokens: list[Token]) -> list[list[Token]]:
    return split(tokens, lambda token: token.kind in (",", ";"))[0]


def _value(tokens: list[Token]) -> Answer:
    tokens, measure = take_currency(tokens)
    expression, rest = parse(tokens)
    suffix = read_suffix(rest)
    if measure is not None and suffix.measure is not None:
        raise Unreadable("it has two units")
    if isinstance(expression, Apply) and expression.operation == "degree" and suffix.measure is None:
        expression, suffix = expression.arguments[0], dataclasses.replace(suffix, measure=_DEGREE)
    if suffix.base is not None:
        if not isinstance(expression, Number) or expression.value.denominator != 1:
            raise Unreadable("a base stands behind what is no numeral")
        expression = in_base(expression.value, suffix.base)
    if suffix.scale != 1:
        scaled = isinstance(expression, Number)
        expression = (
            Number(expression.value * suffix.scale)
            if scaled and isinstance(expression, Number)
            else apply("mul", number(suffix.scale), expression)
        )
    values = [Value(one, measure or suffix.measure) for one in _signs_chosen(expression)]
    return values[0] if len(values) == 1 else Sequence(Kind.LIST, tuple(values))


_DEGREE = read_suffix([Token("word", "degree")]).measure


def _signs_chosen(expression: Expression) -> list[Expression]:
    """All that `±` may mean; `∓` is its opposite where both stand."""
    names = {node.operation for node in nodes(expression) if isinstance(node, Apply)} & {"pm", "mp"}
    if not names:
        return [expression]
    count = sum(1 for node in nodes(expression) if isinstance(node, Apply) and node.operation in names)
    if count > _MAX_SIGNS:
        raise Unreadable(f"there are {count} signs ±")
    if len(names) == 2:
        return [_with_signs(expression, iter([plus] * count)) for plus in (True, False)]
    return [_with_signs(expression, iter(signs)) for signs in itertools.product((True, False), repeat=count)]


def _with_signs(expression: Expression, signs: Iterator[bool]) -> Expression:
    if not isinstance(expression, Apply):
        return expression
    arguments = [_with_signs(argument, signs) for argument in expression.arguments]
    if expression.operation not in ("pm", "mp"):
        return Apply(expression.operation, tuple(arguments))
    plus = next(signs) == (expression.operation == "pm")
    last = arguments[-1] if plus else negative(arguments[-1])
    return last if len(arguments) == 1 else folded(apply("add", arguments[0], last))


def _matrix(tokens: list[Token]) -> Answer:
    begin = next(at for at, token in enumerate(tokens) if token.text == "begin")
    name, begin_at = _environment(tokens, begin + 1)
    end = begin + closing_of(tokens[begin:])
    if name not in _MATRICES or end < begin_at:
        raise Unreadable(f"the environment {name!r} is not read")
    head, behind = tokens[:begin], tokens[_environment(tokens, end + 1)[1] :]
    if name == "array":
        begin_at += closing_of(tokens[begin_at:]) + 1
    if head and behind and (head[-1].kind, behind[0].kind) in (("(", ")"), ("[", "]")):
        head, behind = head[:-1], behind[1:]
    if behind:
        raise Unreadable("something follows a matrix")
    rows = _rows(tokens[begin_at:end])
    if name == "vmatrix":
        determinant = folded(_determinant(rows))
        return Value(apply("mul", parse_all(head), determinant) if head else determinant)
    if head:
        factor = negative(number(1)) if [token.kind for token in head] == ["-"] else parse_all(head)
        rows = tuple(tuple(folded(apply("mul", factor, cell)) for cell in row) for row in rows)
    return Matrix(rows)


def _environment(tokens: list[Token], at: int) -> tuple[str, int]:
    """The name in `{…}` at a place, and the place behind it."""
    end = next((index for index in range(at, len(tokens)) if tokens[index].kind == "}"), -1)
    if end < 0:
        raise Unreadable("an environment has no name")
    return "".join(token.text for token in tokens[at + 1 : end]), end + 1


def _rows(tokens: list[Token]) -> tuple[tuple[Expression, ...], ...]:
    lines = [line for line in split(tokens, lambda token: token.kind == "\\\\")[0] if line]
    rows = tuple(
        tuple(parse_all(unwrapped(cell)) for cell in split(line, lambda token: token.kind == "&")[0]) for line in lines
    )
    if not rows or len({len(row) for row in rows}) != 1:
        raise Unreadable("the rows of a matrix differ in length")
    return rows


def _determinant(rows: tuple[tuple[Expression, ...], ...]) -> Expression:
    if len(rows) != len(rows[0]) or len(rows) > _MAX_DETERMINANT:
        raise Unreadable("there is no determinant")
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for column, cell in enumerate(rows[0]):
        minor = tuple(row[:column] + row[column + 1 :] for row in rows[1:])
        term = apply("mul", cell, _determinant(minor))
        terms.append(negative(term) if column % 2 else term)
    return apply("add", *terms)
