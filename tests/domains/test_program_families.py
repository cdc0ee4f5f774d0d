"""Generated programs: their code, their expected values and their wrong siblings agree."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

from posttrain.core.types import Json
from posttrain.domains.program_families import Family, Lists, Pairs, Pieces, Scalars, Texts, siblings
from posttrain.domains.program_pieces import LETTERS, NOTHING, Code, Piece, minus, plus, times
from posttrain.domains.program_tests import FIXED_TESTS, MAX_TESTS, choose_tests, content_key, mutation_score
from posttrain.verifiers.python_code import same_plain_data

FAMILIES: list[Family] = [Scalars(), Pairs(), Lists(parts=1), Lists(parts=2), Texts()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=["scalars", "pairs", "lists-1", "lists-2", "texts"])


def drawn(family: Family, count: int) -> list[Pieces]:
    state = random.Random(0)
    found: list[Pieces] = []
    while len(found) < count:
        pieces = family.draw(state)
        if pieces is not None and content_key(family, pieces) is not None:
            found.append(pieces)
    return found


def run(code: str, arguments: list[Json]) -> Json:
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # our own generated code
    return namespace["f"](*arguments)


@every_family
def test_the_code_gives_what_we_compute_types_included(family: Family) -> None:
    for pieces in drawn(family, 40):
        code = family.code(pieces)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for arguments in family.probes[::5]:
                assert same_plain_data(family.compute(pieces, arguments), run(code, arguments)), code


@every_family
def test_hidden_tests_fail_the_code_of_every_wrong_sibling(family: Family) -> None:
    for pieces in drawn(family, 6):
        tests = choose_tests(family, pieces, random.Random(1))
        assert FIXED_TESTS <= len(tests) <= MAX_TESTS
        killed = alive = 0
        for other in siblings(family, pieces):
            code = family.code(other)
            if any(run(code, arguments) != expected for arguments, expected in tests):
                killed += 1
            elif content_key(family, other) != content_key(family, pieces):
                alive += 1
        assert alive == 0
        assert killed > 40
        assert mutation_score(family, pieces, tests) == 1.0


@every_family
def test_tests_that_see_nothing_score_zero(family: Family) -> None:
    assert mutation_score(family, drawn(family, 1)[0], []) == 0.0


@every_family
def test_edge_cases_are_among_the_tests(family: Family) -> None:
    pieces = drawn(family, 1)[0]
    inputs = [arguments for arguments, _ in choose_tests(family, pieces, random.Random(1))]
    edges: dict[str, list[list[Json]]] = {
        "x": [[0], [-1]],
        "a, b": [[0, 0], [-4, 2]],
        "xs": [[[]], [[0]]],
        "s": [[""], ["a"]],
    }
    assert all(edge in inputs for edge in edges[family.arguments])


@every_family
def test_the_wording_is_one_sentence_without_open_places(family: Family) -> None:
    for pieces in drawn(family, 60):
        text = family.task(pieces, random.Random(2))
        assert "{" not in text
        assert "  " not in text
        assert "None" not in text


def test_two_writings_of_one_function_are_one_problem() -> None:
    family = Scalars()
    assert content_key(family, (plus(2), times(3))) == content_key(family, (times(3), plus(6)))
    assert content_key(family, (plus(2), times(3))) != content_key(family, (times(3), plus(2)))


def test_functions_of_other_arguments_never_share_a_key() -> None:
    prefixes = {str(content_key(family, drawn(family, 1)[0])).split(":")[0] for family in FAMILIES}
    assert prefixes == {"x", "a, b", "xs", "s"}


def test_a_function_that_gives_the_same_everywhere_is_no_problem() -> None:
    family = Texts()
    without_a = next(piece for piece in family.slots[0] if piece.code.endswith("replace('a', '')"))
    count_a = next(piece for piece in family.slots[2] if piece.code.endswith("count('a')"))
    assert content_key(family, (without_a, NOTHING, count_a)) is None


def test_parentheses_stand_where_precedence_asks_and_nowhere_else() -> None:
    assert Code("x").then(plus(3)).then(times(2)).text == "(x + 3) * 2"
    assert Code("x").then(times(2)).then(plus(3)).text == "x * 2 + 3"
    assert Code("x").then(minus(3)).then(NOTHING).then(times(2)).text == "(x - 3) * 2"


def test_what_is_empty_is_said_where_it_is_not_plain() -> None:
    for pieces in drawn(Lists(parts=2), 60):
        text = Lists(parts=2).task(pieces, random.Random(0))
        assert ("none" in text) == (pieces[2].kind in ("product", "max", "min"))


def piece(family: Family, place: int, code: str) -> Piece:
    return next(one for one in family.slots[place] if one.code == code)


def test_a_text_that_is_cut_elsewhere_fails_a_hidden_test() -> None:
    family = Texts()
    for cut, others in (("{}[:2]", ("{}[:1]", "{}[:3]")), ("{}[-6:]", ("{}[-5:]", "{}[-7:]", "{}[6:]"))):
        for letter in LETTERS:
            count = piece(family, 2, f"{{}}.count('{letter}')")
            tests = choose_tests(family, (piece(family, 0, cut), NOTHING, count), random.Random(3))
            for other in others:
                wrong = (piece(family, 0, other), NOTHING, count)
                assert any(family.compute(wrong, arguments) != expected for arguments, expected in tests), (cut, letter)


def test_texts_that_are_cut_at_different_places_are_different_problems() -> None:
    family = Texts()
    for letter in LETTERS:
        count = piece(family, 2, f"{{}}.count('{letter}')")
        cuts = [f"{{}}[:{k}]" for k in range(2, 7)] + [f"{{}}[-{k}:]" for k in range(2, 7)]
        keys = {content_key(family, (piece(family, 0, cut), NOTHING, count)) for cut in cuts}
        assert len(keys) == len(cuts)


def test_constants_at_the_end_of_their_range_have_wrong_siblings_on_both_sides() -> None:
    for family, place, codes in (
        (Scalars(), 0, ("{} * 13", "{} + 21", "{} - 21")),
        (Lists(parts=1), 0, ("{} > 21", "{} < 21", "{} > -1", "{} < -1", "{} % 13 == 0")),
        (Texts(), 0, ("{}[:1]", "{}[:7]", "{}[-1:]", "{}[-7:]", "{} * 5")),
    ):
        drawable = {pieces[place].code for pieces in drawn(family, 200)}
        for code in codes:
            assert piece(family, place, code)
            assert code not in drawable, "what stands in for a mistake is never asked for"
