"""Names of the detectors that a verifier may fire, as they stand in `Verdict.flags`.

A flag says what was seen, not what it costs: every reply that carries one of these is incorrect already, but for the
two that speak of reasoning steps. How an execution ended (`core.sandboxing.ResultClass`) is flagged by its own name
and not repeated here.
"""

from __future__ import annotations

import enum


class Flag(enum.StrEnum):
    NO_ANSWER = "no_answer"
    SEVERAL_ANSWERS = "several_answers"
    HEDGED = "hedged"
    TEXT_AFTER_ANSWER = "text_after_answer"
    TOO_LONG = "too_long"
    TOO_LARGE = "too_large"
    """A value that cannot be computed within bounds."""
    UNEVALUATED = "unevaluated"
    """`5+7` or `5+7=12` where a value was asked for."""
    NOT_FINITE = "not_finite"
    CODE_IN_ANSWER = "code_in_answer"
    """Code, markup or LaTeX where a value was asked for; it is never evaluated."""
    NOT_A_NUMBER = "not_a_number"
    SEVERAL_PROGRAMS = "several_programs"
    UNCLOSED_FENCE = "unclosed_fence"
    FUNCTION_NOT_NAMED = "function_not_named"
    NOT_PLAIN = "not_plain"
    """The program returned an object of its own where plain data was asked for."""
    ENDED_EARLY = "ended_early"
    """The program left, as if all were well, before it had answered every input."""
    INVISIBLE_CHARACTERS = "invisible_characters"
    """Zero-width or formatting characters where plain text was asked for."""
    WRONG_UNIT = "wrong_unit"
    NOT_AN_OPTION = "not_an_option"
    NOT_JSON = "not_json"
    DUPLICATE_KEYS = "duplicate_keys"
    TOO_DEEP = "too_deep"
    REPETITION = "repetition"
    """A text that is a few words over and over."""
    SEVERAL_STATEMENTS = "several_statements"
    WRITES = "writes"
    """SQL that would do more than read."""
    FALSE_STEP = "false_step"
    """A step of a proof that does not follow."""
    WRONG_STEP = "wrong_step"
    """A reasoning step that can be checked and does not hold, whatever the final answer."""
    NO_CHECKABLE_STEP = "no_checkable_step"
    """Reasoning of which nothing could be checked, whatever the final answer."""
    ADDRESSES_JUDGE = "addresses_judge"
