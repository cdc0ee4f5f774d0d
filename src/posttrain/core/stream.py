"""A trajectory's token stream while it grows: append-only, four arrays of one length, checked at every append.

Laws L11-L14: sampled ids go in as they were sampled and are never decoded and encoded again; the mask comes from
what was appended, never from searching for a marker. It does not know what the tokens mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posttrain.core.types import BoolArray, FloatArray, IntArray


class TokenStream:
    """Grows by `observe` (given tokens) and `sample` (the policy's own tokens)."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._sampled: list[bool] = []
        self._logprobs: list[float] = []
        self._versions: list[int] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def observe(self, tokens: Sequence[int]) -> None:
        """Append tokens that the policy did not sample: prompt, tool output, environment text."""
        self._extend(tokens, [0.0] * len(tokens), [-1] * len(tokens), sampled=False)

    def sample(self, tokens: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]) -> tuple[int, int]:
        """Append sampled tokens, the stop token included; returns their span `(start, end)`.

        Raises ValueError where the three differ in length, a log-prob is positive or not finite, or a version is
        negative.
        """
        if not all(np.isfinite(value) and value <= 0.0 for value in logprobs):
            raise ValueError("a sampled token's log-prob is not a finite number at most 0")
        if any(version < 0 for version in versions):
            raise ValueError("a sampled token has no weight version")
        start = len(self)
        self._extend(tokens, logprobs, versions, sampled=True)
        return start, len(self)

    def tokens(self) -> IntArray:
        return np.asarray(self._tokens, dtype=np.int32)

    def sampled(self) -> BoolArray:
        return np.asarray(self._sampled, dtype=np.bool_)

    def logprobs(self) -> FloatArray:
        return np.asarray(self._logprobs, dtype=np.float32)

    def versions(self) -> IntArray:
        return np.asarray(self._versions, dtype=np.int32)

    def _extend(
        self, tokens: Sequence[int], logprobs: Sequence[float], versions: Sequence[int], *, sampled: bool
    ) -> None:
        if not len(tokens) == len(logprobs) == len(versions):
            raise ValueError(
                f"{len(tokens)} tokens, {len(logprobs)} log-probs and {len(versions)} versions cannot be appended"
            )
        self._tokens.extend(int(token) for token in tokens)
        self._sampled.extend([sampled] * len(tokens))
        self._logprobs.extend(float(value) for value in logprobs)
        self._versions.extend(int(version) for version in versions)
