"""Wrong transforms, transpositions, copies and register sums."""

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.selftest.wrong.library import (
    ALL,
    Family,
    Inputs,
    Spoil,
    Wrong,
    flip_bit,
    flip_tile,
    nearest,
    put,
    scale,
    swap,
)

FFT, REAL = "fft/b8h32w32/f32/c2c", "fft/b8h1w1000/f32/r2c"
TRANSPOSE, IN_PLACE, HALF = "transpose/m513n300/f32/out", "transpose/m300n513/f32/in", "transpose/m256n256/bf16/out"
COPY, FMA = "copy/m513n300/f32", "fma/n4096k300/f32"
TRANSFER = "transfer/n153900/f32/h2h"


def reference(problem: Problem, inputs: Inputs) -> Array:
    """Return the values of the operation's reference in float64; for a transfer, those of `b`, its only output."""
    outputs = problem.reference(inputs, np.random.default_rng(0))
    return np.asarray(outputs["b"] if isinstance(outputs, dict) else getattr(outputs, "values", outputs), np.float64)


def _conjugated(y: Array, _inputs: Inputs, _rng: "np.random.Generator") -> None:
    y[..., 1] *= -1


def _rounded_operands(bits: int) -> Spoil:
    def spoil(y: Array, inputs: Inputs, _rng: "np.random.Generator") -> Array:
        x = nearest(bits)(inputs["x"]).view(np.complex128)[..., 0]
        return np.fft.fft2(x, axes=(1, 2)).view(np.float64).reshape(y.shape)

    return spoil


def _elements_exchanged(b: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    swap(0)(b.reshape(-1), {}, rng)


def accumulators_exchanged(d: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    """Exchange two random accumulators whose values differ; many accumulators have equal values."""
    i = int(rng.integers(d.size))
    j = int(rng.choice(np.flatnonzero(d != d[i])))
    d[[i, j]] = d[[j, i]]


def _one_step_less(d: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    d -= float(np.floor(2 * inputs["a"][0, 0]) / 2 + 0.25) * float(np.floor(2 * inputs["b"][0, 0]) / 2 + 0.25)


MOVES = Family(
    reference,
    (
        Wrong("two frequencies exchanged", FFT, swap(2)),
        Wrong("two transforms exchanged", FFT, swap(0)),
        Wrong("inverse instead of forward transform", FFT, _conjugated),
        Wrong("divided by the number of points", FFT, scale(1 / 1024, ALL)),
        Wrong("an element set to 0", FFT, put(0.0, None, None, None)),
        Wrong("operands of 11 bits (TF32)", FFT, _rounded_operands(11)),
        Wrong("operands of 19 bits", FFT, _rounded_operands(19)),
        Wrong("all larger by a thousandth", FFT, scale(1.001, ALL)),
        Wrong("last frequency not written", REAL, put(np.nan, ALL, ALL, -1)),
        Wrong("the last two frequencies equal", REAL, lambda y, _i, _r: y.__setitem__((..., -1, ALL), y[..., -2, :])),
        Wrong("a tile not transposed", TRANSPOSE, flip_tile(32)),
        Wrong("last row not written", TRANSPOSE, put(np.nan, -1)),
        Wrong("a bit flipped", HALF, flip_bit("bf16")),
        Wrong("last element not written", COPY, put(np.nan, -1, -1)),
        Wrong("last element not written", TRANSFER, put(np.nan, -1)),
        Wrong("a chunk overwritten by another", TRANSFER, lambda b, _i, _r: b.__setitem__(slice(4096, 8192), b[:4096])),
        *(Wrong("a bit flipped", moved, flip_bit("f32")) for moved in (TRANSPOSE, IN_PLACE, COPY, TRANSFER)),
        *(
            Wrong("two elements exchanged", moved, _elements_exchanged)
            for moved in (TRANSPOSE, IN_PLACE, COPY, TRANSFER)
        ),
        Wrong("one step left out", FMA, _one_step_less),
        Wrong("two accumulators exchanged", FMA, accumulators_exchanged),
        Wrong("an accumulator not written", FMA, put(np.nan, None)),
    ),
)
