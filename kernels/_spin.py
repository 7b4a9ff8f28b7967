"""Spin without the GIL until another thread writes a request, and perform the request."""

from typing import Any, cast

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark import Array
from kernelmark.kernels._numba import bind, data, jit

WORDS = 3  # of a call (`_calls.py`)
CALLS, COUNT = 1, 2  # a thread's box: [number of requests so far, address of the requested calls, number of calls]
OTHER = -1  # the number of calls that marks a task for the interpreter
OPEN = 1 << 62  # the count of an open barrier, at which no thread waits
PATIENCE = 1000  # reads of a barrier's count before a thread yields its CPU
FAILED = 1  # a thread's `done`: [number of finished tasks, number of failed calls]
_X86 = binding.get_default_triple().startswith("x86_64")


def _look(_context: Any, count: Any) -> Any:
    """Return the first element as it is in memory, after a pause that leaves the core to its other hardware thread."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            declare = cast(Any, cgutils).get_or_insert_function
            builder.call(declare(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return builder.load_atomic(data(context, builder, signature.args[0], args[0]), "acquire", 8)

    return types.int64(count), generate


_now = cast(Any, intrinsic(_look))


def _store(_context: Any, count: Any, value: Any) -> Any:
    """Store a value in the first element, after all earlier writes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], data(context, builder, signature.args[0], args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(count, types.int64), generate


raise_to = cast(Any, intrinsic(_store))


def _call(_context: Any, address: Any) -> Any:
    """Perform the call whose words are at an address, and return its status: 0 unless it raised."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        first = builder.inttoptr(args[0], word.as_pointer())
        passes, function, given = (builder.load(builder.gep(first, [word(i)])) for i in range(WORDS))
        kind = ir.FunctionType(ir.IntType(32), (word, word))
        return builder.call(builder.inttoptr(passes, kind.as_pointer()), (function, given))

    return types.int32(types.int64), generate


_called = cast(Any, intrinsic(_call))


def _come(_context: Any, count: Any) -> Any:
    """Add 1 atomically to the first element, after all earlier writes, and return its old value."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = data(context, builder, signature.args[0], args[0])
        return builder.atomic_rmw("add", place, ir.IntType(64)(1), "acq_rel")

    return types.int64(count), generate


_came = cast(Any, intrinsic(_come))


def _yield(_context: Any) -> Any:
    """Let another thread have the CPU, if one waits for it."""

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cast(Any, cgutils).get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


_give_way = cast(Any, intrinsic(_yield))


@jit
def rises(count: Array, beyond: int, rounds: int) -> bool:
    """Return whether the first element of `count` exceeds `beyond` within `rounds` reads."""
    left = rounds
    while left and _now(count) <= beyond:
        left -= 1
    return left > 0


@jit
def meet(count: Array, threads: int) -> None:
    """Wait at a barrier until all `threads` threads have arrived; the first element counts all arrivals so far."""
    before = _came(count)
    last = (before // threads + 1) * threads
    while before < OPEN and not rises(count, last - 1, PATIENCE):
        _give_way()


@jit
def perform(address: int, count: int) -> int:
    """Perform the `count` calls stored at an address, and return how many of them raised an exception."""
    failed = 0
    for i in range(count):
        failed += _called(address + i * 8 * WORDS) != 0
    return failed


@jit
def ask(box: Array, address: int, count: int, number: int) -> None:
    """Give task `number` to a box's thread: `count` calls stored at `address`, or Python code if `count` is OTHER."""
    box[CALLS], box[COUNT] = address, count
    raise_to(box, number)


@jit
def end(done: Array, number: int) -> None:
    """Mark the task with this number, which was Python code, as done."""
    raise_to(done, number)


@jit
def serve(box: Array, done: Array, number: int, rounds: int) -> int:
    """Perform requested calls until a task is Python code, or until no request comes within `rounds` reads.

    number: how many tasks the thread has finished since set-up. Returns this number, increased by the new tasks.
    """
    while rises(box, number, rounds) and box[COUNT] != OTHER:
        done[FAILED] += perform(box[CALLS], box[COUNT])
        number += 1
        raise_to(done, number)
    return number


@jit
def nothing(_: int) -> None:
    """Do nothing, so that only the cost of the launch itself is measured."""


def compiled() -> None:
    """Compile the functions that a launch needs, or load them from the cache."""
    count = np.zeros(1, np.int64)
    bind(serve, count, count, 0, 0)
    bind(rises, count, 0, 0)
    bind(perform, 0, 0)
    bind(ask, count, 0, 0, 0)
    bind(meet, count, 0)
    bind(nothing, 0)
