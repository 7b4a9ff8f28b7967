"""Instructions of blocks, warps and tensor cores, narrow types and asynchronous copies against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from emulator.fixtures import intrinsic, read, written
from kernelmark.bench.emulator.worker import Buffer, Launch


def test_barriers_count_and_combine_predicates() -> None:
    x = np.arange(-40, 56, dtype=np.int32)
    launch = Launch("reducing_barriers", 1, 96, ("x", "out"))
    out = intrinsic("block.cu", launch, {"x": read(x), "out": written(3 * 96, np.int32)})["out"].reshape(3, 96)
    assert (out[0] == (x > 0).sum()).all()
    assert (out[1] == 1).all()
    assert (out[2] == 1).all()


def test_blocks_and_grids_have_three_dimensions() -> None:
    launch = Launch("geometry", (3, 2, 4), (5, 3, 2), ("out",))
    out = intrinsic("block.cu", launch, {"out": written(24 * 30, np.int32)})["out"]
    bz, by, bx, tz, ty, tx = np.indices((4, 2, 3, 2, 3, 5))
    want = tx + 10 * ty + 100 * tz + 1000 * bx + 10000 * by + 100000 * bz
    assert np.array_equal(out, want.ravel())


def test_static_dynamic_and_constant_memory_hold_what_was_put_there() -> None:
    x, factors = np.arange(48, dtype=np.float64), np.array([1, 2, 3, 4], np.float32)
    launch = Launch("memories<double, 48>", 1, 48, ("x", "out"), shared_bytes=48 * 8)
    buffers = {"x": read(x), "out": written(48, np.float64)}
    out = intrinsic("block.cu", launch, buffers, constants={"factors": factors})["out"]
    want = (x * np.resize(factors, 48))[::-1] + np.resize([10, 20, 30, 40], 48)
    assert np.array_equal(out, want)


def test_vector_types_have_the_layout_of_their_elements() -> None:
    x, y = np.arange(32, dtype=np.float32).reshape(8, 4), np.arange(16, dtype=np.float32).reshape(8, 2)
    launch = Launch("vectors", 1, 8, ("x", "y", "out"))
    out = intrinsic("block.cu", launch, {"x": read(x), "y": read(y), "out": written(32)})["out"].reshape(8, 4)
    assert np.array_equal(out, x + np.pad(y, ((0, 0), (0, 2))))


def test_grid_barrier_keeps_shared_memory_and_registers_of_every_block() -> None:
    x = np.arange(1, 6, dtype=np.int32)
    launch = Launch("ring", 5, 64, ("x", "cells", "out", 3), cooperative=True)
    buffers = {"x": read(x), "cells": Buffer("scratch", np.zeros(5, np.int32)), "out": written(5 * 64, np.int32)}
    out = intrinsic("block.cu", launch, buffers)["out"].reshape(5, 64)
    assert np.array_equal(out, np.repeat((np.roll(x, -3) * 100 + x)[:, None], 64, axis=1))


LANES = np.arange(32)
X = np.random.default_rng(1).integers(-99, 100, 32).astype(np.int32)


def test_shuffles_move_lanes_within_their_segments() -> None:
    buffers = {"x": read(X), "out": written(8 * 32, np.int32)}
    out = intrinsic("warp.cu", Launch("shuffles", 1, 32, ("x", "out")), buffers)["out"].reshape(8, 32)
    segment = LANES // 8 * 8
    sources = [np.full(32, 5), segment + (LANES + 3) % 8]
    sources += [np.where(LANES >= 3, LANES - 3, LANES), np.where(LANES + 3 < 32, LANES + 3, LANES), LANES ^ 9]
    sources += [np.where(LANES % 8 >= 2, LANES - 2, LANES), np.where(LANES % 8 + 2 < 8, LANES + 2, LANES), LANES ^ 16]
    assert np.array_equal(out, X[np.array(sources)])


def test_votes_and_reductions_see_every_lane_of_the_mask() -> None:
    out = intrinsic("warp.cu", Launch("votes", 1, 32, ("x", "out")), {"x": read(X), "out": written(9 * 32, np.uint32)})
    got = out["out"].reshape(9, 32)
    remainder = np.fmod(X, 4)
    match = [(1 << np.flatnonzero(remainder == r)).sum() for r in remainder]
    low = np.where(LANES < 16, (1 << np.flatnonzero(X[:16] > 0)).sum(), 0)
    want = [(1 << np.flatnonzero(X > 0)).sum(), int((X > 90).any()), 1, match]
    want += [X.sum(), X.min(), X.max(), np.bitwise_xor.reduce(X), low]
    for row, expected in zip(got, want, strict=True):
        assert np.array_equal(row, np.broadcast_to(expected, 32).astype(np.int64).astype(np.uint32))


def test_atomics_lose_no_update_between_blocks() -> None:
    cells = np.zeros(40, np.int32)
    cells[4] = 0xFF
    buffers = {"cells": Buffer("inout", cells), "wrapped": Buffer("inout", np.zeros(2, np.uint32))}
    out = intrinsic("warp.cu", Launch("atomics", 1, 32, ("cells", "wrapped")), buffers)
    total = LANES.sum()
    want = [total, -total, -31, 31, 0, 0xFF, 3, 77, *[1] * 32]
    assert out["cells"].tolist() == want
    assert out["wrapped"].tolist() == [32 % 10, (-32) % 10]


def test_funnel_shifts_move_at_most_32_bits() -> None:
    low, high = np.random.default_rng(2).integers(0, 2**32, (2, 64), np.uint64)
    buffers = {"low": read(low.astype(np.uint32)), "high": read(high.astype(np.uint32)), "out": written(128, np.uint32)}
    out = intrinsic("warp.cu", Launch("funnel_shifts", 1, 64, ("low", "high", "out")), buffers)["out"].reshape(2, 64)
    by = np.minimum(np.arange(64, dtype=np.uint64) - np.uint64(1), 32).astype(np.uint64)
    both = high << np.uint64(32) | low
    assert np.array_equal(out[0], (both << by >> np.uint64(32)).astype(np.uint32))
    assert np.array_equal(out[1], (both >> by).astype(np.uint32))


RNG = np.random.default_rng(11)
TYPES = {"__half": np.float16, "__nv_bfloat16": ml_dtypes.bfloat16}


def _matrix(rows: int, cols: int, dtype: Any) -> np.ndarray:
    return (RNG.integers(-8, 9, (rows, cols)) / 4).astype(dtype)


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
    buffers = {"a": read(a.view(np.uint16)), "b": read(b.view(np.uint16)), "c": written(128)}
    out = intrinsic("tensor.cu", Launch("mma_bf16", 1, 32, ("a", "b", "c")), buffers)["c"]
    assert np.array_equal(out.reshape(16, 8), _product(a, b))


def test_mma_s8_over_its_whole_range_wraps_around() -> None:
    a, b = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 32), (32, 8)))
    a[3], b[:, 5], b[:, 6] = -128, -128, 127
    buffers = {"a": read(a), "b": read(b), "c": written(128, np.int32)}
    out = intrinsic("tensor.cu", Launch("mma_s8", 1, 32, ("a", "b", "c")), buffers)
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
@pytest.mark.parametrize("kind", TYPES)
def test_wmma_takes_all_shapes_and_layouts(shape: tuple[int, int, int], layouts: tuple[str, str], kind: str) -> None:
    m, n, k = shape
    _check_wmma(kind, m, n, k, layouts, _matrix(m, k, TYPES[kind]), _matrix(k, n, TYPES[kind]), np.uint16)


def test_wmma_tf32_truncates_its_operands() -> None:
    a, b = (RNG.uniform(-1, 1, shape).astype(np.float32) for shape in ((16, 8), (8, 16)))
    _check_wmma("nvcuda::wmma::precision::tf32", 16, 16, 8, ("row", "col"), a, b, np.float32)


def _check_wmma(kind, m, n, k, layouts, a, b, storage) -> None:
    names = [f"nvcuda::wmma::{layout}_major" for layout in layouts]
    stored = [x if layout == "row" else x.T for x, layout in zip((a, b), layouts, strict=True)]
    lda, ldb = (x.shape[1] for x in stored)
    launch = Launch(f"wmma<{kind}, {m}, {n}, {k}, {names[0]}, {names[1]}>", 1, 32, ("a", "b", "c", lda, ldb))
    buffers = {name: read(np.ascontiguousarray(x).view(storage)) for name, x in zip("ab", stored, strict=True)}
    out = intrinsic("tensor.cu", launch, {**buffers, "c": written(m * n)})["c"]
    if storage is np.float32:
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    assert np.array_equal(out.reshape(n, m).T, _product(a, b).astype(np.float32))


@pytest.mark.parametrize("nbytes", [0, 4, 12, 16])
def test_async_copies_land_and_fill_up_with_zeros(nbytes: int) -> None:
    x = np.arange(1, 129, dtype=np.float32)
    launch = Launch("copies", 1, 32, ("x", "out", nbytes))
    out = intrinsic("tensor.cu", launch, {"x": read(x), "out": written(384)})["out"].reshape(3, 128)
    cut = np.where(np.arange(128) % 4 < nbytes // 4, x, 0)
    assert np.array_equal(out, np.stack([x, x, cut])[:, ::-1])


ALL = np.arange(65536, dtype=np.uint16)
ONCE = {"orders": ("forward",)}


def _same(got: np.ndarray, want: np.ndarray) -> bool:
    """Return whether the bits are equal; all NaNs count as equal."""
    nan = np.isnan(want.astype(np.float32))
    bits = np.array_equal(got[~nan].view(np.uint16), want[~nan].view(np.uint16))
    return bits and bool(np.isnan(got[nan].astype(np.float32)).all())


@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
def test_widening_is_exact_for_all_65536_values(name: str, dtype: Any) -> None:
    x = ALL.view(dtype)
    launch = Launch(f"widen<{name}>", 1, 32, ("x", "out", x.size))
    out = intrinsic("narrow.cu", launch, {"x": read(x), "out": written(x.size)}, **ONCE)["out"]
    assert np.array_equal(out, x.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
@pytest.mark.parametrize(("source", "wide"), [("float", np.float32), ("double", np.float64)])
def test_rounding_is_to_nearest_even(name: str, dtype: Any, source: str, wide: Any) -> None:
    with np.errstate(all="ignore"):
        exact = ALL.view(dtype).astype(np.float32).astype(wide)
        between = (exact[:-1] + exact[1:]) / 2  # ties; their neighbours are added below
        x = np.concatenate([exact, between, np.nextafter(between, wide(np.inf)), np.nextafter(between, wide(-np.inf))])
        x = np.append(x, np.array([65519.996, 65520.0, 3.4e38, 1e-8, -1e-30], wide)).astype(wide)
        want = x.astype(dtype) if wide is np.float32 or dtype is np.float16 else _round_once(x)
    launch = Launch(f"round_to<{name}, {source}>", 1, 32, ("x", "out", x.size))
    out = intrinsic("narrow.cu", launch, {"x": read(x), "out": written(x.size, np.uint16)}, **ONCE)["out"]
    assert _same(out.view(dtype), want)


def _round_once(x: np.ndarray) -> np.ndarray:
    """Return the bfloat16 nearest to each double. ml_dtypes converts to float first, and so rounds twice."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = (near.astype(np.float64) != x) & np.isfinite(near)
    away = inexact & (np.abs(near.astype(np.float64)) > np.abs(x))
    odd = np.where(inexact, (bits - away) | 1, bits).astype(np.uint32)
    return odd.view(np.float32).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
