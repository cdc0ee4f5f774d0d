"""Whole-number arithmetic, from one-digit additions to two-step expressions; endless and exactly checked.

Results and the steps towards them are never negative. The shown steps are not judged, only the final answer is.
Level 1 adds a one-digit number to a number below 100: one-digit sums alone are 55, too few to hold any out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from posttrain.core.protocols import Sandbox
from posttrain.core.types import Json, Limits, Split, Task, Verdict
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.domains.streams import Problem, check_level, draw
from posttrain.verifiers.numeric import verify_number

_DIRECT_TOKENS = 12
_CHAIN_TOKENS = {3: 44, 4: 44, 5: 56}


@dataclass(frozen=True)
class Arithmetic:
    """Level 1 one-digit addition, 2 two-digit sums and differences, 3 three operands, 4 a product and a term,
    5 two products, or a product with a sum inside."""

    chain: bool = True
    """Whether demonstrations of several operations show their steps, and replies have room for them."""

    name = "arithmetic"
    version = "1"
    licence = "Apache-2.0"
    levels = 5
    needs_sandbox = False

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        check_level(self.name, level, self.levels)
        return draw(self.name, split, seed, index, level, lambda state: self._problem(state, level))

    def environment(self, task: Task, sandbox: Sandbox | None) -> SingleTurnEnvironment:
        return SingleTurnEnvironment(task, _verify, self.version)

    def demonstration(self, task: Task) -> str:
        steps, answer = task.hidden["steps"], task.hidden["answer"]
        shown = [*steps, ""] if self.chain and len(steps) > 1 else [""]
        return f"{'. '.join(shown)}Answer: {answer}"

    def _problem(self, state: random.Random, level: int) -> Problem | None:
        work = _LEVELS[level](state)
        if work is None:
            return None
        hidden: dict[str, Json] = {"answer": work.value, "steps": work.steps}
        tokens = _CHAIN_TOKENS.get(level, _DIRECT_TOKENS) if self.chain else _DIRECT_TOKENS
        prompt = f"Compute {work.text}. End with 'Answer: N'."
        return Problem(prompt, hidden, work.key, Limits(max_new_tokens=tokens))


def _verify(task: Task, reply: str) -> Verdict:
    return verify_number(reply, task.hidden["answer"])


@dataclass(frozen=True)
class _Work:
    """A value and how one comes to it; `key` is the same for operands in another order."""

    text: str
    value: int
    key: str
    steps: list[str]


def _number(value: int) -> _Work:
    return _Work(str(value), value, str(value), [])


def _product(left: _Work, right: _Work) -> _Work:
    texts = [f"({side.text})" if " " in side.text else side.text for side in (left, right)]
    value = left.value * right.value
    key = "*".join(sorted(f"({side.key})" for side in (left, right)))
    step = f"{left.value} * {right.value} = {value}"
    return _Work(" * ".join(texts), value, key, [*left.steps, *right.steps, step])


def _sum(terms: list[tuple[str, _Work]]) -> _Work | None:
    """Signed terms, added from the left; None where a partial sum is negative."""
    (_, first), *rest = terms
    text, value, steps = first.text, first.value, [step for _, term in terms for step in term.steps]
    for sign, term in rest:
        after = value + term.value if sign == "+" else value - term.value
        if after < 0:
            return None
        steps.append(f"{value} {sign} {term.value} = {after}")
        text, value = f"{text} {sign} {term.text}", after
    return _Work(text, value, "".join(sorted(f"{sign}{term.key}" for sign, term in terms)), steps)


def _sign(state: random.Random) -> str:
    return state.choice("+-")


def _one_digit(state: random.Random) -> _Work | None:
    operands = [_number(state.randint(1, 9)), _number(state.randint(1, 99))]
    state.shuffle(operands)
    return _sum([("+", operand) for operand in operands])


def _two_digits(state: random.Random) -> _Work | None:
    return _sum([("+", _number(state.randint(10, 99))), (_sign(state), _number(state.randint(10, 99)))])


def _three_operands(state: random.Random) -> _Work | None:
    signs = ["+", _sign(state), _sign(state)]
    return _sum([(sign, _number(state.randint(2, 99))) for sign in signs])


def _product_and_term(state: random.Random) -> _Work | None:
    product = _product(_number(state.randint(2, 12)), _number(state.randint(2, 12)))
    terms = [product, _number(state.randint(2, 99))]
    state.shuffle(terms)
    return _sum([("+", terms[0]), (_sign(state), terms[1])])


def _two_steps(state: random.Random) -> _Work | None:
    if state.random() < 0.5:
        products = [_product(_number(state.randint(2, 12)), _number(state.randint(2, 12))) for _ in range(2)]
        return _sum([("+", products[0]), (_sign(state), products[1])])
    inner = _sum([("+", _number(state.randint(2, 50))), (_sign(state), _number(state.randint(2, 50)))])
    factors = [] if inner is None else [inner, _number(state.randint(2, 12))]
    state.shuffle(factors)
    return _product(*factors) if factors else None


_LEVELS: dict[int, Callable[[random.Random], _Work | None]] = {
    1: _one_digit,
    2: _two_digits,
    3: _three_operands,
    4: _product_and_term,
    5: _two_steps,
}
