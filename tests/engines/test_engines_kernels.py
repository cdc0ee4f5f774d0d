from __future__ import annotations

import ctypes
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.engines.architecture import LlamaShape
from posttrain.engines.kernels import build
from posttrain.engines.kernels.operations import KernelOperations, refusal
from posttrain.engines.operations import DecodePlan, Heads
from posttrain.engines.pages import PAGE, LayerPages
from posttrain.engines.rotation import Rotation
from posttrain.engines.torch import TorchEngine
from posttrain.engines.torch_operations import TorchOperations

PLAIN = TorchOperations(torch.float32)
"""Float32 through and through: the kernels round weights, activations, keys and values, and nothing else."""

needs_kernels = pytest.mark.skipif(build.load_kernels() is None, reason=build.prepare_kernels())


@pytest.fixture(scope="module")
def kernels() -> KernelOperations:
    library = build.load_kernels()
    assert library is not None
    return KernelOperations(library)


def bf16(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).bfloat16()


def near(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    """`found` may be rounded to bfloat16: by 2^-9 of each value at most, half a unit of the last place."""
    rounding = 2.0**-8 if found.dtype == torch.bfloat16 else 0.0
    torch.testing.assert_close(found.float(), expected.float(), rtol=tolerance + rounding, atol=tolerance)


@needs_kernels
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 130])
@pytest.mark.parametrize(("columns", "inner"), [(64, 32), (301, 96), (160, 576)])
def test_projections_are_exact_products(kernels: KernelOperations, rows: int, columns: int, inner: int) -> None:
    x, weight = bf16(rows, inner), bf16(columns, inner, seed=1)
    expected = x.double() @ weight.double().T
    packed = kernels.pack(weight)
    near(kernels.project(x, packed), expected, 1e-4)
    residual = torch.randn(rows, columns)
    before = residual.clone()
    kernels.add_project(residual, x, packed)
    near(residual, before + expected, 1e-4)


@needs_kernels
def test_gated_products(kernels: KernelOperations) -> None:
    x, gate, up = bf16(70, 96), bf16(160, 96, seed=1), bf16(160, 96, seed=2)
    expected = PLAIN.gated(x.float(), PLAIN.pack_gated(gate, up))
    near(kernels.gated(x, kernels.pack_gated(gate, up)), expected, 1e-4)


@needs_kernels
def test_a_gate_that_saturates(kernels: KernelOperations) -> None:
    weight = torch.eye(32).bfloat16()
    x = torch.tensor([-1e4, -90.0, -87.0, 0.0, 87.0, 90.0, 1e4, torch.nan]).repeat(4).bfloat16()[None]
    expected = torch.nn.functional.silu(x.float()) * x.float()
    near(kernels.gated(x.nan_to_num(), kernels.pack_gated(weight, weight)), expected.nan_to_num())
    spoiled = kernels.gated(x, kernels.pack_gated(torch.ones(32, 32), torch.ones(32, 32)))
    assert bool(spoiled.isnan().all())


@needs_kernels
@pytest.mark.parametrize("shape", [(64, 32), (301, 96), (1, 64)])
def test_packing_loses_nothing(kernels: KernelOperations, shape: tuple[int, int]) -> None:
    weight, gate, up = bf16(*shape), bf16(96, 64, seed=1), bf16(96, 64, seed=2)
    for operations in (kernels, TorchOperations(torch.bfloat16), TorchOperations(torch.bfloat16, prepack=False)):
        assert torch.equal(operations.unpack(operations.pack(weight)), weight)
        assert torch.equal(operations.unpack(operations.pack_head(weight)), weight)
        assert all(map(torch.equal, operations.unpack_gated(operations.pack_gated(gate, up)), (gate, up)))


@needs_kernels
def test_norm(kernels: KernelOperations) -> None:
    x, weight = torch.randn(5, 96) * 30, torch.rand(96)
    near(kernels.norm(x, weight, 1e-5), PLAIN.norm(x, weight, 1e-5))


def empty_pages(heads: Heads, num_pages: int, dtype: torch.dtype) -> LayerPages:
    """Unused places hold NaN where the kernels must not read them; plain torch multiplies them by zero."""
    shape = (heads.num_kv_heads, num_pages)
    fill = torch.nan if dtype == torch.bfloat16 else 0.0
    keys = torch.full((*shape, heads.head_dim, PAGE), fill, dtype=dtype)
    return LayerPages(keys, torch.full((*shape, PAGE, heads.head_dim), fill, dtype=dtype))


