"""A convolution's sizes as the arguments of a .cu (CONV_GEOMETRY in cuda/conv/geometry.cuh), and what they must be."""

import math
from typing import Any

import numpy as np

from kernels._cuda import INT_LIMIT, ceil_div
from kernels.conv.problem import ConvProblem


def divisor(d: int) -> np.uint64:
    """Return the numbers with which `Divisor::packed` divides by d: multiplier in the low word, shift in the high one.

    For dividends below 2^31: Granlund, Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994.
    """
    shift = 31 + (d - 1).bit_length()
    return np.uint64(ceil_div(1 << shift, d) | shift << 32)


def geometry(p: ConvProblem) -> tuple[Any, ...]:
    """The arguments, in the order of CONV_GEOMETRY."""
    sizes = (p.n, p.c, p.h, p.w, p.k, p.r, p.s, p.p, p.q)
    steps = (p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.pad_h.before, p.pad_w.before, p.groups)
    outputs = (p.p * p.q, divisor(p.p * p.q), divisor(p.q))
    inputs = (p.h * p.w, divisor(p.h * p.w), divisor(p.w))
    taps = (p.r * p.s, divisor(p.r * p.s), divisor(p.s))
    depth, filters = p.c // p.groups, p.k // p.groups
    of_group = (depth, divisor(depth), filters, divisor(filters))
    return (*sizes, *steps, *outputs, *inputs, *taps, *of_group, divisor(p.stride_h), divisor(p.stride_w))


def fits_ints(p: ConvProblem) -> str | None:
    """Why the sizes do not fit the C ints of a kernel, in which it counts places and a filter's elements, or None."""
    counts = {
        "the padded input has": p.n * (p.h + sum(p.pad_h)) * (p.w + sum(p.pad_w)),
        "the output has": p.n * p.p * p.q,
        "the channels of an image have": p.c * p.h * p.w,
        "a filter has": p.c * p.r * p.s,
        "the filters' taps are": p.k * p.r * p.s,
    }
    for what, count in counts.items():
        if count > INT_LIMIT:
            return f"{what} {count} places, expected at most {INT_LIMIT}: they are counted in C ints"
    return None


def elements(p: ConvProblem, name: str) -> int:
    """How many the operand has."""
    return math.prod(p.shapes()[name])
