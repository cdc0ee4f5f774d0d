"""Word-sorting tasks."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from posttrain.core.types import Split
from posttrain.core.words import WORDS
from posttrain.domains.words import Words
from posttrain.verifiers.final_answer import read_final_answer


def test_the_words_are_plain_and_distinct_and_no_answer_of_them_reads_as_a_hedge() -> None:
    assert len(set(WORDS)) == len(WORDS) >= 300
    assert all(word.isascii() and word.islower() and word.isalpha() and len(word) <= 6 for word in WORDS)
    assert [word for word in WORDS if read_final_answer(f"Answer: {word}") != word] == []


@pytest.mark.parametrize(("level", "letters"), [(1, [1, 1, 1]), (2, [1, 1, 1, 1]), (3, [1, 1, 1, 2]), (4, [3, 3])])
def test_higher_levels_share_first_letters(level: int, letters: list[int]) -> None:
    for index in range(50):
        words = Words().task(Split.TRAIN, 0, index, level).hidden["words"]
        assert sorted(Counter(word[0] for word in words).values()) == letters
        assert words == sorted(set(words))


def test_the_words_are_never_shown_in_order_already() -> None:
    for index in range(200):
        task = Words().task(Split.TRAIN, 0, index, 1)
        assert ", ".join(task.hidden["words"]) not in task.prompt[0].content


def test_tasks_stay_what_they_are_for_ever() -> None:
    places = [
        (split, level, index) for split in (Split.TRAIN, Split.EVAL) for level in (1, 2, 3, 4) for index in range(50)
    ]
    ids = "\n".join(Words().task(split, 0, index, level).task_id for split, level, index in places)
    assert (
        hashlib.sha256(ids.encode()).hexdigest() == "1a8372ef2ade207ef5ab365a765eddab500bf9764f1f7050e8b978bd07bb52c0"
    )
