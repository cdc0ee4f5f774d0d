"""A model's parameters laid end to end in one flat vector, matrices before vectors.

One vector makes clipping, sharding over ranks and saving single operations; the model's own parameters become views
of it. Only those that are trained are in it: with an adapter, the adapter's. Weight decay applies to the matrices, the
first `num_decayed` elements. It updates nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGNMENT = 64
"""Elements that each parameter's start, and each rank's shard, is a multiple of: whole cache lines."""


@dataclass(frozen=True)
class Slot:
    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def end(self) -> int:
        return self.start + math.prod(self.shape)


class FlatParameters:
    """The place of each parameter of `model` that is trained, or of each that is frozen; a tied one has one place."""

    def __init__(self, model: nn.Module, *, trained: bool = True) -> None:
        self._own = [(name, own) for name, own in model.named_parameters() if own.requires_grad == trained]
        named = sorted(self._own, key=lambda item: item[1].ndim < 2)
        slots, start, self.num_decayed = [], 0, 0
        for name, parameter in named:
            slots.append(Slot(name, tuple(parameter.shape), start))
            start += math.ceil(parameter.numel() / ALIGNMENT) * ALIGNMENT
            self.num_decayed = start if parameter.ndim >= 2 else self.num_decayed
        self.slots = tuple(slots)
        self.num_elements = start

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Name → its part of `flat`, in the parameter's shape."""
        return {slot.name: flat[slot.start : slot.end].view(slot.shape) for slot in self.slots}

    def shard(self, rank: int, world_size: int) -> slice:
        """The elements that `rank` reduces and updates; together the shards are the whole vector."""
        size = math.ceil(self.num_elements / world_size / ALIGNMENT) * ALIGNMENT
        return slice(min(rank * size, self.num_elements), min((rank + 1) * size, self.num_elements))

    def copy_to(self, flat: Tensor) -> None:
        """The model's present parameters into `flat`; the gaps between them stay as they are."""
        views = self.views(flat)
        with torch.no_grad():
            for name, parameter in self._own:
                views[name].copy_(parameter)

    def bind(self, flat: Tensor) -> None:
        """The model's parameters are views of `flat` from now on."""
        views = self.views(flat)
        for name, parameter in self._own:
            parameter.data = views[name]

    @contextlib.contextmanager
    def bound(self, flat: Tensor, back_to: Tensor) -> Iterator[None]:
        """The model computes with `flat` inside, with `back_to` again afterwards."""
        self.bind(flat)
        try:
            yield
        finally:
            self.bind(back_to)

    def accumulate_gradients_in(self, flat: Tensor) -> None:
        """Every backward pass adds to `flat`, in its dtype, and leaves no `.grad` behind."""
        views = self.views(flat)
        for name, parameter in self._own:
            parameter.register_post_accumulate_grad_hook(_Adder(views[name]))


class _Adder:
    def __init__(self, total: Tensor) -> None:
        self._total = total

    def __call__(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self._total.add_(parameter.grad)
        parameter.grad = None
