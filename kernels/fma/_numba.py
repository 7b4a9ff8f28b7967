"""Vectors of accumulators that stay in registers for a whole loop of fused multiply-adds, for Numba functions.

LLVM would vectorise such a loop over a handful of accumulators or not at all, so its code is given here.
"""

from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels._host import registers
from kernels._numba import data, everywhere, jit, llvm

NBYTES, ACCUMULATORS = registers()
_alloca = cast(Any, cgutils).alloca_once


def _multiply_add(_context: Any, d: Any, x: Any, start: Any, a: Any, b: Any, steps: Any) -> Any:
    signature = types.void(d, x, types.int64, d.dtype, d.dtype, types.int64)
    itemsize = d.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        target, source, begin, a, b, count = args
        element = context.get_value_type(d.dtype)
        vector = ir.VectorType(element, NBYTES // itemsize)

        def places(kind: Any, array: Any) -> list[Any]:
            first = data(context, builder, kind, array)
            starts = (builder.add(begin, begin.type(i * vector.count)) for i in range(ACCUMULATORS))
            return [builder.bitcast(builder.gep(first, [at]), vector.as_pointer()) for at in starts]

        factors = [everywhere(builder, factor, vector) for factor in (a, b)]
        sums = [_alloca(builder, vector) for _ in range(ACCUMULATORS)]  # which LLVM makes registers
        for held, place in zip(sums, places(x, source), strict=True):
            builder.store(_coarse(builder, builder.load(place, align=itemsize)), held)
        with cgutils.for_range(builder, count):
            for held in sums:
                builder.store(llvm(builder, "fma", *factors, builder.load(held)), held)
        for held, place in zip(sums, places(d, target), strict=True):
            builder.store(builder.load(held), place, align=itemsize)
        return context.get_dummy_value()

    return signature, generate


#: `multiply_add(d, x, start, a, b, steps)`: a group of d is that of x, coarsened, plus a * b `steps` times over.
multiply_add = cast(Any, intrinsic(_multiply_add))


def _coarse(builder: Any, vector: Any) -> Any:
    """`coarse` of problem.py, element by element."""
    half, quarter = (ir.Constant(vector.type, [value] * vector.type.count) for value in (0.5, 0.25))
    return llvm(builder, "fma", llvm(builder, "floor", builder.fadd(vector, vector)), half, quarter)


@jit
def coarse(value: Any) -> Any:
    """As in problem.py; exact in every type."""
    return np.floor(value + value) / 2 + 0.25


@jit
def groups(d, x, a, b, steps, size, start, stop):  # type: ignore[no-untyped-def]
    """Groups start:stop of `size` accumulators. The last reaches back, and computes some of another's once more."""
    factor_a, factor_b = d.dtype.type(coarse(a[0])), d.dtype.type(coarse(b[0]))
    for group in range(start, stop):
        multiply_add(d, x, min(group * size, d.size - size), factor_a, factor_b, steps)


@jit
def few(d, x, a, b, steps):  # type: ignore[no-untyped-def]
    """Less than a group. Products and sums are exact, so that it does not matter whether they are fused."""
    product = coarse(a[0]) * coarse(b[0])
    for i in range(d.size):
        d[i] = coarse(x[i])
    for _ in range(steps):
        for i in range(d.size):
            d[i] += product
