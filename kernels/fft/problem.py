"""Batches of discrete Fourier transforms of h x w arrays, complex or real, never normalised."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from kernelmark import (
    DTYPES,
    NUMERICS,
    Array,
    Arrays,
    Bound,
    Dim,
    Distribution,
    Operand,
    Problem,
    Verdict,
    compare,
    operation,
)

#: The largest error, in units of u log2(2 N) of the result's rms. Right transforms stayed below 6.3 over 10^6 outputs,
#: N up to 2^20: sums of up to 512 terms one by one, as by the definition; FFTs proper below 2.5.
_LARGEST = 8.0
#: The rms error, in units of u sqrt(log2(2 N)). FFTW and pocketfft stayed below 1.3, Bluestein's algorithm with twiddle
#: factors of angles in FP32 below 2.1, sums of 512 terms one by one at 2.2. Operands of 19 bits are at 12 u.
_RMS = 2.5
_ONE_WAY = {"r2c": "forward", "c2r": "inverse"}


class FftOperands(Protocol):
    """Operands of a set-up: `x` (in) and `y` (out), thread count, stream and scratch.

    A complex array is a real one with a last axis of 2, real and imaginary part.
    """

    x: Any
    y: Any
    threads: int
    stream: Any

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def chose(self, **settings: Any) -> None: ...


class Transformed(NamedTuple):
    """The result in float64, and the rms of a real or imaginary part in each transform, from the input's norm."""

    values: Array
    size: Array


@operation("fft")
class FftProblem(Problem, frozen=True, kw_only=True):
    """b transforms over h and w, one-dimensional where h is 1: y[p,q] = sum of x[i,j] exp(-+2 pi i (ip/h + jq/w)).

    r2c: x (b, h, w) real, y (b, h, w//2+1, 2) its half spectrum. c2c: x and y (b, h, w, 2), `forward` or `inverse`
    (the sign in the exponent). c2r: x (b, h, w//2+1, 2), y (b, h, w) real. Nothing is divided by h w, as with FFTW and
    cuFFT.

    The drawn half spectrum is not that of a real array: in columns 0 and (for even w) w/2, rows p and h - p are not
    conjugate. c2r takes it as NumPy, FFTW and pocketfft do: columns are transformed over h, then rows over w as if the
    imaginary parts in those two columns were 0, which is the transform of the Hermitian part of these columns.
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
        """Axes of the arrays (b, h, w): the last alone where h is 1."""
        return (1, 2) if self.h > 1 else (2,)

    @property
    def half(self) -> int:
        """Columns of a half spectrum."""
        return self.w // 2 + 1

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        """Tiles of a convolution, and rows."""
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
        """By NumPy in double precision."""
        x = np.ascontiguousarray(inputs["x"], np.float64)
        y, flat = self._transformed(x), x.reshape(self.b, -1)
        # By Parseval the norm of the input is the rms of the result, and 1/sqrt(2) of it that of either part.
        size = np.sqrt((2.0 if self.kind == "c2r" else 0.5) * np.einsum("bi,bi->b", flat, flat))
        return Transformed(y, size.reshape(-1, *[1] * (y.ndim - 1)))

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

    def tolerance(self, numerics: str) -> Bound:
        """Bound the errors of a real or imaginary part, in units of its rms over one transform.

        An FFT errs in the norm by at most a multiple of u log2(N) of its result (Higham, Accuracy and Stability of
        Numerical Algorithms, 2nd ed., section 24.1), spread evenly over the elements, and as roundings are independent
        by a multiple of u sqrt(log2(N)). The multiple is largest where N is prime: libraries then follow the
        definition, or convolve by transforms of twice the length (Rader, Bluestein). FP64 references err, too.
        """
        u = max(DTYPES[self.dtype].roundoff, NUMERICS[numerics].operand, NUMERICS[numerics].accumulate)
        depth, both = math.log2(2 * self.h * self.w), 2 if self.dtype == "f64" else 1
        return Bound(_LARGEST * u * depth * both, _RMS * u * math.sqrt(depth * both), self.dtype)

    @property
    def flop(self) -> int:
        """5 N log2 N for complex transforms of N points and half of it for real ones, whatever is executed."""
        points = self.h * self.w
        return round(self.b * (5 if self.kind == "c2c" else 2.5) * points * math.log2(points))

    def least_flop(self, numerics: str) -> int:
        """A quarter of the nominal operations: real transforms of 4 points take 6 operations, 0.3 of theirs."""
        return self.flop // 4


def _parts(values: Array) -> Array:
    """Complex numbers as a last axis of 2."""
    return np.ascontiguousarray(values).view(np.float64).reshape(*values.shape, 2)
