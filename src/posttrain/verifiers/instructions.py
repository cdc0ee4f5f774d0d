"""Texts that must keep to stated rules: counts, words, beginnings and ends, case, script, format.

`gold` is `{"rules": [{"rule": "words", "at_least": 50}, …]}`. The rules are those of `instruction_rules.py`: an
unknown one, a wrong argument or none at all is an error of the task. Whatever the rules say, a text is refused that has
no words, that is a few words over and over, or that has comments, which a page would not show. What the text says is
not judged.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from posttrain.core.types import Json, Verdict
from posttrain.verifiers import text_parts
from posttrain.verifiers.final_answer import MAX_REPLY_CHARACTERS
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.instruction_rules import Rule
from posttrain.verifiers.text_form import without_invisible

MAX_ANSWER_CHARACTERS = 500
REPETITIVE_WORDS = 40
"""From this many words on, a text is looked at for repetition."""
MIN_DISTINCT_SHARE = 0.125


@gold_record
class InstructionsGold:
    """`Instructions`' gold."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]


_read = gold_reader(InstructionsGold, "instructions")


@dataclass(frozen=True)
class Instructions:
    """Every one of the task's rules holds of the whole reply; the share that holds is a part."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted: InstructionsGold = _read(gold)
        if len(reply) > MAX_REPLY_CHARACTERS:
            reason = f"the reply has {len(reply)} of at most {MAX_REPLY_CHARACTERS} characters"
            return Verdict.incorrect(reason, flags=(Flag.TOO_LONG,))
        if "<!--" in reply:
            reason = "the reply has a comment, which a page would not show"
            return Verdict.incorrect(reason, flags=(Flag.INVISIBLE_CHARACTERS,))
        text = unicodedata.normalize("NFC", without_invisible(reply)).strip()
        words = text_parts.words(text)
        if not words:
            return Verdict.incorrect("the reply has no words", flags=(Flag.NO_ANSWER,))
        if len(words) >= REPETITIVE_WORDS and text_parts.distinct_share(words) < MIN_DISTINCT_SHARE:
            return Verdict.incorrect("the reply is a few words over and over", flags=(Flag.REPETITION,))
        held = [rule.holds(text) for rule in wanted.rules]
        kinds = [rule.rule for rule, holds in zip(wanted.rules, held, strict=True) if not holds]
        shown = {
            "answer": text[:MAX_ANSWER_CHARACTERS],
            "parts": {"rules_held": sum(held) / len(held)},
            "evidence": {"rules": len(held), "broken": kinds},
        }
        if kinds:
            return Verdict.incorrect(f"{len(kinds)} of {len(held)} rules do not hold: {', '.join(kinds)}", **shown)
        return Verdict.correct(**shown)
