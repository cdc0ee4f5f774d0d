"""Equations, chains of equalities and inequalities.

A chain between constants asserts something, and counts only where it is true: `3+4=7` says 7, `7=8` says nothing.
A variable that stands alone is named (`x = 5`) or bounded (`x < 5`); everything else stays a relation, unsolved.
"""

from __future__ import annotations

from collections.abc import Callable

from posttrain.verifiers.math.answers import Answer, Domain, Kind, Named, Relation, Sequence, Untrue, Value
from posttrain.verifiers.math.exact import TooLarge, rational_or_none, undone
from posttrain.verifiers.math.expression import Expression, Symbol, apply, negative, variables
from posttrain.verifiers.math.intervals import MINUS_INFINITY, PLUS_INFINITY, Interval, Region, point
from posttrain.verifiers.math.numeric import identical
from posttrain.verifiers.math.parser import parse_all
from posttrain.verifiers.math.splitting import closing_of, split, unwrapped
from posttrain.verifiers.math.tokens import Token, Unreadable

_OPERATORS = {"=": "=", "<": "<", ">": ">", "le": "<=", "ge": ">=", "ne": "!=", "in": "in"}
_COMMANDS = ("le", "ge", "ne", "in")
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}

ReadItem = Callable[[list[Token]], Answer]


def is_relation(tokens: list[Token]) -> bool:
    return bool(split(tokens, _relates)[1])


def read_relation(tokens: list[Token], read_item: ReadItem) -> Answer:
    """`read_item` reads what is equal. Raises `Unreadable`."""
    sides, separators = split(_two_character_operators(tokens), _relates)
    sides = [unwrapped(side) for side in sides]
    operators = [_OPERATORS[token.text] for token in separators]
    if not all(sides):
        if sides[0] or operators[0] != "=" or len(sides) != 2:
            raise Unreadable("a side of a relation is empty")
        return read_item(sides[1])  # `= 5`
    if set(operators) == {"="}:
        return _equation(sides, read_item)
    if operators == ["in"]:
        return _membership(sides, read_item)
    return _inequality([parse_all(side) for side in sides], operators)


def _relates(token: Token) -> bool:
    return token.kind in ("=", "<", ">") or (token.kind == "command" and token.text in _COMMANDS)


def _two_character_operators(tokens: list[Token]) -> list[Token]:
    """`<=`, `>=` and `!=` of plain text as one."""
    found: list[Token] = []
    for token in tokens:
        before = found[-1] if found else None
        if token.kind == "=" and before is not None and before.kind in ("<", ">", "!") and not token.spaced:
            found[-1] = Token("command", {"<": "le", ">": "ge", "!": "ne"}[before.kind])
        else:
            found.append(token)
    return found


def _equation(sides: list[list[Token]], read_item: ReadItem) -> Answer:
    name = _name(sides[0])
    if name is None and len(sides) == 2 and (name := _name(sides[1])) is not None:
        sides = sides[::-1]
    if name is not None:
        return _named(name, _chain([read_item(side) for side in sides[1:]]))
    if names := _names(sides[0]):
        value = read_item(sides[1])
        if len(sides) != 2 or not isinstance(value, Sequence) or len(value.items) != len(names):
            raise Unreadable("names and values differ in number")
        return Sequence(Kind.TUPLE, tuple(Named(*pair) for pair in zip(names, value.items, strict=True)))
    answers = [read_item(side) for side in sides]
    if not any(_has_variables(answer) for answer in answers):
        return _chain(answers)
    expressions = [answer.expression for answer in answers if isinstance(answer, Value)]
    if len(expressions) != 2:
        raise Unreadable("a chain of equations is not read")
    return Relation("=", apply("add", expressions[0], negative(expressions[1])))


def _named(name: str, answer: Answer) -> Answer:
    if isinstance(answer, Untrue):
        return answer
    if isinstance(answer, Value) and name in variables(answer.expression):
        return Relation("=", apply("add", Symbol(name), negative(answer.expression)))
    return Named(name, answer)


