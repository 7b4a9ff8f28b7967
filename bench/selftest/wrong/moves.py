"""Wrong transforms, transpositions, copies and register sums."""

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.selftest.wrong.arithmetic import nearest
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Wrong, flip_bit, put, scale, swap

FFT, REAL = "fft/b8h32w32/f32/c2c", "fft/b8h1w1000/f32/r2c"
TRANSPOSE, IN_PLACE, HALF = "transpose/m513n300/f32/out", "transpose/m300n513/f32/in", "transpose/m256n256/bf16/out"
COPY, FMA = "copy/m513n300/f32", "fma/n4096k300/f32"
TRANSFER = "transfer/n153900/f32/h2h"


def reference(problem: Problem, inputs: Inputs) -> Array:
    """The operation's own reference, which is the whole result; of a transfer, that of its one output."""
    found = problem.reference(inputs, np.random.default_rng(0))
    return np.asarray(found["b"] if isinstance(found, dict) else found, np.float64)


def complex_numbers(values: Array) -> Array:
    """A view of the complex numbers that real and imaginary parts make."""
    found: Array = values.view(np.complex128)[..., 0]
    return found


def conjugated(y: Array, _inputs: Inputs, _rng: "np.random.Generator") -> None:
    """The sign in the exponent is the wrong one."""
    x = np.conj(complex_numbers(y))
    complex_numbers(y)[...] = x


def coarse_operands(_y: Array, inputs: Inputs, _rng: "np.random.Generator") -> Array:
    """The operands are rounded to TF32 first."""
    return np.fft.fft2(complex_numbers(nearest(11)(inputs["x"])), axes=(1, 2)).view(np.float64).reshape(_y.shape)


def tile_not_transposed(b: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    """A tile of 32 x 32 stands at its place and is not transposed itself."""
    i, j = (32 * int(rng.integers(n // 32)) for n in b.shape)
    b[i : i + 32, j : j + 32] = b[i : i + 32, j : j + 32].T.copy()


def elements_exchanged(b: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    """Two elements of the buffer are exchanged."""
    i, j = rng.choice(b.size, 2, replace=False)
    flat = b.reshape(-1)
    flat[[i, j]] = flat[[j, i]]


def accumulators_exchanged(d: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    """Two accumulators are exchanged that differ: many are equal, since starting values are coarse."""
    i = int(rng.integers(d.size))
    j = int(rng.choice(np.flatnonzero(d != d[i])))
    d[[i, j]] = d[[j, i]]


def one_step_less(d: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """The last product is not added."""
    d -= float(np.floor(2 * inputs["a"][0, 0]) / 2 + 0.25) * float(np.floor(2 * inputs["b"][0, 0]) / 2 + 0.25)


ALL = slice(None)
MOVES = Family(
    reference,
    (
        Wrong("two frequencies exchanged", FFT, swap(2)),
        Wrong("two transforms exchanged", FFT, swap(0)),
        Wrong("inverse for forward", FFT, conjugated),
        Wrong("divided by the number of points", FFT, scale(1 / 1024, ALL)),
        Wrong("an element 0", FFT, put(0.0, None, None, None)),
        Wrong("operands of 11 bits (TF32)", FFT, coarse_operands),
        Wrong("all larger by a thousandth", FFT, scale(1.001, ALL)),
        Wrong("last frequency not written", REAL, put(np.nan, ALL, ALL, -1)),
        Wrong("last frequency of the one before", REAL, lambda y, _i, _r: y.__setitem__((..., -1, ALL), y[..., -2, :])),
        Wrong("a bit flipped", TRANSPOSE, flip_bit("f32")),
        Wrong("two elements exchanged", TRANSPOSE, elements_exchanged),
        Wrong("a tile not transposed", TRANSPOSE, tile_not_transposed),
        Wrong("last row not written", TRANSPOSE, put(np.nan, -1)),
        Wrong("two elements exchanged", IN_PLACE, elements_exchanged),
        Wrong("a bit flipped", IN_PLACE, flip_bit("f32")),
        Wrong("a bit flipped", HALF, flip_bit("bf16")),
        Wrong("a bit flipped", COPY, flip_bit("f32")),
        Wrong("two elements exchanged", COPY, elements_exchanged),
        Wrong("last element not written", COPY, put(np.nan, -1, -1)),
        Wrong("a bit flipped", TRANSFER, flip_bit("f32")),
        Wrong("two elements exchanged", TRANSFER, elements_exchanged),
        Wrong("last element not written", TRANSFER, put(np.nan, -1)),
        Wrong("a chunk of another", TRANSFER, lambda b, _i, _r: b.__setitem__(slice(4096, 8192), b[:4096])),
        Wrong("one step left out", FMA, one_step_less),
        Wrong("two accumulators exchanged", FMA, accumulators_exchanged),
        Wrong("an accumulator not written", FMA, put(np.nan, None)),
    ),
)
