"""Products in a worse arithmetic than the declared one, at short and long reductions."""

from collections.abc import Callable

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.selftest.wrong.gemm import exact
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong

LENGTHS = (16, 256, 1024, 4096, 26752)
Rounded = Callable[[Array], Array]


def nearest(bits: int) -> Rounded:
    """Return what rounds to the nearest number of `bits` bits."""
    return _to_bits(bits, np.round)


def truncated(bits: int) -> Rounded:
    """Return what cuts numbers off after `bits` bits, as tensor cores do with TF32."""
    return _to_bits(bits, np.trunc)


def _to_bits(bits: int, whole: Callable[[Array], Array]) -> Rounded:
    def rounded(values: Array) -> Array:
        mantissa, exponent = np.frexp(values.astype(np.float64))
        found: Array = np.ldexp(whole(np.ldexp(mantissa, bits)), exponent - bits)
        return found

    return rounded


def operands(rounded: Rounded) -> Spoil:
    """Return what rounds the operands before they are multiplied."""
    return lambda _c, inputs, _rng: rounded(inputs["a"]) @ rounded(inputs["b"])


def sums(chunk: int, rounded: Rounded) -> Spoil:
    """Return what rounds sums of `chunk` products, and adds these up exactly."""

    def spoil(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> Array:
        a, b = (inputs[name].astype(np.float64) for name in "ab")
        found = np.zeros_like(c)
        for start in range(0, a.shape[1], chunk):
            found += rounded(a[:, start : start + chunk] @ b[start : start + chunk])
        return found

    return spoil


def chain(step: int, rounded: Rounded) -> Spoil:
    """Return what rounds the running sum after every `step` products."""

    def spoil(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> Array:
        a, b = (inputs[name].astype(np.float64) for name in "ab")
        found = np.zeros_like(c)
        for start in range(0, a.shape[1], step):
            found = rounded(found + a[:, start : start + step] @ b[start : start + step])
        return found

    return spoil


def unpromoted(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> Array:
    """Add all products as Hopper adds those of FP8, 32 at a time: each and the sum with 14 bits (dtypes.py)."""
    a, b = (inputs[name].astype(np.float64) for name in "ab")
    found = np.zeros((*c.shape, 1))
    for start in range(0, a.shape[1], 32):
        products = a[:, None, start : start + 32] * b[start : start + 32].T
        terms = np.concatenate([found, products], axis=2)
        unit = np.exp2(np.frexp(abs(terms).max(axis=2, keepdims=True))[1] - 14)
        found = np.floor(terms / unit).sum(axis=2, keepdims=True) * unit
    return found[..., 0]


def _members(k: int) -> tuple[Wrong, ...]:
    f32, f16, fp8, stored = (f"gemm/m48n48k{k}/{dtype}/NN" for dtype in ("f32", "f16.f32", "e4m3.f32", "f16"))
    seen = 0.99 if k < 20000 else None  # where right chains of so many roundings err as much
    return (
        Wrong("operands of 8 bits (BF16)", f32, operands(nearest(8)), "tf32"),
        Wrong("operands of 11 bits (TF32)", f32, operands(nearest(11)), "3xtf32"),
        Wrong("operands of 11 bits, truncated (TF32)", f32, operands(truncated(11)), "fp32"),
        Wrong("operands of 17 bits", f32, operands(nearest(17)), "fp32", seen),
        Wrong("sums of 16 products in FP16", f16, sums(16, nearest(11)), "f16", seen),
        *([Wrong("FP8 sums that are not promoted", fp8, unpromoted, "e4m3")] if 16 < k < 20000 else []),
        # A single sum of 16 products is rounded to FP16 once, as the result of a right one is when it is stored.
        Wrong("sums of 16 products in FP16", stored, sums(16, nearest(11)), "f16", seen if k > 16 else None),
        Wrong("one chain in FP16", f16, chain(1, nearest(11)), "f16"),
    )


ARITHMETIC = Family(exact, tuple(wrong for k in LENGTHS for wrong in _members(k)))
