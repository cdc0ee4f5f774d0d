"""The closed registry of what an instruction may ask of a text: one small record a rule, its fields its arguments.

`holds` sees text without invisible characters. A rule that would hold of everything cannot be made. What a word, a
sentence or a paragraph is stands in `text_parts.py`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from posttrain.verifiers import text_parts
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.gold import gold_record
from posttrain.verifiers.json_text import read_json

MAX_COUNT = 20_000
SCRIPT_SHARE = 0.95
"""Of the letters that a text in one script has: names and loan words may be in another."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Script = Literal[
    "latin",
    "cyrillic",
    "greek",
    "arabic",
    "hebrew",
    "devanagari",
    "bengali",
    "tamil",
    "telugu",
    "thai",
    "hangul",
    "cjk",
    "hiragana",
    "katakana",
    "armenian",
    "georgian",
    "ethiopic",
    "khmer",
    "lao",
    "myanmar",
    "sinhala",
]
Text = Annotated[str, Field(min_length=1, max_length=2_000)]


def check_bounds(at_least: int, at_most: int | None) -> None:
    if at_least == 0 and at_most is None:
        raise ValueError("a count needs a bound: at_least above 0, or at_most")
    if at_most is not None and at_most < at_least:
        raise ValueError(f"no count is at least {at_least} and at most {at_most}")


@gold_record
class CountRule:
    """How many of something there are; `at_most` equal to `at_least` asks for exactly so many."""

    rule: Literal[
        "words",
        "distinct_words",
        "sentences",
        "paragraphs",
        "lines",
        "characters",
        "bullets",
        "numbered_items",
        "headings",
        "placeholders",
        "highlights",
        "code_blocks",
        "capital_words",
        "questions",
    ]
    at_least: Count = 0
    at_most: Count | None = None

    counters: ClassVar[dict[str, Callable[[str], int]]] = {
        "words": lambda text: len(text_parts.words(text)),
        "distinct_words": lambda text: len({word.casefold() for word in text_parts.words(text)}),
        "sentences": lambda text: len(text_parts.sentences(text)),
        "paragraphs": lambda text: len(text_parts.paragraphs(text)),
        "lines": lambda text: len(text_parts.lines(text)),
        "characters": len,
        "bullets": text_parts.num_bullets,
        "numbered_items": text_parts.num_numbered,
        "headings": text_parts.num_headings,
        "placeholders": text_parts.num_placeholders,
        "highlights": text_parts.num_highlights,
        "code_blocks": text_parts.num_code_blocks,
        "capital_words": lambda text: sum(word.isupper() for word in text_parts.words(text)),
        "questions": lambda text: sum(s.rstrip().endswith(("?", "？")) for s in text_parts.sentences(text)),
    }

    def __post_init__(self) -> None:
        check_bounds(self.at_least, self.at_most)

    def holds(self, text: str) -> bool:
        return _within(self.counters[self.rule](text), self.at_least, self.at_most)


@gold_record
class LetterRule:
    """How often a letter or sign stands in the text, capitals aside unless `case` counts."""

    rule: Literal["letter"]
    letter: Annotated[str, Field(min_length=1, max_length=1)]
    at_least: Count = 0
    at_most: Count | None = None
    case: bool = False

    def __post_init__(self) -> None:
        check_bounds(self.at_least, self.at_most)

    def holds(self, text: str) -> bool:
        count = text.count(self.letter) if self.case else text.casefold().count(self.letter.casefold())
        return _within(count, self.at_least, self.at_most)


@gold_record
class PhraseRule:
    """How often a word or phrase stands in the text, as whole words, capitals aside unless `case` counts."""

    rule: Literal["phrase"]
    phrase: Text
    at_least: Count = 0
    at_most: Count | None = None
    case: bool = False

    def __post_init__(self) -> None:
        check_bounds(self.at_least, self.at_most)
        _check_words(self.phrase)

    def holds(self, text: str) -> bool:
        count = text_parts.num_phrase(text, self.phrase, ignore_case=not self.case)
        return _within(count, self.at_least, self.at_most)


