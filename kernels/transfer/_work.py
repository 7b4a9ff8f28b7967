"""The multiply-adds that follow a transfer, for Numba functions: on vectors that stay in registers for all steps."""

from typing import Any, cast

from numba import types
from numba.extending import intrinsic

from kernelmark.kernels._numba import data, in_registers, jit, llvm


def _affine(_context: Any, b: Any, a: Any, start: Any, scale: Any, shift: Any, steps: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return in_registers(
            (context, builder, signature, args),
            lambda first: first,
            lambda accumulator, scale, shift: llvm(builder, "fma", accumulator, scale, shift),
            ahead=True,
        )

    return types.void(b, a, types.int64, a.dtype, a.dtype, types.int64), generate


#: `affine(b, a, start, scale, shift, steps)`: store the group of a from `start` on in b, after `steps` steps
#: y <- scale y + shift.
affine = cast(Any, intrinsic(_affine))


@jit
def work(b, a, scale, shift, steps, size):  # type: ignore[no-untyped-def]
    """Store a in b after `steps` multiply-adds on each element: groups of `size`, then the rest singly; b may be a."""
    whole = a.size // size * size
    for start in range(0, whole, size):
        affine(b, a, start, scale, shift, steps)
    for i in range(whole, a.size):
        value = a[i]
        for _ in range(steps):
            value = value * scale + shift
        b[i] = value


def _counted(_context: Any, counts: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(data(context, builder, signature.args[0], args[0]), [args[1]])
        return builder.load_atomic(place, "acquire", counts.dtype.bitwidth // 8)

    return counts.dtype(counts, types.int64), generate


def _count(_context: Any, counts: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(data(context, builder, signature.args[0], args[0]), [args[1]])
        builder.store_atomic(args[2], place, "release", counts.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(counts, types.int64, counts.dtype), generate


#: `counted(counts, at)` and `count(counts, at, value)`: load and store a count, with acquire and release semantics.
counted, count = (cast(Any, intrinsic(each)) for each in (_counted, _count))
_give_way = cast(Any, types).ExternalFunction("sched_yield", types.int32())
#: The number of checks of a count before the thread yields its CPU. They take some microseconds, longer than the usual
#: wait for a piece.
LOOKS = 10_000


@jit
def wait(counts, at, value):  # type: ignore[no-untyped-def]
    """Wait until counts[at] is at least `value`."""
    looks = 0
    while counted(counts, at) < value:
        looks += 1
        if looks % LOOKS == 0:
            _give_way()


@jit
def stage(b, a, step, counts, ahead):  # type: ignore[no-untyped-def]
    """Copy a to b in pieces of `step` elements; counts[0] (copied) exceeds counts[8] (finished) by at most `ahead`."""
    for piece in range((a.size + step - 1) // step):
        wait(counts, 8, piece - ahead + 1)  # type: ignore[no-untyped-call]
        start = piece * step
        b[start : start + step] = a[start : start + step]
        count(counts, 0, piece + 1)


@jit
def work_on_arrival(b, scale, shift, steps, size, step, counts):  # type: ignore[no-untyped-def]
    """Work on each piece of b once counts[0] shows that the piece has arrived. counts[8] counts the finished pieces."""
    for piece in range((b.size + step - 1) // step):
        wait(counts, 0, piece + 1)  # type: ignore[no-untyped-call]
        elements = b[piece * step : (piece + 1) * step]
        work(elements, elements, scale, shift, steps, size)  # type: ignore[no-untyped-call]
        count(counts, 8, piece + 1)
