"""Math-Verify, asked only where the gold is mathematics beyond our own grammar.

Its parser takes what it understands of a text and drops the rest, and its comparison is not symmetric: it is asked in
both orders, and both must agree. It has no time limit here: one that holds from any thread is a worker's deadline.
"""

from __future__ import annotations

import logging
from typing import Any


def same(gold: str, answer: str) -> bool:
    """Raises whatever sympy raises for what it cannot do."""
    from math_verify import verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns of the limit that it has not
    left, right = _parsed(gold), _parsed(answer)
    if not left or not right:
        return False
    return bool(
        verify(left, right, strict=True, timeout_seconds=None)
        and verify(right, left, strict=True, timeout_seconds=None)
    )


def _parsed(text: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    return list(parse(f"$\\boxed{{{text}}}$", extraction_config=[LatexExtractionConfig()], parsing_timeout=None))
