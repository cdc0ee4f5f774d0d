"""Small mistakes that a programmer makes, as rewritings of one node of a syntax tree.

The idea is DeMillo's, Lipton's and Sayward's ("Hints on test data selection", Computer 11(4), 1978): tests that tell
a program from its slightly wrong versions also find larger mistakes. An operator takes a node and gives nodes that may
stand in its place; it never changes the node that it was given. Nothing here knows where a node stands.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Operator = Callable[[ast.AST], Iterator[ast.AST]]
_Node = TypeVar("_Node", bound=ast.AST)

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt, ast.GtE),
    ast.Gt: (ast.GtE, ast.LtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_INVERSE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
} | {one: others[0] for one, others in _COMPARISONS.items() if len(others) == 1}
_ARITHMETIC: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Mult, ast.Div, ast.Mod),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr, ast.BitXor),
    ast.BitOr: (ast.BitAnd, ast.BitXor),
    ast.BitXor: (ast.BitAnd, ast.BitOr),
}
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
"""Operators whose sides cannot change places."""
_OPPOSITES = (
    ("max", "min"),
    ("any", "all"),
    ("upper", "lower"),
    ("startswith", "endswith"),
    ("lstrip", "rstrip"),
    ("removeprefix", "removesuffix"),
    ("find", "rfind"),
    ("append", "extend"),
    ("ceil", "floor"),
)
_OPPOSITE = {one: other for pair in _OPPOSITES for one, other in (pair, pair[::-1])}


def comparison(node: ast.AST) -> Iterator[ast.AST]:
    """Another comparison, its boundary moved or its direction turned."""
    if isinstance(node, ast.Compare):
        for position, sign in enumerate(node.ops):
            for other in _COMPARISONS[type(sign)]:
                yield _like(node, ops=_with(node.ops, position, other()))


def arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        for other in _ARITHMETIC.get(type(node.op), ()):
            yield _like(node, op=other())


def logic(node: ast.AST) -> Iterator[ast.AST]:
    """`and` for `or` and back; a test or a comprehension's condition turned round."""
    if isinstance(node, ast.BoolOp):
        yield _like(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        yield _like(node, test=_negated(node.test))
    elif isinstance(node, ast.comprehension):
        for position, test in enumerate(node.ifs):
            yield _like(node, ifs=_with(node.ifs, position, _negated(test)))


def sign(node: ast.AST) -> Iterator[ast.AST]:
    """A `not`, a minus or a `~` forgotten."""
    if isinstance(node, ast.UnaryOp):
        yield node.operand


def constant(node: ast.AST) -> Iterator[ast.AST]:
    """Off by one, a truth turned round, a text emptied."""
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield from (_number(value + 1), _number(value - 1))
    elif isinstance(value, str | bytes):
        yield ast.Constant(type(value)() if value else ("x" if isinstance(value, str) else b"x"))


def bounds(node: ast.AST) -> Iterator[ast.AST]:
    """A slice without one of its bounds, an index or a range's bound off by one."""
    if isinstance(node, ast.Slice):
        for name in ("lower", "upper", "step"):
            if getattr(node, name) is not None:
                yield _like(node, **{name: None})
        for name in ("lower", "upper"):
            for moved in _off_by_one(getattr(node, name)):
                yield _like(node, **{name: moved})
    elif isinstance(node, ast.Subscript):
        for moved in _off_by_one(node.slice):
            yield _like(node, slice=moved)
    elif isinstance(node, ast.Call) and _name(node.func) == "range":
        for position, argument in enumerate(node.args):
            for moved in _off_by_one(argument):
                yield _like(node, args=_with(node.args, position, moved))


def order(node: ast.AST) -> Iterator[ast.AST]:
    """Neighbouring arguments, or the sides of an operator, exchanged."""
    if isinstance(node, ast.Call) and not any(isinstance(argument, ast.Starred) for argument in node.args):
        for position in range(len(node.args) - 1):
            one, two = node.args[position : position + 2]
            yield _like(node, args=[*node.args[:position], two, one, *node.args[position + 2 :]])
    elif isinstance(node, ast.BinOp) and isinstance(node.op, _ORDERED):
        yield _like(node, left=node.right, right=node.left)


def called(node: ast.AST) -> Iterator[ast.AST]:
    """A call forgotten (`abs(x)` is `x`, `s.upper()` is `s`), or its opposite called."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute):
        yield node.func.value
        if node.func.attr in _OPPOSITE:
            yield _like(node, func=_like(node.func, attr=_OPPOSITE[node.func.attr]))
    elif isinstance(node.func, ast.Name) and node.func.id in _OPPOSITE:
        yield _like(node, func=_like(node.func, id=_OPPOSITE[node.func.id]))
    if len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred):
        yield node.args[0]


def condition(node: ast.AST) -> Iterator[ast.AST]:
    """A comprehension's condition forgotten, or an operand of `and` or `or`."""
    if isinstance(node, ast.comprehension):
        for position in range(len(node.ifs)):
            yield _like(node, ifs=_without(node.ifs, position))
    elif isinstance(node, ast.BoolOp):
        for position in range(len(node.values)):
            rest = _without(node.values, position)
            yield rest[0] if len(rest) == 1 else _like(node, values=rest)


def jump(node: ast.AST) -> Iterator[ast.AST]:
    """`break` for `continue` and back."""
    if isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()


_DROPPED = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Return, ast.Raise, ast.Assert, ast.If, ast.For),
    *(ast.While, ast.Break, ast.Continue, ast.With, ast.Try, ast.Match),
)


def statement(node: ast.AST) -> Iterator[ast.AST]:
    """A statement forgotten. A function's last `return` is not: that is the answer None, another operator's."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        last = len(block) - 1 if isinstance(node, ast.FunctionDef) else -1
        for position, one in enumerate(block):
            kept = isinstance(one, ast.Return) and position == last
            if not kept and (isinstance(one, _DROPPED) or _has_effect(one)):
                yield _like(node, **{name: _with(block, position, ast.Pass())})


def answer(values: tuple[ast.expr, ...]) -> Operator:
    """Each of `values` returned whatever was asked (attack 16)."""

    def constant_answer(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.Return):
            yield from (ast.Return(value) for value in values)

    return constant_answer


def _like(node: _Node, **changes: Any) -> _Node:
    other = copy.copy(node)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def _with(items: list[Any], position: int, item: ast.AST) -> list[Any]:
    return [*items[:position], item, *items[position + 1 :]]


def _without(items: list[Any], position: int) -> list[Any]:
    return [*items[:position], *items[position + 1 :]]


def _negated(test: ast.expr) -> ast.expr:
    """The opposite, written as the other operators write it, so that one mutant is not counted twice."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _like(test, ops=[_INVERSE[type(test.ops[0])]()])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def _number(value: float) -> ast.expr:
    """Negative numbers as Python reads them: a minus and a constant."""
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _off_by_one(bound: ast.expr | None) -> Iterator[ast.expr]:
    """Of what is no constant: constants have an operator of their own."""
    if isinstance(bound, ast.Name | ast.Call | ast.BinOp | ast.Attribute):
        yield ast.BinOp(bound, ast.Add(), ast.Constant(1))
        yield ast.BinOp(bound, ast.Sub(), ast.Constant(1))


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else ""


def _has_effect(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
