"""A copy with streaming stores, for Numba functions."""

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._numba import data, fence, jit, past_the_caches, prefetch


def _lines(streaming: bool) -> Any:
    def typed(_context: Any, target: Any, source: Any, start: Any, lines: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = ir.VectorType(ir.IntType(64), LINE_BYTES // 8)  # LLVM splits it into the CPU's vectors

            def place(i: int, line: int) -> Any:
                first = builder.gep(data(context, builder, signature.args[i], args[i]), [args[2]])
                return builder.bitcast(builder.gep(first, [ir.IntType(64)(line * LINE_BYTES)]), vector.as_pointer())

            loaded = [builder.load(place(1, line), align=1) for line in range(lines.count)]
            for line, value in enumerate(loaded):
                store = builder.store(value, place(0, line), align=1)
                if streaming:
                    past_the_caches(builder, store, LINE_BYTES)
            return context.get_dummy_value()

        return types.void(target, source, types.int64, lines), generate

    return intrinsic(typed)


#: `stream_lines(b, a, start, lines)`: copy `len(lines)` cache lines from byte `start` on. All are loaded before any is
#: stored past the caches. In b, they must be aligned to cache lines.
stream_lines = cast(Any, _lines(streaming=True))
#: The same with stores into the caches; lines may begin anywhere.
copy_lines = cast(Any, _lines(streaming=False))


def _touch(_context: Any, source: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = builder.gep(data(context, builder, signature.args[0], args[0]), [args[1]])
        prefetch(builder, at, write=False)
        return context.get_dummy_value()

    return types.void(source, types.int64), generate


#: `touch(a, start)`: prefetch the cache line of byte `start`, if it exists.
touch = cast(Any, intrinsic(_touch))


@jit
def stream(b, a, skip, lines, ways, ahead, streaming):  # type: ignore[no-untyped-def]
    """Copy bytes from a to b; `skip` of them precede b's first whole cache line.

    The bytes are divided into `len(ways)` parts, and each iteration copies `len(lines)` lines of every part; the
    lengths of the tuples are constants of the compiled function. ahead: the prefetch distance in bytes, or 0.
    """
    step = len(lines) * LINE_BYTES
    part = (b.size - skip) // (len(ways) * step) * step
    end = skip + len(ways) * part
    b[:skip] = a[:skip]
    for first in range(skip, skip + part, step):
        for way in range(len(ways)):
            start = first + way * part
            if ahead > 0:
                for line in range(0, step, LINE_BYTES):
                    touch(a, start + ahead + line)
            if streaming:
                stream_lines(b, a, start, lines)
            else:
                copy_lines(b, a, start, lines)
    b[end:] = a[end:]
    fence()  # type: ignore[call-arg]
