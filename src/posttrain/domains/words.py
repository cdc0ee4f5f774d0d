"""Sorting common words alphabetically. Levels ask for more words that share first letters.

The words never stand in order already, so that repeating the question earns nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from posttrain.core.protocols import Sandbox
from posttrain.core.types import Limits, Split, Task, Verdict
from posttrain.core.words import WORDS
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.domains.streams import Problem, check_level, draw
from posttrain.verifiers.sequence import verify_sequence

_GROUPS = {1: (1, 1, 1), 2: (1, 1, 1, 1), 3: (2, 1, 1, 1), 4: (3, 3)}
_TOKENS = {1: 16, 2: 20, 3: 24, 4: 28}


@dataclass(frozen=True)
class Words:
    """Level 1 three words, 2 four, 3 five of which two share a first letter, 4 six with two first letters."""

    name = "words"
    version = "1"
    licence = "Apache-2.0"
    levels = 4
    needs_sandbox = False

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        check_level(self.name, level, self.levels)
        return draw(self.name, split, seed, index, level, lambda state: _problem(state, level))

    def environment(self, task: Task, sandbox: Sandbox | None) -> SingleTurnEnvironment:
        return SingleTurnEnvironment(task, _verify, self.version)

    def demonstration(self, task: Task) -> str:
        return f"Answer: {', '.join(task.hidden['words'])}"


def _verify(task: Task, reply: str) -> Verdict:
    return verify_sequence(reply, task.hidden["words"])


def _problem(state: random.Random, level: int) -> Problem | None:
    sizes = _GROUPS[level]
    letters: dict[str, None] = {}
    while len(letters) < len(sizes):  # letters as often as words begin with them
        letter = state.choice(WORDS)[0]
        if len(_BY_LETTER[letter]) >= max(sizes):
            letters[letter] = None
    shown = [
        word for letter, size in zip(letters, sizes, strict=True) for word in state.sample(_BY_LETTER[letter], size)
    ]
    state.shuffle(shown)
    words = sorted(shown)
    if shown == words:
        return None
    prompt = f"Sort alphabetically: {', '.join(shown)}. End with 'Answer: {', '.join('w' * len(words))}'."
    return Problem(prompt, {"words": words}, " ".join(words), Limits(max_new_tokens=_TOKENS[level]))


_BY_LETTER = {letter: [word for word in WORDS if word[0] == letter] for letter in sorted({word[0] for word in WORDS})}
