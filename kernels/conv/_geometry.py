"""A convolution's sizes as an argument of CUDA kernels (`Geometry` in cuda/conv/geometry.cuh), and their limits."""

import math

import numpy as np

from kernelmark.kernels._cuda import INT_LIMIT, ceil_div
from kernelmark.kernels.conv.problem import ConvProblem

SIZES = (
    *("n", "c", "h", "w", "k", "r", "s", "p", "q"),
    *("stride_h", "stride_w", "dilation_h", "dilation_w", "pad_h", "pad_w", "groups"),
)
DIVISORS = (
    *("by_pq", "by_q", "by_hw", "by_w", "by_rs", "by_s"),
    *("by_depth", "by_filters", "by_stride_h", "by_stride_w"),
)
#: `Divisor` and `Geometry`, field by field, in C's memory layout.
DIVISOR = np.dtype([("divisor", "u4"), ("packed", "u8")], align=True)
GEOMETRY = np.dtype([(name, "u4") for name in SIZES] + [(name, DIVISOR) for name in DIVISORS], align=True)


def divisor(d: int) -> np.uint64:
    """Return the constants for division by d, as `Divisor` packs them: multiplier in the low word, shift in the high.

    Quotients are exact for dividends below 2^31 (Granlund, Montgomery, "Division by Invariant Integers using
    Multiplication", PLDI 1994).
    """
    shift = 31 + (d - 1).bit_length()
    return np.uint64(ceil_div(1 << shift, d) | shift << 32)


def geometry(p: ConvProblem) -> np.void:
    """Return a problem's `Geometry`, an argument that kernels take by value."""
    pads = {"pad_h": p.pad_h.before, "pad_w": p.pad_w.before}
    divided = {
        "by_pq": p.p * p.q,
        "by_q": p.q,
        "by_hw": p.h * p.w,
        "by_w": p.w,
        "by_rs": p.r * p.s,
        "by_s": p.s,
        "by_depth": p.c // p.groups,
        "by_filters": p.k // p.groups,
        "by_stride_h": p.stride_h,
        "by_stride_w": p.stride_w,
    }
    sizes = (pads[name] if name in pads else getattr(p, name) for name in SIZES)
    divisors = ((divided[name], divisor(divided[name])) for name in DIVISORS)
    return np.void((*sizes, *divisors), GEOMETRY)


def fits_ints(p: ConvProblem) -> str | None:
    """Return why the sizes exceed the C ints that count pixels and filter elements in a kernel, or None if they fit."""
    counts = {
        "the padded input has": p.n * (p.h + sum(p.pad_h)) * (p.w + sum(p.pad_w)),
        "the output has": p.n * p.p * p.q,
        "the channels of an image have": p.c * p.h * p.w,
        "a filter has": p.c * p.r * p.s,
        "a channel of all filters has": p.k * p.r * p.s,
    }
    for what, count in counts.items():
        if count > INT_LIMIT:
            return f"{what} {count} elements, expected at most {INT_LIMIT}: they are counted in C ints"
    return None


def elements(p: ConvProblem, name: str) -> int:
    """Return the number of elements of an operand."""
    return math.prod(p.shapes()[name])
