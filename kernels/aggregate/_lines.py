"""Sum rows in vectors of a cache line, for Numba functions. LLVM splits the vectors to the CPU's width."""

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._numba import data, past_the_caches


def address(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any) -> Any:
    """Return the address of an array's element as a pointer to a vector."""
    first = builder.gep(data(context, builder, kind, array), [index])
    return builder.bitcast(first, vector.as_pointer())


def _of_rows(streaming: bool) -> Any:
    def typed(_context: Any, target: Any, to: Any, rows: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = signature.args[0]
            element = context.get_data_type(kind.dtype)
            vector = ir.VectorType(element, LINE_BYTES // (kind.dtype.bitwidth // 8))
            total = None
            for i, row in enumerate(cgutils.unpack_tuple(builder, args[2])):  # type: ignore[no-untyped-call]
                line = builder.load(address(context, builder, signature.args[2][i], row, args[3], vector), align=1)
                total = line if total is None else builder.fadd(total, line)
            store = builder.store(total, address(context, builder, kind, args[0], args[1], vector), align=1)
            if streaming:
                past_the_caches(builder, store, LINE_BYTES)
            return context.get_dummy_value()

        return types.void(target, to, rows, index), generate

    return intrinsic(typed)


#: `sum_line(target, to, rows, index)`: the line of target from element `to` on becomes the sum of the lines of all rows
#: from element `index` on.
sum_line = cast(Any, _of_rows(streaming=False))
#: The same, stored past the caches; the line of target must be aligned to a cache line.
sum_line_past = cast(Any, _of_rows(streaming=True))