def _chain(answers: list[Answer]) -> Answer:
    """What is last, where all are equal; but rather one that is not an exercise (`7 = 3+4` says 7)."""
    if len(answers) == 1:
        return answers[0]
    values = [answer for answer in answers if isinstance(answer, Value)]
    if len(values) != len(answers) or len({value.measure for value in values if value.measure}) > 1:
        return Untrue()
    if not all(_equal(values[0].expression, value.expression) for value in values[1:]):
        return Untrue()
    done = [value for value in values if not undone(value.expression)]
    return done[-1] if done else values[-1]


def _equal(left: Expression, right: Expression) -> bool:
    try:
        exact = rational_or_none(left), rational_or_none(right)
    except TooLarge:
        return False
    return exact[0] == exact[1] if None not in exact else identical(left, right) is True


def _has_variables(answer: Answer) -> bool:
    return not isinstance(answer, Value) or bool(variables(answer.expression))


def _name(tokens: list[Token]) -> str | None:
    """Of a variable that stands alone, or of a function of one: `f(x)`."""
    try:
        side = parse_all(tokens)
    except Unreadable:
        return None
    if isinstance(side, Symbol):
        return side.name if variables(side) else None
    if len(tokens) == 4 and [token.kind for token in tokens] == ["symbol", "(", "symbol", ")"]:
        return "".join(token.text for token in tokens)
    return None


def _names(tokens: list[Token]) -> list[str]:
    """Of `(x, y)`."""
    if tokens[0].kind != "(" or closing_of(tokens) != len(tokens) - 1:
        return []
    names = [_name(part) for part in split(tokens[1:-1], lambda token: token.kind == ",")[0] if part]
    return [name for name in names if name] if len(names) > 1 and None not in names else []


def _membership(sides: list[list[Token]], read_item: ReadItem) -> Answer:
    name, answer = _name(sides[0]), read_item(sides[1])
    if name is None:
        raise Unreadable("what lies in a set is no variable")
    if isinstance(answer, Domain):
        return Domain(answer.region, name)
    if isinstance(answer, Sequence) and answer.kind is Kind.TUPLE and len(answer.items) == 2:
        ends = [item.expression for item in answer.items if isinstance(item, Value)]
        return Domain(Region.of([Interval(ends[0], ends[1])]), name)
    if isinstance(answer, Sequence) and answer.kind is Kind.SET:
        return Named(name, answer)
    raise Unreadable("this is no set")


def _inequality(sides: list[Expression], operators: list[str]) -> Answer:
    if operators == ["!="]:
        return _different(*sides)
    directions = {operator[0] for operator in operators}
    if not directions <= {"<"} and not directions <= {">"}:
        raise Unreadable("inequalities of two directions in one chain")
    if directions == {">"}:
        sides, operators = sides[::-1], [_MIRRORED[operator] for operator in reversed(operators)]
    if len(sides) == 3 and isinstance(sides[1], Symbol):
        closed = [operator == "<=" for operator in operators]
        return Domain(Region.of([Interval(sides[0], sides[2], *closed)]), sides[1].name)
    if len(sides) != 2:
        raise Unreadable("an inequality of this form is not read")
    closed_end = operators[0] == "<="
    low, high = sides
    if isinstance(low, Symbol) and not variables(high) and variables(low):
        return Domain(Region.of([Interval(MINUS_INFINITY, high, False, closed_end)]), low.name)
    if isinstance(high, Symbol) and not variables(low) and variables(high):
        return Domain(Region.of([Interval(low, PLUS_INFINITY, closed_end, False)]), high.name)
    return Relation(operators[0], apply("add", low, negative(high)))


def _different(left: Expression, right: Expression) -> Answer:
    if isinstance(right, Symbol) and not isinstance(left, Symbol):
        left, right = right, left
    if isinstance(left, Symbol) and not variables(right):
        return Domain(Region.of([point(right)]).complement(), left.name)
    return Relation("!=", apply("add", left, negative(right)))
