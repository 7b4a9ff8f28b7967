"""Vectors of accumulators that stay in registers for a whole loop of fused multiply-adds, for Numba functions.

LLVM would vectorise such a loop over a handful of accumulators or not at all, so its code is given here.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from kernelmark import Unsupported
from kernels._numba import jit

alloca, declare = cast(Any, cgutils).alloca_once, cast(Any, cgutils).get_or_insert_function


class Registers(NamedTuple):
    """Bytes of a CPU's vector registers, and how many of them hold accumulators.

    Two multiply-adds a cycle of five cycles each take ten; four a cycle of four cycles (Neoverse V1) sixteen.
    """

    nbytes: int
    accumulators: int


def registers() -> Registers:
    """Of the CPU that Numba generates code for. Raises Unsupported where LLVM would call a library for llvm.fma."""
    triple, cpu, listed = cpu_target.target_context.codegen().magic_tuple()
    features = set(listed.split(","))
    if "+avx512f" in features:
        return Registers(64, 24)
    if "+fma" in features:
        return Registers(32, 12)
    if triple.startswith(("aarch64", "arm64")):
        return Registers(16, 24)
    raise Unsupported(f"{cpu} has no fused multiply-add; expected AVX2 with FMA, AVX-512 or NEON")


NBYTES, ACCUMULATORS = registers()


def _multiply_add(_context: Any, d: Any, x: Any, start: Any, a: Any, b: Any, steps: Any) -> Any:
    signature = types.void(d, x, types.int64, d.dtype, d.dtype, types.int64)
    itemsize = d.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        target, source, begin, a, b, count = args
        element = context.get_value_type(d.dtype)
        vector = ir.VectorType(element, NBYTES // itemsize)

        def places(kind: Any, array: Any) -> list[Any]:
            data = context.make_array(kind)(context, builder, array).data
            starts = (builder.add(begin, begin.type(i * vector.count)) for i in range(ACCUMULATORS))
            return [builder.bitcast(builder.gep(data, [at]), vector.as_pointer()) for at in starts]

        factors = [_everywhere(builder, factor, vector) for factor in (a, b)]
        sums = [alloca(builder, vector) for _ in range(ACCUMULATORS)]  # which LLVM makes registers
        for held, place in zip(sums, places(x, source), strict=True):
            builder.store(_coarse(builder, builder.load(place, align=itemsize)), held)
        with cgutils.for_range(builder, count):
            for held in sums:
                builder.store(_call(builder, "llvm.fma", *factors, builder.load(held)), held)
        for held, place in zip(sums, places(d, target), strict=True):
            builder.store(builder.load(held), place, align=itemsize)
        return context.get_dummy_value()

    return signature, generate


#: `multiply_add(d, x, start, a, b, steps)`: a group of d is that of x, coarsened, plus a * b `steps` times over.
multiply_add = cast(Any, intrinsic(_multiply_add))


def _call(builder: Any, name: str, *vectors: Any) -> Any:
    """One of LLVM's functions on numbers, on vectors of them."""
    kind = vectors[0].type
    full_name = f"{name}.v{kind.count}{kind.element.intrinsic_name}"
    function = declare(builder.module, ir.FunctionType(kind, [kind] * len(vectors)), full_name)
    return builder.call(function, vectors)


def _coarse(builder: Any, vector: Any) -> Any:
    """`coarse` of problem.py, element by element."""
    half, quarter = (ir.Constant(vector.type, [value] * vector.type.count) for value in (0.5, 0.25))
    return _call(builder, "llvm.fma", _call(builder, "llvm.floor", builder.fadd(vector, vector)), half, quarter)


def _everywhere(builder: Any, scalar: Any, vector: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None))


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
