"""Sorting common words alphabetically. Levels ask for more words that share first letters.

The words never stand in order already, so that repeating the question earns nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from posttrain.core.protocols import Sandbox
from posttrain.core.types import Limits, Split, Task, Verdict
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.domains.streams import Problem, check_level, draw
from posttrain.verifiers.sequence import verify_sequence

WORDS = tuple(
    """
    acid acorn actor age agent air alarm album angle ant apple april apron area arm army arrow art ash atom aunt
    baby back bag ball band bank barn base bath beach bean bear bed bee bell belt bench berry bike bird boat body bone
    book boot boss bowl box boy brain bread brick bridge broom brush bus bush button cabin cable cage cake calf camel
    camp candle cap car card cart case castle cat cave chair chalk cheese cherry chest chin church city clay clock
    cloud club coal coat coin comb cook corn cow crab cream crowd crown cup dance day deer desk dish dog doll door dove
    dragon dream dress drum duck dust eagle ear earth east edge egg elbow engine error eye face fact farm fence field
    fig film finger fire fish flag floor flower fly food foot forest fork fox frog fruit game garden gate ghost gift
    girl glass glove goat gold grape grass guest guitar hair hall hammer hand hat hawk head heart hen hill hole home
    honey hook horn horse hotel house ice idea ink iron island jacket jam jar jaw jeans jewel job joke judge juice
    jungle key king kite knee knife knot ladder lake lamb lamp leaf leg lemon letter light lion lip list lock log lunch
    magic maid map market mask meal meat metal milk mill mine moon moth mouse mouth music nail name neck nest net night
    noise north nose note nurse oak ocean office oil olive onion orange oven owl page paint pan paper park party path
    pea pear pen piano pie pig pilot pipe plant plate pond pool queen quilt rabbit radio rain rat rice ring river road
    robot rock roof room rope rose sail salt sand school sea seed sheep ship shirt shoe shop silk singer sky snail snow
    soap sock song soup spoon star stone storm sugar sun table tail tea tent tiger tin toe tooth town toy train tree
    truck turtle uncle van vase video voice wagon wall watch water wave whale wheel wind wing wolf wood yard year zebra
    """.split()  # noqa: SIM905 (three hundred quoted words would be longer and harder to read)
)
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
