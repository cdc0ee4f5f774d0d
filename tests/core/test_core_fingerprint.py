from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from posttrain.core.fingerprint import fingerprint, folder_fingerprint

Arrays = dict[str, npt.NDArray[Any]]


def weights(size: int = 70_000) -> Arrays:
    """The first tensor is longer than one chunk of the hash and no multiple of a word."""
    rng = np.random.default_rng(0)
    sizes = {"a": size * 4 + 3, "b": 10, "c": 10}
    return {name: rng.integers(0, 2**16, length).astype(np.uint16) for name, length in sizes.items()}


def test_the_order_of_the_tensors_does_not_count() -> None:
    tensors = weights()
    assert fingerprint(tensors.items()) == fingerprint(reversed(tensors.items()))


@given(st.integers(0, 280_002), st.integers(1, 2**16 - 1))
@settings(deadline=None, max_examples=50)
def test_one_changed_element_changes_it(place: int, difference: int) -> None:
    tensors = weights()
    before = fingerprint(tensors.items())
    tensors["a"][place] ^= difference
    assert fingerprint(tensors.items()) != before


@given(st.lists(st.integers(0, 280_002), min_size=2, max_size=6, unique=True))
@settings(deadline=None, max_examples=50)
def test_signs_that_flip_together_do_not_cancel(places: list[int]) -> None:
    tensors = weights()
    before = fingerprint(tensors.items())
    tensors["a"][places] ^= 0x8000
    assert fingerprint(tensors.items()) != before


def test_all_signs_flipped_is_another_model() -> None:
    tensors = weights()
    assert fingerprint((name, array ^ 0x8000) for name, array in tensors.items()) != fingerprint(tensors.items())


@given(st.integers(0, 280_002), st.integers(0, 280_002))
@settings(deadline=None, max_examples=50)
def test_exchanged_elements_change_it_unless_they_are_equal(first: int, second: int) -> None:
    tensors = weights()
    before = fingerprint(tensors.items())
    array = tensors["a"]
    equal = array[first] == array[second]
    array[[first, second]] = array[[second, first]]
    assert (fingerprint(tensors.items()) == before) == equal


def test_exchanged_tensors_change_it() -> None:
    tensors = weights()
    exchanged = {"a": tensors["a"], "b": tensors["c"], "c": tensors["b"]}
    assert fingerprint(exchanged.items()) != fingerprint(tensors.items())


def test_shape_and_element_size_count() -> None:
    flat = np.arange(12, dtype=np.uint16)
    prints = {
        fingerprint([("a", array)]) for array in (flat, flat.reshape(3, 4), flat.reshape(4, 3), flat.view(np.uint32))
    }
    assert len(prints) == 4


def test_the_bits_count_and_not_the_type_they_are_seen_as() -> None:
    numbers = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    assert fingerprint([("a", numbers)]) == fingerprint([("a", numbers.view(np.uint32))])


def test_a_view_hashes_as_its_copy() -> None:
    numbers = np.arange(24, dtype=np.uint16).reshape(4, 6)
    assert fingerprint([("a", numbers.T)]) == fingerprint([("a", numbers.T.copy())])


def test_a_folder_has_the_fingerprint_of_its_tensors(tmp_path: Path) -> None:
    tensors = {**weights(100), "empty": np.zeros((0, 3), np.float32)}
    save_file({"a": tensors["a"]}, tmp_path / "model-1.safetensors")
    save_file({name: tensors[name] for name in ("b", "c", "empty")}, tmp_path / "model-2.safetensors")
    assert folder_fingerprint(tmp_path) == fingerprint(tensors.items())