@needs_kernels
@given(
    st.lists(
        st.tuples(st.integers(1, 70), st.lists(st.integers(1, 70), min_size=1, max_size=10)), min_size=1, max_size=4
    ),
    st.sampled_from([Heads(9, 3, 16), Heads(2, 2, 32), Heads(5, 1, 48), Heads(4, 1, 64)]),
    st.integers(1, 2),
)
@settings(deadline=None, max_examples=25)
def test_attention_over_shared_and_own_pages(prompts: list[tuple[int, list[int]]], heads: Heads, threads: int) -> None:
    """Any lengths, on either side of page borders; any number of siblings; rows rotated and stored on the way."""
    library = build.load_kernels()
    assert library is not None
    kernels = KernelOperations(library)
    width = (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim
    lengths = [length for length, _ in prompts]
    own = [length for _, siblings in prompts for length in siblings]
    sequences = [*lengths, *own]
    pages = [-(-length // PAGE) for length in sequences]
    starts = torch.tensor([0, *pages]).cumsum(0)
    numbers = torch.randperm(int(starts[-1]), generator=torch.Generator().manual_seed(0)).int()
    table = torch.zeros(len(sequences), max(pages), dtype=torch.int32)
    for row, count in enumerate(pages):
        table[row, :count] = numbers[starts[row] : starts[row + 1]]
    plan = DecodePlan(
        prompt_of_row=torch.tensor([j for j, (_, siblings) in enumerate(prompts) for _ in siblings]).int(),
        prompt_pages=table[: len(lengths)].contiguous(),
        prompt_lengths=torch.tensor(lengths).int(),
        own_pages=table[len(lengths) :].contiguous(),
        own_lengths=torch.tensor(own).int(),
    )
    places = [torch.arange(length) for length in sequences]
    slots = torch.cat([table[row][place // PAGE].long() * PAGE + place % PAGE for row, place in enumerate(places)])
    qkv = torch.randn(len(slots), width, generator=torch.Generator().manual_seed(1)) * 2
    angles = torch.cat(places).float()[:, None] / torch.arange(1, heads.head_dim // 2 + 1)
    plain_pages = empty_pages(heads, int(starts[-1]), torch.float32)
    kernel_pages = empty_pages(heads, int(starts[-1]), torch.bfloat16)
    plain_rows, kernel_rows = qkv.clone(), qkv.clone()
    torch.set_num_threads(threads)
    PLAIN.rotate_and_store(plain_rows, (angles.cos(), angles.sin()), heads, plain_pages, slots)
    kernels.rotate_and_store(kernel_rows, (angles.cos(), angles.sin()), heads, kernel_pages, slots)
    found = kernels.attend(kernel_rows[-len(own) :].contiguous(), heads, kernel_pages, plan)
    torch.set_num_threads(1)
    near(kernel_rows, plain_rows)
    stored = LayerPages(kernel_pages.keys.float().nan_to_num(), kernel_pages.values.float().nan_to_num())
    near(stored.keys.bfloat16(), plain_pages.keys)
    near(stored.values.bfloat16(), plain_pages.values)
    near(found, PLAIN.attend(kernel_rows[-len(own) :].contiguous(), heads, stored, plan), 1e-4)


@needs_kernels
def test_results_do_not_depend_on_the_number_of_threads(kernels: KernelOperations) -> None:
    x, weight = bf16(100, 96), bf16(301, 96, seed=1)
    one = kernels.project(x, kernels.pack(weight))
    torch.set_num_threads(2)
    two = kernels.project(x, kernels.pack(weight))
    torch.set_num_threads(1)
    assert torch.equal(one, two)


SHAPE = LlamaShape(301, 96, 160, 2, 6, 2, 16, 1e-5, Rotation((1.0,) * 8), 96, tied=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": 100}, "hidden_size gives 100"),
        ({"intermediate_size": 100}, "intermediate_size gives 100"),
        ({"head_dim": 24, "num_heads": 4}, "head_dim is 24"),
        ({"num_heads": 130, "num_kv_heads": 1}, "64 query heads"),
    ],
)
def test_shapes_the_kernels_cannot_tile_are_refused(change: dict[str, Any], sentence: str) -> None:
    assert refusal(SHAPE) is None
    assert sentence in str(refusal(dataclasses.replace(SHAPE, **change)))


def test_without_a_compiler_the_engine_says_so_and_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tied: Path
) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    build.load_kernels.cache_clear()
    engine = TorchEngine(tied, dtype="bfloat16")
    build.load_kernels.cache_clear()
    assert isinstance(engine._model.operations, TorchOperations)
    assert "without compiled kernels, at about half the speed: /no/such/compiler did not run" in caplog.text
    assert build.prepare_kernels().startswith("The embedded engine runs without compiled kernels: /no/such/compiler")


def test_a_compiler_that_fails_is_reported_by_its_first_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\n[ "$1" = -dumpfullversion ] && exit 0\necho "no such header" >&2; exit 3\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("POSTTRAIN_CACHE", str(tmp_path / "cache"))
    assert build.prepare_kernels().endswith("failed with exit code 3: no such header.")
    assert not list((tmp_path / "cache").rglob("*.so"))


@needs_kernels
def test_kernels_are_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSTTRAIN_CACHE", str(tmp_path))
    assert "were built" in build.prepare_kernels()
    (library,) = tmp_path.rglob("*.so")
    built = library.stat().st_mtime_ns
    assert "are ready" in build.prepare_kernels()
    assert library.stat().st_mtime_ns == built


def test_a_processor_without_bfloat16_products_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Unfit:
        def probe(self) -> int:
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda path: Unfit())
    with pytest.raises(build.KernelsUnavailableError, match="no bfloat16 products"):
        build._load(tmp_path / "decode.so")
