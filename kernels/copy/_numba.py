"""A copy past the caches, for Numba functions."""

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernels._host import LINE_BYTES
from kernels._numba import data, fence, jit, past_the_caches


def _stream_line(_context: Any, target: Any, source: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(64), LINE_BYTES // 8)  # LLVM cuts it to what the CPU has

        def place(i: int) -> Any:
            first = data(context, builder, signature.args[i], args[i])
            return builder.bitcast(builder.gep(first, [args[2]]), vector.as_pointer())

        past_the_caches(builder, builder.store(builder.load(place(1), align=1), place(0)), LINE_BYTES)
        return context.get_dummy_value()

    return types.void(target, source, types.int64), generate


#: `stream_line(b, a, start)`: one line of bytes, which in b begins at a line's start.
stream_line = cast(Any, intrinsic(_stream_line))


@jit
def stream(b, a, skip):  # type: ignore[no-untyped-def]
    """Bytes b = a; `skip` of them lie before b's first whole line."""
    end = skip + (b.size - skip) // LINE_BYTES * LINE_BYTES
    b[:skip] = a[:skip]
    for start in range(skip, end, LINE_BYTES):
        stream_line(b, a, start)
    b[end:] = a[end:]
    fence()  # type: ignore[call-arg]
