"""A copy of a program that records what of it ran: its lines, and the arms of its decisions.

Every statement first notes its line. A decision (the test of an `if`, `while`, conditional expression, comprehension
or guard, an operand that can end an `and` or `or`) notes whether it held; a loop notes that it had an element and that
it ran out of them; a `match` notes that no case fitted. Notes are numbers in one set, which leaves as plain data
beside each answer. The copy is text to be run in a sandbox; a decision's value is asked for its truth once more than
in the original. `async` loops are not recorded.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

MEASURED = "__quality_measured__"
"""The function of the copy to call: it gives `[answer, notes so far]`."""

_PRELUDE = """
__quality_notes__ = set()

def __quality_arm__(test, true, false):
    __quality_notes__.add(true if test else false)
    return test

def __quality_each__(items, one, end):
    for item in items:
        __quality_notes__.add(one)
        yield item
    __quality_notes__.add(end)
"""
_UNCOUNTED = (ast.Global, ast.Nonlocal)
_Tested = TypeVar("_Tested", ast.If, ast.While, ast.IfExp)


@dataclass(frozen=True)
class Arm:
    """One way out of a decision."""

    line: int
    outcome: str
    """In words, as what happened: "`x > 3` was false"."""


@dataclass(frozen=True)
class Instrumented:
    """The copy, and what each of its notes means."""

    source: str
    lines: Mapping[int, int]
    """A statement's note → its line in the original."""
    arms: Mapping[int, Arm]


def instrument(source: str, function: str) -> Instrumented:
    """Raises `SyntaxError` for what is no Python."""
    tree = ast.parse(source)
    notes = _Notes()
    notes.visit(tree)
    start = _first_statement(tree)
    tree.body[start:start] = ast.parse(_PRELUDE).body
    measured = f"def {MEASURED}(*arguments):\n    return [{function}(*arguments), sorted(__quality_notes__)]"
    tree.body += ast.parse(measured).body
    return Instrumented(ast.unparse(ast.fix_missing_locations(tree)), notes.lines, notes.arms)


def _first_statement(tree: ast.Module) -> int:
    """Where something may be put before everything but the docstring and imports from the future."""
    for position, statement in enumerate(tree.body):
        if not _is_constant(statement) and not _is_future(statement):
            return position
    return len(tree.body)


def _is_constant(node: ast.AST) -> bool:
    """A docstring, or another statement that does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


class _Notes(ast.NodeTransformer):
    def __init__(self) -> None:
        self.lines: dict[int, int] = {}
        self.arms: dict[int, Arm] = {}

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        visited: ast.AST = super().visit(node)
        if not isinstance(visited, ast.stmt) or isinstance(visited, _UNCOUNTED):
            return visited
        if _is_constant(visited) or _is_future(visited):
            return visited
        number = self._number()
        self.lines[number] = visited.lineno
        note = ast.parse(f"__quality_notes__.add({number})").body[0]
        return [note, visited]

    def visit_If(self, node: ast.If) -> ast.If:
        return self._with_test(node)

    def visit_While(self, node: ast.While) -> ast.While:
        return self._with_test(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        return self._with_test(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        texts = [ast.unparse(value) for value in node.values[:-1]]  # the last operand decides nothing here
        self.generic_visit(node)
        for position, text in enumerate(texts):
            node.values[position] = self._decided(node.values[position], text, node.values[position].lineno)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        text = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
        self.generic_visit(node)
        node.iter = self._looped(node.iter, text, node.lineno)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        loop = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
        tests = [ast.unparse(test) for test in node.ifs]
        self.generic_visit(node)
        if not node.is_async:
            node.iter = self._looped(node.iter, loop, node.iter.lineno)
        node.ifs = [self._decided(test, text, test.lineno) for test, text in zip(node.ifs, tests, strict=True)]
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        text = ast.unparse(node.guard) if node.guard else ""
        self.generic_visit(node)
        if node.guard:
            node.guard = self._decided(node.guard, text, node.guard.lineno)
        return node

    def visit_Match(self, node: ast.Match) -> ast.Match:
        text, fits_always = ast.unparse(node.subject), _fits_always(node.cases[-1])
        self.generic_visit(node)
        if not fits_always:
            number = self._arm(node.lineno, f"no case fitted `{text}`")
            note = ast.parse(f"__quality_notes__.add({number})").body
            node.cases.append(ast.match_case(ast.MatchAs(), None, note))
        return node

    def _with_test(self, node: _Tested) -> _Tested:
        text = ast.unparse(node.test)
        self.generic_visit(node)
        node.test = self._decided(node.test, text, node.test.lineno)
        return node

    def _decided(self, test: ast.expr, text: str, line: int) -> ast.expr:
        if isinstance(test, ast.Constant):
            return test  # `while True` has one arm
        true, false = self._arm(line, f"`{text}` was true"), self._arm(line, f"`{text}` was false")
        return _noted("__quality_arm__", test, true, false)

    def _looped(self, items: ast.expr, text: str, line: int) -> ast.expr:
        one, end = self._arm(line, f"`{text}` had an element"), self._arm(line, f"`{text}` ran out of elements")
        return _noted("__quality_each__", items, one, end)

    def _arm(self, line: int, outcome: str) -> int:
        number = self._number()
        self.arms[number] = Arm(line, outcome)
        return number

    def _number(self) -> int:
        return len(self.lines) + len(self.arms)


def _noted(recorder: str, value: ast.expr, one: int, other: int) -> ast.Call:
    call = ast.Call(ast.Name(recorder, ast.Load()), [value, ast.Constant(one), ast.Constant(other)], [])
    return ast.copy_location(call, value)


def _fits_always(case: ast.match_case) -> bool:
    """Whether `case` is `case _` or `case name`: Python allows no case behind it."""
    pattern = case.pattern
    while isinstance(pattern, ast.MatchOr | ast.MatchAs):
        if isinstance(pattern, ast.MatchOr):
            pattern = pattern.patterns[-1]
        elif pattern.pattern is None:
            return case.guard is None
        else:
            pattern = pattern.pattern
    return False