def test_arithmetic_rounds_the_exact_result_once(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    x, y, z = (rng.integers(0, 65536, 5000, np.uint16).view(dtype) for _ in range(3))
    launch = Launch(f"arithmetic<{name}>", 1, 32, ("x", "y", "z", "out", x.size))
    buffers = {"x": read(x), "y": read(y), "z": read(z), "out": written(7 * x.size, np.uint16)}
    out = intrinsic("narrow.cu", launch, buffers, **ONCE)["out"].view(dtype).reshape(7, -1)
    a, b, c = (v.astype(np.float32) for v in (x, y, z))
    with np.errstate(all="ignore"):
        fused = a.astype(np.float64) * b + c
        wanted = [result.astype(dtype) for result in (a + b, a - b, a * b, a / b)]
        wanted.append(fused.astype(dtype) if dtype is np.float16 else _round_once(fused))
        wanted += [np.fmax(a, b).astype(dtype), -np.abs(x)]
    for got, want in zip(out, wanted, strict=True):
        assert _same(got, want)


def test_pairs_compute_both_halves() -> None:
    x, y = np.random.default_rng(2).integers(-8, 9, (2, 64)).astype(np.float16)
    inputs = {"x": read(x.view(np.uint32)), "y": read(y.view(np.uint32))}
    buffers = {**inputs, "out": written(32, np.uint32), "wide": written(64)}
    out = intrinsic("narrow.cu", Launch("pairs", 1, 32, ("x", "y", "out", "wide")), buffers)
    swapped = x.reshape(-1, 2)[:, ::-1].ravel()
    assert np.array_equal(out["out"].view(np.float16), x * y + swapped)
    assert np.array_equal(out["wide"], (x + y).astype(np.float32))
