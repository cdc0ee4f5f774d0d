"""Each operator makes the mistakes that it is there for."""

from __future__ import annotations

import ast

import pytest

from posttrain.core.types import Json
from posttrain.verifiers.quality.mutants import Mutant, mutants


def made(source: str, answers: tuple[Json, ...] = ()) -> list[Mutant]:
    return mutants(source, answers)


def bodies(statement: str) -> set[tuple[str, str]]:
    """(operator, mutated statement) of every mutant of one `return`, the constant answers aside."""
    found = made(f"def f(*arguments):\n    return {statement}")
    return {(one.operator, one.after.removeprefix("return ")) for one in found if one.operator != "constant_answer"}


@pytest.mark.parametrize(
    ("expression", "operator", "wanted"),
    [
        ("x < 3", "comparison", {"x <= 3", "x >= 3", "x > 3"}),
        ("x == 3", "comparison", {"x != 3"}),
        ("x is None", "comparison", {"x is not None"}),
        ("x in y", "comparison", {"x not in y"}),
        ("x + y", "arithmetic", {"x - y", "x * y"}),
        ("x // y", "arithmetic", {"x * y", "x / y", "x % y"}),
        ("x and y", "logic", {"x or y"}),
        ("1 if x else 2", "logic", {"1 if not x else 2"}),
        ("not x", "sign", {"x"}),
        ("-x", "sign", {"x"}),
        ("x * 2", "constant", {"x * 3", "x * 1"}),
        ("x + 0", "constant", {"x + 1", "x + -1"}),
        ("True", "constant", {"False"}),
        ("s.split(',')", "constant", {"s.split('')"}),
        ("s[1:]", "bounds", {"s[:]"}),
        ("s[a:b]", "bounds", {"s[:b]", "s[a:]", "s[a + 1:b]", "s[a - 1:b]", "s[a:b + 1]", "s[a:b - 1]"}),
        ("s[i]", "bounds", {"s[i + 1]", "s[i - 1]"}),
        ("range(n)", "bounds", {"range(n + 1)", "range(n - 1)"}),
        ("a - b", "order", {"b - a"}),
        ("g(a, b)", "order", {"g(b, a)"}),
        ("abs(x)", "called", {"x"}),
        ("max(a, b)", "called", {"min(a, b)"}),
        ("s.upper()", "called", {"s", "s.lower()"}),
        ("[x for x in y if x]", "condition", {"[x for x in y]"}),
        ("x and y", "condition", {"x", "y"}),
    ],
)
def test_an_expression_has_the_mutants_that_it_should(expression: str, operator: str, wanted: set[str]) -> None:
    assert wanted == {after for name, after in bodies(expression) if name == operator}


@pytest.mark.parametrize(
    ("body", "operator", "after"),
    [
        ("while x:\n        break", "jump", "continue"),
        ("while x:\n        continue", "jump", "break"),
        ("x += 1\n    return x", "statement", "pass"),
        ("x += 1\n    return x", "arithmetic", "x -= 1"),
        ("x.sort()\n    return x", "statement", "pass"),
        ("if x:\n        return 1\n    return 2", "logic", "if not x:"),
        ("return x", "constant_answer", "return None"),
    ],
)
def test_a_statement_has_the_mutants_that_it_should(body: str, operator: str, after: str) -> None:
    assert (operator, after) in [(one.operator, one.after) for one in made(f"def f(x):\n    {body}")]


def test_a_mutant_says_where_it_is_and_what_it_changes() -> None:
    source = "def f(x):\n\n    # a comment\n    y = x + 1\n    return y"
    mutant = next(one for one in made(source) if one.operator == "arithmetic")
    assert (mutant.line, mutant.before, mutant.after) == (4, "y = x + 1", "y = x - 1")
    assert mutant.source == "def f(x):\n    y = x - 1\n    return y"


def test_no_two_mutants_are_one_program_and_none_is_the_original() -> None:
    source = "def f(x):\n    if x < 3:\n        return x * 1 + 1\n    return None"
    sources = [mutant.source for mutant in made(source, answers=(None, 7))]
    assert len(sources) == len(set(sources))
    assert ast.unparse(ast.parse(source)) not in sources


def test_the_answer_that_is_most_wanted_is_returned_whatever_is_asked() -> None:
    afters = [mutant.after for mutant in made("def f(x):\n    return x", answers=([1, "a"],))]
    assert "return [1, 'a']" in afters
    assert "return None" in afters


def test_what_does_nothing_is_left_alone() -> None:
    source = '''\
"""A docstring with 3."""
import math

@decorated(3)
def f(x: Literal[3]) -> Literal[4]:
    """Another."""
    note: Literal[5] = x
    return math.prod(note)
'''
    afters = [mutant.after for mutant in made(source)]
    assert afters == ["pass", "return None", "return note"]


def test_a_method_called_for_its_effect_is_dropped_once() -> None:
    afters = [mutant.after for mutant in made("def f(x):\n    x.append(g(1))\n    return x")]
    assert afters.count("pass") == 1
    assert "x" not in afters
    assert "x.extend(g(1))" in afters


EVERYTHING = '''\
"""Every construct that an operator touches."""
from __future__ import annotations
import math

LIMIT = 3

class Counter:
    """Counts."""
    def __init__(self, start: int = 0, *, step: float = 1.5) -> None:
        self.count, self.step = start, -step

    async def later(self):
        await self.count
        return (yield_ for yield_ in range(LIMIT))

def f(xs, *rest, key=lambda x: -x, **named):
    global last
    total = 0
    for i, x in enumerate(xs, start=1):
        if x is None or not (x > LIMIT >= 0) and x not in rest:
            continue
        elif x == "stop" or x[0:] == b"":
            break
        total += x ** 2 % 7 << 1
    else:
        del named["a"]
    while (left := total - 1) > 5:
        total = left // 2 if left & 1 else left | 4
    try:
        assert total, f"{total:>{LIMIT}} {key(total)!r}"
    except (ValueError, AssertionError) as error:
        raise TypeError("no") from error
    finally:
        xs.append(total)
    with open("x") as file:
        xs.sort(key=key, reverse=True)
    match xs:
        case [1, *others] if others:
            return others[-1], max(others[1:-1:2], default=0)
        case {"a": 2} | Counter(count=-1):
            return {k: [v for v in vs if v if v < 2] for k, vs in named.items()}
        case _:
            return math.prod({*rest}) and f(*rest, 1, **named)
'''


def test_every_mutant_is_a_program() -> None:
    found = made(EVERYTHING, answers=(-1, 2.5, "a", [True, {"b": None}]))
    assert len(found) > 150
    assert {mutant.operator for mutant in found} > {"comparison", "jump", "statement", "bounds", "called", "order"}
    for mutant in found:
        compile(mutant.source, "mutant", "exec")