@gold_record
class RequiredRule:
    """Every one of these words or phrases stands in the text."""

    rule: Literal["required"]
    phrases: Annotated[tuple[Text, ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        _check_words(*self.phrases)

    def holds(self, text: str) -> bool:
        return all(text_parts.num_phrase(text, phrase, ignore_case=True) for phrase in self.phrases)


@gold_record
class ForbiddenRule:
    """None of these words or phrases stands in the text, nor any word that could hide one in another alphabet."""

    rule: Literal["forbidden"]
    phrases: Annotated[tuple[Text, ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        _check_words(*self.phrases)

    def holds(self, text: str) -> bool:
        plain = unicodedata.normalize("NFKC", text)
        if any(map(text_parts.mixes_scripts, text_parts.words(plain))):
            return False
        return not any(text_parts.num_phrase(plain, phrase, ignore_case=True) for phrase in self.phrases)


@gold_record
class EdgeRule:
    """The text begins or ends so, character by character, white space around it aside."""

    rule: Literal["starts_with", "ends_with"]
    text: Text
    case: bool = True

    def __post_init__(self) -> None:
        if self.text != self.text.strip():
            raise ValueError("a beginning or an end must not have white space around it")

    def holds(self, text: str) -> bool:
        text, edge = text.strip(), self.text
        if not self.case:
            text, edge = text.casefold(), edge.casefold()
        return text.startswith(edge) if self.rule == "starts_with" else text.endswith(edge)


@gold_record
class FirstWordRule:
    """The paragraph with this number, from 1, begins with this word; and there are `of` paragraphs, if given."""

    rule: Literal["paragraph_starts_with"]
    paragraph: Annotated[int, Field(ge=1, le=100)]
    word: Text
    of: Annotated[int, Field(ge=1, le=100)] | None = None

    def holds(self, text: str) -> bool:
        found = text_parts.paragraphs(text)
        if len(found) < self.paragraph or (self.of is not None and len(found) != self.of):
            return False
        return text_parts.words(found[self.paragraph - 1])[0].casefold() == self.word.casefold()


@gold_record
class FormRule:
    """Rules without arguments, about the text as a whole."""

    rule: Literal["lowercase", "uppercase", "no_commas", "no_digits", "quoted", "title", "postscript", "json", "table"]

    def holds(self, text: str) -> bool:
        return _FORMS[self.rule](text.strip())


@gold_record
class OnlyMarksRule:
    """Of all punctuation, the text uses only these marks."""

    rule: Literal["only_punctuation"]
    marks: Annotated[str, Field(max_length=40)]

    def holds(self, text: str) -> bool:
        return all(mark in self.marks for mark in text if unicodedata.category(mark).startswith("P"))


@gold_record
class ScriptRule:
    """Nearly all letters are of one of these scripts: "latin", "cyrillic", "greek", "arabic", "cjk", "hiragana" …"""

    rule: Literal["script"]
    scripts: Annotated[tuple[Script, ...], Field(min_length=1)]

    def holds(self, text: str) -> bool:
        found = text_parts.scripts(text)
        letters = sum(found.values())
        return letters > 0 and sum(found.get(script, 0) for script in self.scripts) >= SCRIPT_SHARE * letters


@gold_record
class SectionsRule:
    """There are sections under numbered lines `TITLE 1`, `TITLE 2` …, each with text."""

    rule: Literal["sections"]
    title: Text
    at_least: Count = 0
    at_most: Count | None = None

    def __post_init__(self) -> None:
        check_bounds(self.at_least, self.at_most)

    def holds(self, text: str) -> bool:
        return _within(text_parts.num_sections(text, self.title), self.at_least, self.at_most)


@gold_record
class RepeatPromptRule:
    """The text begins with the request, word for word, and goes on with at least as many words as `then`."""

    rule: Literal["repeat_prompt"]
    prompt: Text
    then: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1

    def holds(self, text: str) -> bool:
        rest = text.strip().removeprefix(self.prompt.strip())
        return rest != text.strip() and len(text_parts.words(rest)) >= self.then


@gold_record
class OneOfRule:
    """The whole text is one of these."""

    rule: Literal["one_of"]
    texts: Annotated[tuple[Text, ...], Field(min_length=1)]

    def holds(self, text: str) -> bool:
        return text.strip() in self.texts


@gold_record
class PartsRule:
    """The text is this many parts with words, all different, separated by `separator` on lines of its own."""

    rule: Literal["parts"]
    separator: Text
    number: Annotated[int, Field(ge=2, le=100)]

    def holds(self, text: str) -> bool:
        parts: list[list[str]] = [[]]
        for line in text.splitlines():
            if line.strip() == self.separator:
                parts.append([])
            else:
                parts[-1] += text_parts.words(line.casefold())
        return len(parts) == self.number and all(parts) and len({tuple(part) for part in parts}) == len(parts)


Rule = Annotated[
    CountRule
    | LetterRule
    | PhraseRule
    | RequiredRule
    | ForbiddenRule
    | EdgeRule
    | FirstWordRule
    | FormRule
    | OnlyMarksRule
    | ScriptRule
    | SectionsRule
    | RepeatPromptRule
    | OneOfRule
    | PartsRule,
    Field(discriminator="rule"),
]


def _within(count: int, at_least: int, at_most: int | None) -> bool:
    return at_least <= count and (at_most is None or count <= at_most)


def _check_words(*phrases: str) -> None:
    for phrase in phrases:
        if not text_parts.words(phrase):
            raise ValueError(f"{phrase!r} has no word in it")


def _is_json(text: str) -> bool:
    """A JSON object or list with something in it, alone or in a block of its own."""
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        text = text[3:-3].removeprefix("json")
    value = read_json(text)
    return not isinstance(value, Refused) and isinstance(value, dict | list) and bool(value)


def _has_title(text: str) -> bool:
    first = text.splitlines()[0].strip() if text else ""
    return first.startswith("<<") and first.endswith(">>") and bool(text_parts.words(first))


def _has_postscript(text: str) -> bool:
    last = text_parts.paragraphs(text)[-1:]
    return bool(last) and last[0].startswith(("P.S.", "PS:")) and len(text_parts.words(last[0])) > 2


def _has_table(text: str) -> bool:
    """A Markdown table: a header, its rule, and a row with as many cells."""
    rows = [line.strip() for line in text.splitlines()]
    for head, rule, row in zip(rows, rows[1:], rows[2:], strict=False):
        cells = rule.strip("|").split("|")
        if len(cells) < 2 or not all(cell.strip(" :") and not cell.strip(" :-") for cell in cells):
            continue
        if all(len(line.strip("|").split("|")) == len(cells) for line in (head, row)) and text_parts.words(row):
            return True
    return False


_FORMS: dict[str, Callable[[str], bool]] = {
    "lowercase": lambda text: text.islower() and text == text.lower(),
    "uppercase": lambda text: text.isupper() and text == text.upper(),
    "no_commas": lambda text: not any(mark in text for mark in ",，、،"),
    "no_digits": lambda text: not any(character.isdigit() for character in text),
    "quoted": lambda text: len(text) > 2 and text[0] == text[-1] == '"',
    "title": _has_title,
    "postscript": _has_postscript,
    "json": _is_json,
    "table": _has_table,
}
