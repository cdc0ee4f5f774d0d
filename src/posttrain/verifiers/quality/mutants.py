"""Every program that is one small mistake away from a given one, each once.

Programs are compared in their normal form (as `ast.unparse` writes them), so that two mistakes which give one program
are one mutant and a mistake that changes nothing is none. Docstrings, annotations and decorators stay as they are.
Nothing here runs a program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from posttrain.core.types import Json
from posttrain.verifiers.quality import operators
from posttrain.verifiers.quality.operators import Operator

_OPERATORS: tuple[Operator, ...] = (
    operators.comparison,
    operators.arithmetic,
    operators.logic,
    operators.sign,
    operators.constant,
    operators.bounds,
    operators.order,
    operators.called,
    operators.condition,
    operators.jump,
    operators.statement,
)
_UNTOUCHED = frozenset({"annotation", "returns", "decorator_list", "type_comment"})


@dataclass(frozen=True)
class Mutant:
    operator: str
    line: int
    """In the source that it was made of."""
    before: str
    after: str
    """The lines in which the normal forms differ; several are joined by " / "."""
    source: str


@dataclass(frozen=True)
class _Site:
    """A place in a tree that holds a node."""

    parent: ast.AST
    field: str
    position: int | None
    line: int

    def put(self, node: ast.AST) -> None:
        if self.position is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.position] = node


def mutants(source: str, answers: Sequence[Json] = ()) -> list[Mutant]:
    """In the order of the source. Each of `answers` is also returned whatever was asked, as None is.

    Raises `SyntaxError` for what is no Python.
    """
    tree = ast.parse(source)
    normal = ast.unparse(tree)
    values = tuple(ast.parse(repr(value), mode="eval").body for value in (None, *answers))
    modules, found = _modules(tree), dict[str, Mutant]()
    for site, node in list(_sites(tree, 1)):
        for operator in (*_OPERATORS, operators.answer(values)):
            for other in operator(node):
                if _is_program(other, site, modules):
                    mutated = _unparse_with(tree, site, node, other)
                    if mutated != normal and mutated not in found:
                        found[mutated] = Mutant(operator.__name__, site.line, *_difference(normal, mutated), mutated)
    return list(found.values())


def _sites(parent: ast.AST, line: int) -> Iterator[tuple[_Site, ast.AST]]:
    for field, value in ast.iter_fields(parent):
        if field in _UNTOUCHED:
            continue
        for position, node in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(node, ast.AST):
                here = getattr(node, "lineno", line)
                yield _Site(parent, field, position, here), node
                yield from _sites(node, here)


def _is_program(other: ast.AST, site: _Site, modules: set[str]) -> bool:
    """Whether `other` makes sense at `site`: a module is no value, and a value alone (a docstring) does nothing."""
    if isinstance(site.parent, ast.Expr):
        return isinstance(other, ast.Call | ast.Await | ast.Yield)
    return not (isinstance(other, ast.Name) and other.id in modules)


def _modules(tree: ast.Module) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}


def _unparse_with(tree: ast.Module, site: _Site, node: ast.AST, other: ast.AST) -> str:
    site.put(other)
    try:
        return ast.unparse(tree)
    finally:
        site.put(node)


def _difference(normal: str, mutated: str) -> tuple[str, str]:
    """The lines between the common beginning and the common end."""
    before, after = normal.splitlines(), mutated.splitlines()
    while before and after and before[0] == after[0]:
        del before[0], after[0]
    while before and after and before[-1] == after[-1]:
        del before[-1], after[-1]
    return " / ".join(map(str.strip, before)), " / ".join(map(str.strip, after))
