"""From logits to tokens: inverse-CDF sampling in which a token is a function of (seed, position, logits) alone.

Shared by every engine that computes logits itself. There is no generator state: the random number of a token is a
hash of its request's seed and its position, so it does not depend on the batch, its order or its history. There is no
truncation (top-p, top-k): the log-probs are those of the whole distribution sampled from (law L16).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posttrain.core.errors import NonFiniteError
from posttrain.core.fingerprint import splitmix64

_BLOCK = 256


def uniforms(
    seeds: Sequence[int] | npt.NDArray[np.integer], positions: Sequence[int] | npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """One number in the open interval (0, 1) for each (seed, position): `[R]`, 52 random bits.

    The counter-based form of SplitMix64; seeds are hashed once more than positions, so that neighbouring seeds do not
    draw each other's numbers one position later.
    """
    keys = splitmix64(np.asarray(seeds, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    counters = (np.asarray(positions, dtype=np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95)
    bits = splitmix64(keys ^ splitmix64(counters)) >> np.uint64(12)
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


def sample(logits: Tensor, temperatures: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens `[R]` (int64) and their log-probs `[R]` (float32), never positive.

    `logits` [R, V] float32, `temperatures` [R] float32 (0 is greedy; the log-prob is then of the temperature-1
    distribution), `uniforms` [R] float64. The token is the first whose cumulative probability exceeds the uniform
    number; sums over the vocabulary are taken in float64 over blocks, and a token of zero weight is never taken.
    Raises `NonFiniteError` where a row has no finite maximum.
    """
    assert logits.dim() == 2, logits.shape
    assert logits.dtype == torch.float32, logits.dtype
    greedy = temperatures == 0
    if not bool((greedy | (temperatures == 1)).all()):
        logits = logits / torch.where(greedy, 1.0, temperatures)[:, None]
    highest = logits.amax(dim=1, keepdim=True)
    if not bool(torch.isfinite(highest).all()):
        raise NonFiniteError(f"the engine's logits are not finite in {int((~torch.isfinite(highest)).sum())} rows")
    weights = (logits - highest).exp_()  # [R, V], the largest is 1
    cumulative = _block_sums(weights).cumsum(dim=1)  # [R, blocks]
    totals = cumulative[:, -1]
    tokens = _invert(weights, cumulative, uniforms)
    if bool(greedy.any()):
        tokens = torch.where(greedy, logits.argmax(dim=1), tokens)
    chosen = logits.gather(1, tokens[:, None])[:, 0].double() - highest[:, 0].double()
    return tokens, (chosen - totals.log()).float()


def _block_sums(weights: Tensor) -> Tensor:
    """[R, ceil(V / _BLOCK)] float64."""
    rows, vocab = weights.shape
    whole = vocab // _BLOCK * _BLOCK
    sums = weights[:, :whole].reshape(rows, -1, _BLOCK).sum(dim=2).double()
    if whole < vocab:
        sums = torch.cat([sums, weights[:, whole:].sum(dim=1, keepdim=True).double()], dim=1)
    return sums


def _invert(weights: Tensor, cumulative: Tensor, uniforms: Tensor) -> Tensor:
    """First the block that holds the target, then the token in it."""
    vocab = weights.shape[1]
    totals = cumulative[:, -1]
    # Strictly below the total: some block then ends above the target, and the first that does has positive weight.
    targets = torch.minimum(uniforms * totals, torch.nextafter(totals, torch.zeros_like(totals)))
    blocks = torch.searchsorted(cumulative, targets[:, None], right=True)  # [R, 1]
    before = torch.where(blocks > 0, cumulative.gather(1, (blocks - 1).clamp_min(0)), 0.0)
    candidates = blocks * _BLOCK + torch.arange(_BLOCK)  # [R, _BLOCK]
    inside = weights.gather(1, candidates.clamp_max(vocab - 1)).double()
    inside[candidates >= vocab] = 0.0
    within = torch.searchsorted(inside.cumsum(dim=1), targets[:, None] - before, right=True)
    # The block's own float32 sum may exceed the float64 one by rounding: then it is its last token of positive weight.
    last = _BLOCK - 1 - (inside > 0).flip(1).int().argmax(dim=1, keepdim=True)
    return (blocks * _BLOCK + torch.minimum(within, last))[:, 0]
