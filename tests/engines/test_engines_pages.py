from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.engines.pages import PagePool, num_pages_of


def pool(num_pages: int) -> PagePool:
    return PagePool(num_layers=2, num_kv_heads=2, head_dim=4, dtype=torch.float32, num_pages=num_pages)


@given(st.lists(st.integers(0, 5), max_size=30))
@settings(deadline=None, max_examples=50)
def test_no_page_is_held_twice(amounts: list[int]) -> None:
    pages = pool(1)
    held: list[list[int]] = []
    for amount in amounts:
        if amount == 0 and held:
            pages.give_back(held.pop(0))
        held.append(pages.take(amount))
        together = [page for part in held for page in part]
        assert len(set(together)) == len(together)
        assert all(0 <= page < pages.num_pages for page in together)
        assert pages.num_free == pages.num_pages - len(together)


def test_what_is_stored_survives_growth() -> None:
    pages = pool(1)
    (first,) = pages.take(1)
    pages.layers[1].keys[:, first] = 3.0
    pages.take(10)
    assert pages.num_pages >= 11
    for layer in pages.layers:
        assert layer.keys.shape[1] == layer.values.shape[1] == pages.num_pages
    assert bool((pages.layers[1].keys[:, first] == 3.0).all())
    assert not pages.layers[0].keys.any()


def test_the_lowest_free_pages_are_taken_first() -> None:
    pages = pool(6)
    assert pages.take(4) == [0, 1, 2, 3]
    pages.give_back([2, 0])
    assert pages.take(3) == [0, 2, 4]


def test_pages_of_a_length() -> None:
    assert [num_pages_of(length) for length in (0, 1, 32, 33)] == [0, 1, 1, 2]
