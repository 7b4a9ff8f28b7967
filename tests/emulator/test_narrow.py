"""Half and bfloat16 against NumPy and ml_dtypes, bit by bit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from emulator.fixtures import intrinsic, read, written
from kernelmark.bench.emulator.worker import Buffer, Launch

TYPES = [
    pytest.param("__half", np.float16, id="half"),
    pytest.param("__nv_bfloat16", ml_dtypes.bfloat16, id="bfloat16"),
]
ONCE = {"orders": ("forward",)}


def _all(dtype: Any) -> np.ndarray:
    return np.arange(65536, dtype=np.uint16).view(dtype)


def _buffer(x: np.ndarray) -> Buffer:
    return Buffer("in", np.ascontiguousarray(x))


def _same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits, any NaN being as good as another."""
    nan = np.isnan(want.astype(np.float32))
    bits = np.array_equal(got[~nan].view(np.uint16), want[~nan].view(np.uint16))
    return bits and bool(np.isnan(got[nan].astype(np.float32)).all())


@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_widening_is_exact_for_all_65536_values(name: str, dtype: Any) -> None:
    x = _all(dtype)
    launch = Launch(f"widen<{name}>", 1, 32, ("x", "out", x.size))
    out = intrinsic("narrow.cu", launch, {"x": _buffer(x), "out": written(x.size)}, **ONCE)["out"]
    assert np.array_equal(out, x.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), TYPES)
@pytest.mark.parametrize(("source", "wide"), [("float", np.float32), ("double", np.float64)])
def test_rounding_is_to_nearest_even(name: str, dtype: Any, source: str, wide: Any) -> None:
    with np.errstate(all="ignore"):
        exact = _all(dtype).astype(np.float32).astype(wide)
        between = (exact[:-1] + exact[1:]) / 2  # ties, and their neighbours on both sides
        x = np.concatenate([exact, between, np.nextafter(between, wide(np.inf)), np.nextafter(between, wide(-np.inf))])
        x = np.append(x, np.array([65519.996, 65520.0, 3.4e38, 1e-8, -1e-30], wide)).astype(wide)
        want = x.astype(dtype) if wide is np.float32 or dtype is np.float16 else _round_once(x)
    launch = Launch(f"round_to<{name}, {source}>", 1, 32, ("x", "out", x.size))
    out = intrinsic("narrow.cu", launch, {"x": read(x), "out": written(x.size, np.uint16)}, **ONCE)["out"]
    assert _same(out.view(dtype), want)


def _round_once(x: np.ndarray) -> np.ndarray:
    """bfloat16 nearest to a double: ml_dtypes goes by way of float, which rounds twice."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = (near.astype(np.float64) != x) & np.isfinite(near)
    away = inexact & (np.abs(near.astype(np.float64)) > np.abs(x))
    odd = np.where(inexact, (bits - away) | 1, bits).astype(np.uint32)
    return odd.view(np.float32).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_arithmetic_rounds_the_exact_result_once(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    x, y, z = (rng.integers(0, 65536, 5000, np.uint16).view(dtype) for _ in range(3))
    launch = Launch(f"arithmetic<{name}>", 1, 32, ("x", "y", "z", "out", x.size))
    buffers = {"x": _buffer(x), "y": _buffer(y), "z": _buffer(z), "out": written(7 * x.size, np.uint16)}
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
