"""Tensor-core instructions and cp.async against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from emulator.fixtures import intrinsic, read, written
from kernelmark.bench.emulator.worker import Launch

RNG = np.random.default_rng(11)


def _matrix(rows: int, cols: int, dtype: Any) -> np.ndarray:
    return (RNG.integers(-8, 9, (rows, cols)) / 4).astype(dtype)


def _bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint16)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


def test_mma_f16_with_accumulators_of_32_and_16_bits() -> None:
    a, b = _matrix(16, 16, np.float16), _matrix(16, 8, np.float16)
    buffers = {"a": read(a), "b": read(b), "c": written(128), "c16": written(128, np.uint16)}
    out = intrinsic("tensor.cu", Launch("mma_f16", 1, 32, ("a", "b", "c", "c16")), buffers)
    assert np.array_equal(out["c"].reshape(16, 8), _product(a, b) + 1)
    assert np.array_equal(out["c16"].view(np.float16).reshape(16, 8), _product(a, b).astype(np.float16))


def test_mma_bf16() -> None:
    a, b = _matrix(16, 16, ml_dtypes.bfloat16), _matrix(16, 8, ml_dtypes.bfloat16)
    buffers = {"a": read(_bits(a)), "b": read(_bits(b)), "c": written(128)}
    out = intrinsic("tensor.cu", Launch("mma_bf16", 1, 32, ("a", "b", "c")), buffers)["c"]
    assert np.array_equal(out.reshape(16, 8), _product(a, b))


def test_mma_s8_over_its_whole_range_wraps_around() -> None:
    a, b = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 32), (32, 8)))
    a[3], b[:, 5], b[:, 6] = -128, -128, 127
    out = intrinsic(
        "tensor.cu", Launch("mma_s8", 1, 32, ("a", "b", "c")), {"a": read(a), "b": read(b), "c": written(128, np.int32)}
    )
    exact = a.astype(np.int64) @ b.astype(np.int64) + 2**31 - 1
    assert exact.max() > 2**31
    assert np.array_equal(out["c"].reshape(16, 8), exact.astype(np.int32))


@pytest.mark.parametrize("rounded", [False, True])
def test_mma_tf32_drops_13_bits_unless_they_are_rounded_before(rounded: bool) -> None:
    a, b = (RNG.uniform(-1, 1, shape).astype(np.float32) for shape in ((16, 8), (8, 8)))
    half = np.uint32(0x1000 if rounded else 0)
    a32, b32 = (((x.view(np.uint32) + half) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    buffers = {"a": read(a), "b": read(b), "c": written(128)}
    out = intrinsic("tensor.cu", Launch(f"mma_tf32<{str(rounded).lower()}>", 1, 32, ("a", "b", "c")), buffers)["c"]
    assert np.array_equal(out.reshape(16, 8), _product(a32, b32).astype(np.float32))


def test_mma_f64_of_16_and_of_8_rows_keeps_53_bits() -> None:
    a, b = _matrix(16, 4, np.float64), _matrix(4, 8, np.float64)
    a[3, 2], b[2, 5] = 1 + 2.0**-40, 2.0
    buffers = {"a": read(a), "b": read(b), "c": written(128, np.float64), "twice": written(128, np.float64)}
    out = intrinsic("tensor.cu", Launch("mma_f64", 1, 32, ("a", "b", "c", "twice")), buffers)
    for c in (out["c"], out["twice"]):
        assert np.array_equal(c.reshape(16, 8), _product(a, b) + 1)


def test_ldmatrix_deals_rows_to_lanes_as_the_isa_draws_it() -> None:
    x = RNG.integers(0, 65536, (4, 8, 8), np.uint16)
    buffers = {"x": read(x), "out": written(32 * 14, np.uint32)}
    out = intrinsic("tensor.cu", Launch("ldmatrix", 1, 32, ("x", "out")), buffers)["out"].reshape(32, 14)
    plain = x.reshape(4, 8, 4, 2).astype(np.uint32)
    turned = x.transpose(0, 2, 1).reshape(4, 8, 4, 2).astype(np.uint32)
    straight, trans = ((m[..., 0] | m[..., 1] << 16).reshape(4, 32).T for m in (plain, turned))
    want = [straight, trans, straight[:, :2], trans[:, :2], straight[:, :1], trans[:, :1]]
    assert np.array_equal(out, np.hstack(want))


@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 8, 16), (8, 32, 16)], ids=str)
@pytest.mark.parametrize("layouts", [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")], ids="-".join)
@pytest.mark.parametrize("kind", ["__half", "__nv_bfloat16"])
def test_wmma_takes_all_shapes_and_layouts(shape: tuple[int, int, int], layouts: tuple[str, str], kind: str) -> None:
    m, n, k = shape
    dtype = np.float16 if kind == "__half" else ml_dtypes.bfloat16
    _check_wmma(kind, m, n, k, layouts, _matrix(m, k, dtype), _matrix(k, n, dtype), np.uint16)


def test_wmma_tf32_truncates_its_operands() -> None:
    a, b = (RNG.uniform(-1, 1, shape).astype(np.float32) for shape in ((16, 8), (8, 16)))
    _check_wmma("nvcuda::wmma::precision::tf32", 16, 16, 8, ("row", "col"), a, b, np.float32)


def _check_wmma(
    kind: str, m: int, n: int, k: int, layouts: tuple[str, str], a: np.ndarray, b: np.ndarray, storage: Any
) -> None:
    names = [f"nvcuda::wmma::{layout}_major" for layout in layouts]
    stored = [x if layout == "row" else x.T for x, layout in zip((a, b), layouts, strict=True)]
    lda, ldb = (x.shape[1] for x in stored)
    launch = Launch(f"wmma<{kind}, {m}, {n}, {k}, {names[0]}, {names[1]}>", 1, 32, ("a", "b", "c", lda, ldb))
    buffers = {name: read(np.ascontiguousarray(x).view(storage)) for name, x in zip("ab", stored, strict=True)}
    out = intrinsic("tensor.cu", launch, {**buffers, "c": written(m * n)})["c"]
    if storage is np.float32:
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    assert np.array_equal(out.reshape(n, m).T, _product(a, b).astype(np.float32))


@pytest.mark.parametrize("kept", [0, 4, 12, 16])
def test_async_copies_land_and_fill_up_with_zeros(kept: int) -> None:
    x = np.arange(1, 129, dtype=np.float32)
    launch = Launch("copies", 1, 32, ("x", "out", kept))
    out = intrinsic("tensor.cu", launch, {"x": read(x), "out": written(384)})["out"].reshape(3, 128)
    cut = np.where(np.arange(128) % 4 < kept // 4, x, 0)
    assert np.array_equal(out, np.stack([x, x, cut])[:, ::-1])
