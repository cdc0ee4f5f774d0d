"""Texts that keep to rules."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import VerdictStatus
from posttrain.verifiers import text_parts
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.instruction_rules import FormRule, Rule
from posttrain.verifiers.instructions import Instructions


def holds(reply: str, rule: str, /, **arguments: Any) -> bool:
    verdict = Instructions().verify(reply, {"rules": [{"rule": rule, **arguments}]})
    return verdict.status is VerdictStatus.CORRECT


CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("words", {"at_least": 3, "at_most": 3}, "It's well-made, no?", "It is well-made, no?"),
    ("distinct_words", {"at_least": 3}, "one two three", "one two One"),
    ("sentences", {"at_least": 2, "at_most": 2}, 'He said "go." She went.', "It costs 3.50 euros."),
    ("paragraphs", {"at_least": 2, "at_most": 2}, "One.\n\nTwo.", "One.\nTwo.\n\n---"),
    ("lines", {"at_most": 2}, "one\n\ntwo", "one\ntwo\nthree"),
    ("characters", {"at_most": 5}, "abcde", "abcdef"),
    ("bullets", {"at_least": 2, "at_most": 2}, "Here:\n- one\n* two", "Here:\n- one\n-two"),
    ("numbered_items", {"at_least": 2}, "1. one\n2) two", "1. one\n2 two"),
    ("headings", {"at_least": 1}, "# Title\ntext", "#Title\ntext"),
    ("placeholders", {"at_least": 2}, "[name] of [place]", "[name] and [name]"),
    ("highlights", {"at_least": 2}, "*one* and **two**", "*one* and ** ** and ***"),
    ("code_blocks", {"at_least": 1}, "So:\n```\nx\n```", "So:\n```\nx"),
    ("capital_words", {"at_least": 2, "at_most": 2}, "THIS is IT", "THIS is it"),
    ("questions", {"at_least": 1}, "Why? Because.", "Because."),
    ("letter", {"letter": "e", "at_most": 1}, "An egg", "An Eel"),
    ("letter", {"letter": "E", "at_least": 1, "case": True}, "Eel", "eel"),
    ("letter", {"letter": "!", "at_least": 2}, "Go! Go!", "Go!"),
    ("phrase", {"phrase": "red fox", "at_least": 2}, "A red fox, a Red\nFox.", "A red fox, red foxes."),
    ("phrase", {"phrase": "Fox", "at_least": 1, "case": True}, "Fox.", "fox."),
    ("phrase", {"phrase": "cat", "at_most": 1}, "cat concatenate", "cat, cat"),
    ("required", {"phrases": ["ant", "bee"]}, "A bee, an ant.", "A bee, an antler."),
    ("forbidden", {"phrases": ["ant", "so what"]}, "An antler, so. What?", "An ANT."),
    ("starts_with", {"text": "Dear"}, "  Dear all", "dear all"),
    ("starts_with", {"text": "Dear", "case": False}, "dear all", "Hi all"),
    ("ends_with", {"text": "Is that all?"}, "Yes. Is that all?\n", "Is that all? Yes."),
    ("paragraph_starts_with", {"paragraph": 2, "word": "then"}, "One.\n\nThen two.", "One.\n\nTwo then."),
    ("paragraph_starts_with", {"paragraph": 1, "word": "one", "of": 2}, "One.\n\nTwo.", "One."),
    ("lowercase", {}, "all small 1.", "All small"),
    ("uppercase", {}, "ALL LARGE 1.", "ALL LARGe"),
    ("no_commas", {}, "one and two", "one, two"),
    ("no_digits", {}, "one and two", "one and 2"),
    ("quoted", {}, '"all of it"', '"all" of it'),
    ("title", {}, "<<A title>>\ntext", "text\n<<A title>>"),
    ("postscript", {}, "Text.\n\nP.S. One thing more.", "Text. P.S. One thing more.\n\nEnd."),
    ("json", {}, '```json\n{"a": [1]}\n```', "{'a': 1}"),
    ("json", {}, '{"a": 1}', '"a"'),
    ("table", {}, "|a|b|\n|-|:-:|\n|1|2|", "|a|b|\n|1|2|\n|3|4|"),
    ("only_punctuation", {"marks": ".'"}, "It's so.", "It's so!"),
    ("script", {"scripts": ["latin"]}, "Déjà vu 12", "Это кот"),
    ("script", {"scripts": ["cjk", "hiragana", "katakana"]}, "これは猫です。", "This is a cat."),
    ("script", {"scripts": ["cyrillic"]}, "Это кот по имени Том и его друг.", "Это cat."),
    ("sections", {"title": "Section", "at_least": 2}, "Section 1\none\nSection 2\ntwo", "Section 1\nSection 2\ntwo"),
    ("repeat_prompt", {"prompt": "Say it.", "then": 2}, "Say it. So be it.", "Say it. So"),
    ("one_of", {"texts": ["My answer is yes.", "My answer is no."]}, "My answer is no.", "My answer is no. Yes."),
    ("parts", {"separator": "***", "number": 2}, "one\n***\ntwo", "one\n***\nOne"),
]


@pytest.mark.parametrize(("rule", "arguments", "good", "bad"), CASES)
def test_a_rule_holds_of_one_text_and_not_of_the_other(
    rule: str, arguments: dict[str, Any], good: str, bad: str
) -> None:
    assert holds(good, rule, **arguments)
    assert not holds(bad, rule, **arguments)


def test_every_rule_of_the_registry_is_tested_here() -> None:
    union, _ = typing.get_args(Rule)
    known = {
        name for record in typing.get_args(union) for name in typing.get_args(typing.get_type_hints(record)["rule"])
    }
    assert known == {rule for rule, *_ in CASES}
    assert set(typing.get_args(typing.get_type_hints(FormRule)["rule"])) <= known


def test_all_rules_must_hold_and_the_share_that_does_is_a_part() -> None:
    rules = [{"rule": "words", "at_most": 3}, {"rule": "lowercase"}, {"rule": "no_digits"}]
    verdict = Instructions().verify("Three words here", {"rules": rules})
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.score == 0.0
    assert verdict.parts == {"rules_held": pytest.approx(2 / 3)}
    assert verdict.evidence == {"rules": 3, "broken": ["lowercase"]}


@pytest.mark.parametrize(
    "gold",
    [
        None,
        {},
        {"rules": []},
        {"rules": ["words"]},
        {"rules": [{"rule": "wrods", "at_least": 3}]},
        {"rules": [{"at_least": 3}]},
        {"rules": [{"rule": "words"}]},
        {"rules": [{"rule": "words", "at_least": 0}]},
        {"rules": [{"rule": "words", "at_least": 5, "at_most": 4}]},
        {"rules": [{"rule": "words", "at_least": "5"}]},
        {"rules": [{"rule": "words", "at_least": True}]},
        {"rules": [{"rule": "words", "atleast": 5}]},
        {"rules": [{"rule": "lowercase"}, {"rule": "lowercase", "case": True}]},
        {"rules": [{"rule": "forbidden", "phrases": []}]},
        {"rules": [{"rule": "required", "phrases": [""]}]},
        {"rules": [{"rule": "required", "phrases": ["..."]}]},
        {"rules": [{"rule": "letter", "letter": "ab", "at_least": 1}]},
        {"rules": [{"rule": "starts_with", "text": ""}]},
        {"rules": [{"rule": "script", "scripts": ["klingon"]}]},
        {"rules": [{"rule": "script", "scripts": []}]},
        {"rules": [{"rule": "parts", "separator": "***", "number": 1}]},
        {"rules": [{"rule": "lowercase"}], "rule": "any"},
    ],
)
def test_an_unknown_rule_a_wrong_argument_or_no_rule_is_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="instructions"):
        Instructions().verify("some words", gold)


@pytest.mark.parametrize("reply", ["", " \n", "...", "\u200b\u200b", "🙂", "```\n```"])
def test_a_reply_without_words_is_refused_whatever_the_rules_say(reply: str) -> None:
    verdict = Instructions().verify(reply, {"rules": [{"rule": "no_commas"}]})
    assert verdict.flags == (Flag.NO_ANSWER,)


def test_a_phrase_of_the_task_is_not_in_the_reason() -> None:
    verdict = Instructions().verify("some words", {"rules": [{"rule": "required", "phrases": ["xylophone"]}]})
    assert "xylophone" not in f"{verdict.reason}{verdict.evidence}"


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_counts_of_any_text_are_sound(text: str) -> None:
    assert len(text_parts.sentences(text)) <= len(text_parts.words(text))
    assert len(text_parts.paragraphs(text)) <= len(text_parts.sentences(text)) or not text_parts.words(text)
    assert 0.0 <= text_parts.distinct_share(text_parts.words(text)) <= 1.0


EVERYTHING = {"rules": [{"rule": rule, **arguments} for rule, arguments, _, _ in CASES]}


@pytest.mark.parametrize(
    "unit", ["a", "*", "**a", "\n", "\n ", ".", ".)", "[", "# ", "- ", "|-", "''-", "<<", "Section 1\n", "а", "\n\t\n"]
)
def test_the_longest_reply_of_one_repeated_piece_is_judged_without_quadratic_work(unit: str) -> None:
    """Each of 20,000 characters against each other, for each of 45 rules, would not end."""
    text = "word " * 4 + unit * ((20_000 - 30) // len(unit)) + " end"
    assert Instructions().verify(text, EVERYTHING).status is VerdictStatus.INCORRECT
