"""The multiply-adds that follow a transfer, for Numba functions: on vectors that stay in registers for all steps."""

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels._host import registers
from kernels._numba import data, everywhere, jit, llvm

NBYTES, ACCUMULATORS = registers()
_alloca = cast(Any, cgutils).alloca_once


def _affine(_context: Any, b: Any, a: Any, start: Any, scale: Any, shift: Any, steps: Any) -> Any:
    signature = types.void(b, a, types.int64, a.dtype, a.dtype, types.int64)
    itemsize = a.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        target, source, begin, scale, shift, count = args
        vector = ir.VectorType(context.get_value_type(a.dtype), NBYTES // itemsize)

        def places(kind: Any, array: Any) -> list[Any]:
            first = data(context, builder, kind, array)
            starts = (builder.add(begin, begin.type(i * vector.count)) for i in range(ACCUMULATORS))
            return [builder.bitcast(builder.gep(first, [at]), vector.as_pointer()) for at in starts]

        factor, added = (everywhere(builder, value, vector) for value in (scale, shift))
        values = [_alloca(builder, vector) for _ in range(ACCUMULATORS)]  # which LLVM makes registers
        for held, place in zip(values, places(a, source), strict=True):
            builder.store(builder.load(place, align=itemsize), held)
        with cgutils.for_range(builder, count):
            for held in values:
                builder.store(llvm(builder, "fma", builder.load(held), factor, added), held)
        for held, place in zip(values, places(b, target), strict=True):
            builder.store(builder.load(held), place, align=itemsize)
        return context.get_dummy_value()

    return signature, generate


#: `affine(b, a, start, scale, shift, steps)`: a group of b is that of a after all steps of scale y + shift.
affine = cast(Any, intrinsic(_affine))


@jit
def work(b, a, scale, shift, steps, size):  # type: ignore[no-untyped-def]
    """Let b = a after all steps, in groups of `size`; what is left beside them one by one. b may be a."""
    whole = a.size // size * size
    for start in range(0, whole, size):
        affine(b, a, start, scale, shift, steps)
    for i in range(whole, a.size):
        value = a[i]
        for _ in range(steps):
            value = value * scale + shift
        b[i] = value
