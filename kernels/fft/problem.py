"""Batches of discrete Fourier transforms of h x w arrays, complex or real, never normalised."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from kernelmark import (
    DTYPES,
    NUMERICS,
    Array,
    Arrays,
    Bound,
    Changes,
    Checksums,
    Dim,
    Distribution,
    Operand,
    Problem,
    Verdict,
    compare,
    operation,
    sum_bound,
    sum_weights,
    summed,
)

#: The largest error, in units of u log2(2 N) of the result's rms. Over 10^6 outputs and N up to 2^20, correct sums of
#: up to 512 terms by the definition stayed below 6.3, and FFTs below 2.5.
_LARGEST = 8.0
#: The rms error, in units of u sqrt(log2(2 N)). FFTW and pocketfft stayed below 1.3, Bluestein's algorithm with twiddle
#: factors from angles in FP32 below 2.1, sums of 512 terms by the definition at 2.2. Operands of 19 bits give 12 u.
_RMS = 2.5
_BLOCK_ELEMENTS = 2**16
#: The numerics of a sum by the definition of the transform, whose error grows with the root of the number of terms.
_DIRECT = ("dft", "dft64")
_ONE_WAY = {"r2c": "forward", "c2r": "inverse"}


class FftOperands(Protocol):
    """The operands of a set-up: `x` (in) and `y` (out), thread count, stream and scratch.

    A complex array is a real array whose last axis has the real and the imaginary part.
    """

    x: Any
    y: Any
    threads: int
    stream: Any

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def chose(self, **settings: Any) -> None: ...


class Transformed(NamedTuple):
    """The float64 results, and the `size` of each: the rms of a real or imaginary part, from the norm of its input."""

    values: Array
    size: Array


@operation("fft")
class FftProblem(Problem, frozen=True, kw_only=True):
    """b transforms over h and w, one-dimensional if h is 1: y[p,q] = sum of x[i,j] exp(-+2 pi i (ip/h + jq/w)).

    r2c: x (b, h, w) real, y (b, h, w//2+1, 2) its half spectrum. c2c: x and y (b, h, w, 2), `forward` or `inverse`
    (the sign in the exponent). c2r: x (b, h, w//2+1, 2), y (b, h, w) real. Nothing is divided by h w, as with FFTW and
    cuFFT.

    No real array has the half spectra that are drawn for c2r: in columns 0 and (for even w) w/2, rows p and
    h - p are not conjugate. c2r is defined as in NumPy, FFTW and pocketfft: columns are transformed over h, then rows
    over w as if the imaginary parts in these two columns were 0. This transforms the columns' Hermitian part.
    """

    sizes: ClassVar[tuple[str, ...]] = ("b", "h", "w")

    b: Dim
    h: Dim
    w: Dim
    dtype: Literal["f64", "f32"]
    kind: Literal["r2c", "c2r", "c2c"]
    direction: Literal["forward", "inverse"] = "forward"
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        if self.kind == "r2c" and self.direction == "inverse":
            raise ValueError("direction is 'inverse', expected forward for r2c; the inverse of r2c is c2r")
        msgspec.structs.force_setattr(self, "direction", _ONE_WAY.get(self.kind, self.direction))

    def words(self) -> list[str]:
        return [self.kind, *(["inverse"] if (self.kind, self.direction) == ("c2c", "inverse") else [])]

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if not words or words[1:] not in ([], ["inverse"]) or (len(words) > 1 and words[0] != "c2c"):
            raise ValueError(
                f"ends in {'/'.join(words)!r}, expected r2c, c2r, c2c or c2c/inverse after the storage type"
            )
        return {"kind": words[0]} | ({"direction": words[1]} if words[1:] else {})

    @property
    def axes_transformed(self) -> tuple[int, ...]:
        """Return the transformed axes of the arrays (b, h, w): only the last if h is 1."""
        return (1, 2) if self.h > 1 else (2,)

    @property
    def half(self) -> int:
        """Return the number of columns of a half spectrum."""
        return self.w // 2 + 1

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        """Yield transforms of convolution tiles, and of rows."""
        for b, h, w in ((4096, 32, 32), (4096, 16, 16), (4096, 8, 8), (4096, 1, 1024), (4096, 1, 64)):
            yield {"b": b, "h": h, "w": w}

    @property
    def baselines(self) -> tuple[str, ...]:
        return ("fft/pyfftw.plan",)

    def operands(self) -> tuple[Operand, ...]:
        real, whole, half = (self.b, self.h, self.w), (self.b, self.h, self.w, 2), (self.b, self.h, self.half, 2)
        x, y = {"r2c": (real, half), "c2r": (half, real), "c2c": (whole, whole)}[self.kind]
        return (Operand("x", x, self.dtype, "in", specials=1.0), Operand("y", y, self.dtype, "out"))

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Transformed:
        """Return the transform that NumPy computes in double precision."""
        y = self._transformed(np.ascontiguousarray(inputs["x"], np.float64))
        return Transformed(y, np.sqrt(self._squares(inputs["x"])).reshape(-1, *[1] * (y.ndim - 1)))

    def _squares(self, x: Array) -> Array:
        """Return the square of the rms of a real or imaginary part of each transform's result.

        By Parseval's theorem the norm of the input is the rms of the result. Either part has 1/sqrt(2) of this rms.
        """
        norms = _each_times(x, np.ones(x[0].size), squared=True)
        return (2.0 if self.kind == "c2r" else 0.5) * norms

    def _transformed(self, x: Array) -> Array:
        if self.kind == "r2c":
            return _parts(np.fft.rfft2(x))
        spectrum = x.view(np.complex128)[..., 0]
        if self.kind == "c2r":
            return np.fft.irfft2(spectrum, (self.h, self.w), norm="forward")
        run = np.fft.fft2 if self.direction == "forward" else np.fft.ifft2
        return _parts(run(spectrum, norm="backward" if self.direction == "forward" else "forward"))

    def check(self, outputs: Arrays, reference: Transformed, numerics: str) -> Verdict:
        bound = self.tolerance(numerics)._replace(unit=reference.size)
        return compare("y", outputs["y"], reference.values, bound, self.dtype)

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums:
        """Return a check that compares weighted sums of results with sums of inputs, weighted by the adjoint."""
        x, y = (operand.shape[1:] for operand in self.operands())
        over = sum_weights(rng, y)
        back, over = self._adjoint(over).ravel(), over.ravel()
        known, known_squares = _each_times(inputs["x"], back), self._squares(inputs["x"])

        def wrong(outputs: Arrays, now: Arrays, changes: Changes, numerics: str) -> str | None:
            (which, *index), before = changes["x"]
            want, squares, new = known.copy(), known_squares.copy(), now["x"][which, *index].astype(np.float64)
            np.add.at(want, which, (new - before) * back[np.ravel_multi_index(tuple(index), x)])
            np.add.at(squares, which, 2 * new**2)  # squares of old values stay: `known` was rounded with them
            units, weights = squares * (over @ over), float(over @ over)
            own_error = DTYPES["f64"].roundoff * (len(back) + len(over)) * np.sqrt(units)
            got, stored = _each_times(outputs["y"], over), partial(_each_times, outputs["y"], over**2, squared=True)
            bound = self.tolerance(numerics)
            return summed("checksum of y by transform", got, want, bound, len(over), units, weights, own_error, stored)

        return wrong

    def _adjoint(self, y: Array) -> Array:
        """Return A*(y), where A* is the adjoint of one transform A: <A*(y), x> = <y, A(x)> for any x."""
        if self.kind == "c2r":
            columns = np.full(self.half, 2.0)
            columns[[0, -1] if self.w % 2 == 0 else [0]] = 1  # all other columns of a half spectrum stand for two each
            return _parts(np.fft.rfft2(y) * columns)
        spectrum = y.view(np.complex128)[..., 0]
        if self.kind == "r2c":
            return np.fft.fft2(spectrum.conj(), (self.h, self.w)).real
        run = np.fft.ifft2 if self.direction == "forward" else np.fft.fft2
        return _parts(run(spectrum, norm="forward" if self.direction == "forward" else "backward"))

    def tolerance(self, numerics: str) -> Bound:
        """Return the bound on errors of real and imaginary parts, in units of the parts' rms over one transform.

        The norm of an FFT's error is at most a multiple of u log2(N) times its result's norm (Higham, Accuracy and
        Stability of Numerical Algorithms, 2nd ed., section 24.1), spread evenly over the elements; with independent
        roundings, it is a multiple of u sqrt(log2(N)). The multiple is largest if N is prime: libraries then sum by the
        definition, or convolve by transforms of twice the length (Rader, Bluestein). In FP64, the reference has errors,
        too.
        """
        u = max(DTYPES[self.dtype].roundoff, NUMERICS[numerics].operand, NUMERICS[numerics].accumulate)
        depth, both = math.log2(2 * self.h * self.w), 2 if self.dtype == "f64" else 1
        largest, rms = _LARGEST * u * depth * both, _RMS * u * math.sqrt(depth * both)
        if numerics in _DIRECT:
            # A part of a result is a sum of two products for each point, and its rms is the norm of these products.
            products = 2 * self.h * self.w
            direct = sum_bound(numerics, self.dtype, products, self.dtype)
            uniform = math.sqrt(products) / 3  # the norm of products of uniform operands
            largest, rms = max(largest, direct.largest / uniform), max(rms, direct.rms / uniform)
        return Bound(largest, rms, self.dtype)

    @property
    def flop(self) -> int:
        """Return the nominal operation count: 5 N log2 N for complex transforms of N points, half for real ones."""
        points = self.h * self.w
        return round(self.b * (5 if self.kind == "c2c" else 2.5) * points * math.log2(points))

    def least_flop(self, numerics: str) -> int:
        """Return a lower bound, a quarter of the nominal count: real transforms of 4 points take 6 operations, not 20.

        Transforms by the definition (`dft`) sum along each axis in turn; symmetry saves at most three quarters of this.
        """
        if numerics not in _DIRECT:
            return self.flop // 4
        terms = self.b * self.h * self.w * sum(size for size in (self.h, self.w) if size > 1)
        return max(self.flop // 4, 2 * terms if self.kind == "c2c" else terms // 2)


def _each_times(arrays: Array, weights: Array, squared: bool = False) -> Array:
    """Return the weighted sum of each array's elements, or of their squares, in float64, a few arrays at a time."""
    step, sums = max(1, _BLOCK_ELEMENTS // weights.size), np.empty(len(arrays))
    for first in range(0, len(arrays), step):
        block = arrays[first : first + step].reshape(-1, weights.size).astype(np.float64)
        np.matmul(np.square(block, out=block) if squared else block, weights, out=sums[first : first + step])
    return sums


def _parts(values: Array) -> Array:
    """Return complex numbers as an array whose last axis has the real and the imaginary part."""
    return np.ascontiguousarray(values).view(np.float64).reshape(*values.shape, 2)
