"""Answers that are one text, compared character by character after a stated normalisation.

White space is collapsed and Unicode composed always; what else counts as the same is an option. `gold` is the text,
or a list of texts each of which is right. Characters that nobody sees are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.final_answer import Refused, read_final_answer
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.text_form import UnicodeForm, has_invisible, normal_text


@dataclass(frozen=True)
class Exact:
    """The reply ends with `Answer: X`, and X is the text `gold`."""

    ignore_case: bool = False
    unicode: UnicodeForm = "NFC"
    """NFKC also takes full-width and styled letters, ligatures and the like as their plain forms."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted = [self._normal(text) for text in read_texts(gold)]
        text = read_visible_answer(reply)
        if isinstance(text, Refused):
            return text.verdict()
        answer = self._normal(text)
        if answer not in wanted:
            return Verdict.incorrect("the answer is another text", answer=answer)
        return Verdict.correct(answer=answer)

    def _normal(self, text: str) -> str:
        return normal_text(text, self.unicode, ignore_case=self.ignore_case)


def read_texts(gold: Json) -> list[str]:
    """The texts that are right. Raises ValueError where there is none, or one that no reply could give."""
    texts = [gold] if isinstance(gold, str) else gold
    if not isinstance(texts, list) or not texts:
        raise ValueError("what is right must be a text or a list of texts, and not empty")
    for text in texts:
        if not isinstance(text, str) or isinstance(read_visible_answer(f"Answer: {text}"), Refused):
            raise ValueError(f"{text!r} is no text that a final answer could be")
    return texts


def read_visible_answer(reply: str) -> str | Refused:
    """As `read_final_answer`; an answer with characters that nobody sees is refused."""
    text = read_final_answer(reply)
    if isinstance(text, str) and has_invisible(text):
        return Refused("the answer has characters that cannot be seen", (Flag.INVISIBLE_CHARACTERS,))
    return text
