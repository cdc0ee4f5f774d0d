"""The only step from ragged to dense: one micro-batch of the layout → tensors.

Only trainable tokens are targets, and nothing of a sample's other positions is read but its token ids (law L3).
Every sample sees its own prefix and its own earlier tokens, at the positions it would have alone. It decides nothing
about what goes together (`learn/layout.py` did).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posttrain.core.errors import UserError
from posttrain.core.types import FloatArray, IntArray, Sample
from posttrain.learn.attention import Part
from posttrain.learn.layout import MicroBatch, Tree, attends_in_parts


@dataclass(frozen=True)
class Batch:
    """Rows of `T` positions for the model, and `N` loss tokens flat beside them."""

    tokens: Tensor  # [B, T] int64
    positions: Tensor  # [B, T] int64, restarted: each token's place in its own sample
    segments: Tensor  # [B, T] int64, prefixes and completions; -1 is padding
    parent_segment: Tensor  # [S] int64: a completion's prefix; -1 for a prefix
    attention_parts: Tensor  # [A, 5] int64, the fields of `attention.Part`
    causal: bool
    """Every row is one sample: plain causal attention, no mask needed."""
    predict_from: Tensor  # [N] int64, into [B · T]: the position whose hidden state predicts the token
    targets: Tensor  # [N] int64
    owners: Tensor  # [N] int64, into `samples`
    places: Tensor  # [N] int64, the token's index in its own sample
    samples: tuple[int, ...]
    """Indices into the step's samples."""
    behavior_logprobs: Tensor  # [N]
    reference_logprobs: Tensor | None  # [N]
    values: Tensor | None  # [N], the critic's before the step's updates
    returns: Tensor | None  # [N]
    advantages: Tensor  # [N]
    loss_weights: Tensor  # [N]
    temperatures: Tensor  # [N]

    @property
    def num_computed_tokens(self) -> int:
        return self.tokens.numel()

    def attention_mask(self, dtype: torch.dtype) -> Tensor | None:
        """What each position sees: itself, what precedes it in its segment, and its segment's parent.

        `[B, 1, T, T]` to be added to the scores, 0 or −inf; for long rows `[1, 1, A, 5]`, the table of parts, which is
        not of `dtype` but int64; None where plain causal attention does.
        """
        if self.causal:
            return None
        if attends_in_parts(self.tokens.shape[1]):
            return self.attention_parts[None, None]
        parents = torch.where(self.segments >= 0, self.parent_segment[self.segments], -1)
        parents = torch.where(parents >= 0, parents, self.segments)
        keys = self.segments[:, None, :]
        visible = (self.segments[:, :, None] == keys) | (parents[:, :, None] == keys)
        mask = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible.tril(), -torch.inf)
        return mask[:, None]


