"""Where keys and values lie: pages of a fixed number of tokens, so that a finished sequence gives its memory back and
nothing is ever copied because another one ended.

A prompt's pages are read by all its siblings; a sequence's own pages hold what it sampled. The pool grows when pages
run out. Which sequence holds which page is the scheduler's affair.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import torch
from torch import Tensor

PAGE = 32
"""Tokens of a page. One page of one head is 4 KiB at 64 dimensions: it stays in a core's first cache."""


@dataclass
class LayerPages:
    """One layer's keys and values. Keys lie dimension-major: one load has one dimension of many tokens."""

    keys: Tensor  # [KVH, pages, head_dim, PAGE]
    values: Tensor  # [KVH, pages, PAGE, head_dim]


class PagePool:
    """All layers' pages; page `i` of every layer belongs to the same sequence."""

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype, num_pages: int) -> None:
        self._shape = (num_kv_heads, head_dim)
        self._dtype = dtype
        self.num_pages = 0
        self._free: list[int] = []
        self.layers = [LayerPages(*self._empty(0)) for _ in range(num_layers)]
        self._grow(num_pages)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Lowest numbers first: what is free is used again before memory that was never touched."""
        if count > len(self._free):
            self._grow(max(count, self.num_pages // 2))
        return [heapq.heappop(self._free) for _ in range(count)]

    def give_back(self, pages: list[int]) -> None:
        for page in pages:
            heapq.heappush(self._free, page)

    def _grow(self, count: int) -> None:
        for layer in self.layers:  # one layer at a time: the old and the new pool are never both whole in memory
            more = self._empty(count)
            layer.keys = torch.cat([layer.keys, more[0]], dim=1)
            layer.values = torch.cat([layer.values, more[1]], dim=1)
        for page in range(self.num_pages, self.num_pages + count):
            heapq.heappush(self._free, page)
        self.num_pages += count

    def _empty(self, count: int) -> tuple[Tensor, Tensor]:
        """Zeros: a page's unused places are multiplied by a zero weight, which must not meet a NaN."""
        heads, dim = self._shape
        return (
            torch.zeros(heads, count, dim, PAGE, dtype=self._dtype),
            torch.zeros(heads, count, PAGE, dim, dtype=self._dtype),
        )


def num_pages_of(num_tokens: int) -> int:
    return -(-num_tokens // PAGE)
