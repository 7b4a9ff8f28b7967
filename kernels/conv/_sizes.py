"""The sizes of a convolution, and values derived from them: outputs, padding, strides, shapes of operands."""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from kernelmark import WHOLE, Array, Dim, Distribution, Problem

#: One number for height and width, or text with different numbers: `1x2`, or `0-1x0-1` with both ends of each axis.
Spatial = int | str
_NUMBER = re.compile(WHOLE)


class Pad(NamedTuple):
    """The rows or columns of zeros before and after an image."""

    before: int
    after: int


class ConvSizes(Problem, frozen=True, kw_only=True):
    """The checked fields of `ConvProblem`, and values that depend only on them."""

    n: Dim
    c: Dim
    h: Dim
    w: Dim
    k: Dim
    r: Dim
    s: Dim
    dtype: Literal["f32", "f16", "bf16"]
    layout: Literal["nchw", "nhwc"] = "nchw"
    direction: Literal["fprop", "dgrad", "wgrad"] = "fprop"
    pad: Spatial = 0
    stride: Spatial = 1
    dilation: Spatial = 1
    groups: Dim = 1
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        for name in ("pad", "stride", "dilation"):
            msgspec.structs.force_setattr(self, name, canonical(name, getattr(self, name)))
        for name in ("c", "k"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"groups is {self.groups}, expected a divisor of {name} = {getattr(self, name)}")
        for image, taps, pad, dilation in (
            ("h", "r", self.pad_h, self.dilation_h),
            ("w", "s", self.pad_w, self.dilation_w),
        ):
            padded, spanned = getattr(self, image) + sum(pad), (getattr(self, taps) - 1) * dilation + 1
            if spanned > padded:
                raise ValueError(
                    f"{taps} is {getattr(self, taps)}{_spans(spanned, dilation)}, expected at most the "
                    f"padded image's {padded} (the output's size would be negative or 0)"
                )

    @property
    def pad_h(self) -> Pad:
        return Pad(*_ends(self.pad)[0])

    @property
    def pad_w(self) -> Pad:
        return Pad(*_ends(self.pad)[1])

    @property
    def stride_h(self) -> int:
        return _ends(self.stride)[0][0]

    @property
    def stride_w(self) -> int:
        return _ends(self.stride)[1][0]

    @property
    def dilation_h(self) -> int:
        return _ends(self.dilation)[0][0]

    @property
    def dilation_w(self) -> int:
        return _ends(self.dilation)[1][0]

    @property
    def p(self) -> int:
        """Return the height of the output."""
        return (self.h + sum(self.pad_h) - (self.r - 1) * self.dilation_h - 1) // self.stride_h + 1

    @property
    def q(self) -> int:
        """Return the width of the output."""
        return (self.w + sum(self.pad_w) - (self.s - 1) * self.dilation_w - 1) // self.stride_w + 1

    @property
    def reduction(self) -> int:
        """Return the number of products per element of the output, including those with padding."""
        taps = self.r * self.s
        lengths = {"fprop": self.c // self.groups * taps, "dgrad": self.k // self.groups * taps}
        return lengths.get(self.direction, self.n * self.p * self.q)

    def reached(self) -> tuple[Array, Array]:
        """Return two masks: the rows and the columns of the output (wgrad: of a filter) that have any product."""
        return (
            self._reached(self.p, self.r, self.h, self.stride_h, self.dilation_h, self.pad_h.before),
            self._reached(self.q, self.s, self.w, self.stride_w, self.dilation_w, self.pad_w.before),
        )

    def _reached(self, outputs: int, taps: int, size: int, stride: int, dilation: int, pad: int) -> Array:
        at = np.arange(outputs)[:, None] * stride + np.arange(taps) * dilation - pad
        inside = (at >= 0) & (at < size)
        if self.direction == "dgrad":
            return np.isin(np.arange(size), at[inside])
        return np.asarray(inside.any(axis=1 if self.direction == "fprop" else 0))

    @property
    def pointwise(self) -> bool:
        """Return whether each output pixel depends only on the same pixel of x, so that im2col would not change x."""
        return (self.r, self.s, self.pad, self.stride) == (1, 1, 0, 1)

    @property
    def output(self) -> Literal["x", "w", "y"]:
        """Return the output operand: y for fprop, x for dgrad, w for wgrad."""
        outputs: dict[str, Literal["x", "w", "y"]] = {"fprop": "y", "dgrad": "x", "wgrad": "w"}
        return outputs[self.direction]

    def shapes(self) -> dict[str, tuple[int, int, int, int]]:
        """Return the shapes of x, w and y with channels as the second axis, whatever the layout."""
        return {
            "x": (self.n, self.c, self.h, self.w),
            "w": (self.k, self.c // self.groups, self.r, self.s),
            "y": (self.n, self.k, self.p, self.q),
        }

    @property
    def flop(self) -> int:
        """Return direct convolution's operation count, including products with padding, whatever the algorithm."""
        return 2 * self.n * self.k * self.p * self.q * (self.c // self.groups) * self.r * self.s

    def least_flop(self, numerics: str) -> int:
        """Return the fewest operations that an algorithm with these numerics needs; it may skip products with padding.

        Direct convolution needs two operations per product of a tap and a pixel. Winograd's F(m x m, r x s) has
        (m + r - 1)(m + s - 1) products instead of m^2 r s. An FFT needs at least 6 operations for two outputs.
        """
        met = _met(self.p, self.r, self.h, self.stride_h, self.dilation_h, self.pad_h[0])
        met *= _met(self.q, self.s, self.w, self.stride_w, self.dilation_w, self.pad_w[0])
        direct = 2 * self.n * self.k * (self.c // self.groups) * met
        taps, m = self.r * self.s, {"winograd": 2, "winograd4": 4}.get(numerics)
        if m:
            return direct * (m + self.r - 1) * (m + self.s - 1) // (m * m * taps)
        return min(direct, 3 * direct // (2 * taps)) if numerics == "fft" else direct


def _met(outputs: int, taps: int, size: int, stride: int, dilation: int, pad: int) -> int:
    """Return the number of (output, tap) pairs along one axis that do not read padding."""
    pairs = 0
    for first in range(-pad, taps * dilation - pad, dilation):  # the element the first output reads at the tap
        pairs += max(0, min(outputs, (size - 1 - first) // stride + 1) - max(0, -(first // stride)))
    return pairs


def as_nchw(array: Array, layout: str) -> Array:
    """Return a view of x, w or y with channels as the second axis."""
    return array.transpose(0, 3, 1, 2) if layout == "nhwc" else array


@lru_cache(1024)  # plans of kernels call this over and over
def _ends(value: Spatial) -> tuple[tuple[int, int], ...]:
    """Return the numbers at both ends of the height and of the width: ((0, 1), (2, 2)) for `0-1x2`."""
    dims = [tuple(int(end) for end in part.split("-")) for part in str(value).split("x")]
    return tuple((dim[0], dim[-1]) for dim in (dims * 2)[:2])


def canonical(name: str, value: Spatial) -> Spatial:
    """Return the shortest notation of the same value, so that equal problems have equal ids. Raises ValueError."""
    least, end = (0, f"{WHOLE}(-{WHOLE})?") if name == "pad" else (1, WHOLE)
    if not re.fullmatch(f"{end}(x{end})?", str(value)) or any(number < least for number in _numbers(value)):
        forms = "1, 1x2 or 0-1x0-1" if name == "pad" else "2 or 1x2"
        raise ValueError(f"{name} is {value!r}, expected integers >= {least}, without leading zeros, as in {forms}")
    height, width = (str(a) if a == b else f"{a}-{b}" for a, b in _ends(value))
    if height != width or "-" in height:
        return f"{height}x{width}"
    return int(height)


def _numbers(value: Spatial) -> list[int]:
    return [int(number) for number in _NUMBER.findall(str(value))]


def _spans(spanned: int, dilation: int) -> str:
    return f", which spans {spanned} when dilated by {dilation}" if dilation > 1 else ""