def collate(samples: Sequence[Sample], micro_batch: MicroBatch, dtype: torch.dtype) -> Batch:
    """`samples` are the step's, all of them; `dtype` is that of the `[N]` fields.

    Raises `UserError` where only some of the micro-batch's samples carry an optional field, or a temperature is not
    above 0.
    """
    builder = _Builder(len(micro_batch), max(sum(tree.length for tree in row) for row in micro_batch))
    for number, row in enumerate(micro_batch):
        start = 0
        for tree in row:
            builder.add(number, start, tree, samples)
            start += tree.length
    chosen = [samples[index] for index in builder.samples]
    for sample in chosen:
        if not sample.temperature > 0.0:
            raise UserError(
                f"sample {sample.trajectory_id} was sampled at temperature {sample.temperature}: not above 0"
            )

    def flat(fields: Sequence[FloatArray]) -> Tensor:
        values = [values[places] for values, places in zip(fields, builder.places, strict=True)]
        return torch.from_numpy(np.concatenate(values)).to(dtype)

    def optional(name: str, fields: Sequence[FloatArray | None]) -> Tensor | None:
        given = [field for field in fields if field is not None]
        if given and len(given) != len(chosen):
            raise UserError(f"{len(given)} of {len(chosen)} samples carry {name}: give all or none")
        return flat(given) if given else None

    temperatures = [np.broadcast_to(np.float32(sample.temperature), sample.tokens.shape) for sample in chosen]
    return Batch(
        tokens=torch.from_numpy(builder.tokens),
        positions=torch.from_numpy(builder.positions),
        segments=torch.from_numpy(builder.segments),
        parent_segment=torch.tensor(builder.parents, dtype=torch.int64),
        attention_parts=torch.tensor(builder.parts, dtype=torch.int64),
        causal=all(len(row) == 1 and len(row[0].spans) == 1 for row in micro_batch),
        predict_from=torch.from_numpy(np.concatenate(builder.predict_from)),
        targets=torch.from_numpy(
            np.concatenate([s.tokens[places] for s, places in zip(chosen, builder.places, strict=True)])
        ).long(),
        owners=torch.from_numpy(np.repeat(np.arange(len(chosen)), [len(places) for places in builder.places])),
        places=torch.from_numpy(np.concatenate(builder.places)),
        samples=tuple(builder.samples),
        behavior_logprobs=flat([sample.behavior_logprobs for sample in chosen]),
        reference_logprobs=optional("reference log-probs", [sample.reference_logprobs for sample in chosen]),
        values=optional("a critic's values", [sample.values for sample in chosen]),
        returns=optional("returns", [sample.returns for sample in chosen]),
        advantages=flat([sample.advantages for sample in chosen]),
        loss_weights=flat([sample.loss_weights for sample in chosen]),
        temperatures=flat(temperatures),
    )


class _Builder:
    """Lays trees into rows and notes, sample by sample, where its loss tokens are predicted from."""

    def __init__(self, num_rows: int, width: int) -> None:
        self._width = width
        self.tokens = np.zeros((num_rows, width), np.int64)
        # Padding goes on counting, so that a row with one sample in it has no restart.
        self.positions = np.tile(np.arange(width), (num_rows, 1))
        self.segments = np.full((num_rows, width), -1, np.int64)
        self.parents: list[int] = []
        self.parts: list[Part] = []
        self.samples: list[int] = []
        self.places: list[npt.NDArray[np.int64]] = []
        self.predict_from: list[npt.NDArray[np.int64]] = []

    def add(self, row: int, start: int, tree: Tree, samples: Sequence[Sample]) -> None:
        prefix = samples[tree.spans[0].sample].tokens[: tree.prefix]
        root = self._segment(row, start, prefix, position=0, parent=-1)
        self.parts += _attention_parts(row, start, tree)
        last_of_prefix = row * self._width + start + tree.prefix - 1
        start += tree.prefix
        for span in tree.spans:
            sample = samples[span.sample]
            self._segment(row, start, sample.tokens[tree.prefix : span.end], position=tree.prefix, parent=root)
            places = np.flatnonzero(sample.trainable)
            inside = row * self._width + start + places - 1 - tree.prefix
            self.predict_from.append(np.where(places == tree.prefix, last_of_prefix, inside))
            self.places.append(places)
            self.samples.append(span.sample)
            start += span.completion

    def _segment(self, row: int, start: int, tokens: IntArray, *, position: int, parent: int) -> int:
        number = len(self.parents)
        self.parents.append(parent)
        cells = (row, slice(start, start + len(tokens)))
        self.tokens[cells] = tokens
        self.positions[cells] = np.arange(position, position + len(tokens))
        self.segments[cells] = number
        return number


def _attention_parts(row: int, start: int, tree: Tree) -> list[Part]:
    """The first completion goes on where the prefix ends: one triangle. All others see the prefix in one rectangle."""
    end_of_prefix = start + tree.prefix
    end_of_first = end_of_prefix + tree.spans[0].completion
    parts = [Part(row, start, end_of_first, start, end_of_first)]
    end_of_tree = start + tree.length
    if end_of_tree > end_of_first:
        parts.append(Part(row, end_of_first, end_of_tree, start, end_of_prefix))
    begin = end_of_first
    for span in tree.spans[1:]:
        if span.completion:
            parts.append(Part(row, begin, begin + span.completion, begin, begin + span.completion))
        begin += span.completion
    return parts
