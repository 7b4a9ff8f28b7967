"""Loops of fused multiply-adds on vectors of accumulators in registers, for Numba functions."""

from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernelmark.kernels._numba import in_registers, jit, llvm


def _multiply_add(_context: Any, d: Any, x: Any, start: Any, a: Any, b: Any, steps: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return in_registers(
            (context, builder, signature, args),
            lambda first: _coarse(builder, first),
            lambda accumulator, a, b: llvm(builder, "fma", a, b, accumulator),
        )

    return types.void(d, x, types.int64, d.dtype, d.dtype, types.int64), generate


#: `multiply_add(d, x, start, a, b, steps)`: for the group of elements from `start` on, d = coarse(x) + steps * a * b.
multiply_add = cast(Any, intrinsic(_multiply_add))


def _coarse(builder: Any, vector: Any) -> Any:
    """Apply `coarse` of problem.py to each element of a vector."""
    half, quarter = (ir.Constant(vector.type, [value] * vector.type.count) for value in (0.5, 0.25))
    return llvm(builder, "fma", llvm(builder, "floor", builder.fadd(vector, vector)), half, quarter)


@jit
def coarse(value: Any) -> Any:
    """Round a value to a multiple of 1/4, as `coarse` in problem.py does; the result is exact in every type."""
    return np.floor(value + value) / 2 + 0.25


@jit
def groups(d, x, a, b, steps, size, start, stop):  # type: ignore[no-untyped-def]
    """Compute groups start:stop of `size` accumulators. The last group overlaps the one before."""
    factor_a, factor_b = d.dtype.type(coarse(a[0])), d.dtype.type(coarse(b[0]))
    for group in range(start, stop):
        multiply_add(d, x, min(group * size, d.size - size), factor_a, factor_b, steps)


@jit
def few(d, x, a, b, steps):  # type: ignore[no-untyped-def]
    """Compute arrays smaller than a group. Products and sums are exact, so fusing them would not change the result."""
    product = coarse(a[0]) * coarse(b[0])
    for i in range(d.size):
        d[i] = coarse(x[i])
    for _ in range(steps):
        for i in range(d.size):
            d[i] += product
