"""Where keys and values lie: pages of a fixed number of tokens, so that a finished sequence gives its memory back and
nothing is ever copied because another one ended.

A prompt's pages are read by all its siblings; a sequence's own pages hold what it sampled. The pool grows when pages
run out, up to a limit where it has one. Which sequence holds which page is the scheduler's affair.
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

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        num_pages: int,
        max_pages: int | None = None,
    ) -> None:
        """`num_pages` to begin with, `max_pages` at most; None does not limit it."""
        self._max_pages = max_pages
        self._shape = (num_kv_heads, head_dim)
        self._dtype = dtype
        self.num_pages = 0
        self._free: list[int] = []
        self.layers = [LayerPages(*self._empty(0)) for _ in range(num_layers)]
        self._grow(num_pages if max_pages is None else min(num_pages, max_pages))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def has(self, count: int) -> bool:
        """Whether `count` pages are free, or may be made."""
        return self._max_pages is None or count <= len(self._free) + self._max_pages - self.num_pages

    def take(self, count: int) -> list[int]:
        """Lowest numbers first: what is free is used again before memory that was never touched."""
        assert self.has(count), "whoever takes pages of a limited pool has asked before"
        if count > len(self._free):
            more = max(count, self.num_pages // 2)
            self._grow(more if self._max_pages is None else min(more, self._max_pages - self.num_pages))
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


def bytes_of_a_page(num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Keys and values of all layers."""
    return 2 * num_layers * num_kv_heads * head_dim * PAGE * dtype.itemsize
