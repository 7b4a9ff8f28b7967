"""Compiled functions that take a known time by the processor's time-stamp counter, which the harness never reads."""

import time
from functools import lru_cache
from typing import Any, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark import Launch


def _ticks(_context: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        counter = ir.FunctionType(ir.IntType(64), ())
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", (), counter), ())

    return types.int64(), generate


def _move(_context: Any, target: Any, source: Any, nbytes: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        to, start = (builder.inttoptr(address, ir.IntType(8).as_pointer()) for address in args[:2])
        cast(Any, cgutils).raw_memcpy(builder, to, start, args[2], 1)
        return context.get_dummy_value()

    return types.void(target, source, nbytes), generate


ticks = cast(Any, intrinsic(_ticks))
move = cast(Any, intrinsic(_move))


@numba.njit
def _counter():  # type: ignore[no-untyped-def]
    return ticks()


@lru_cache
def ticks_per_s() -> float:
    """Return the counter's rate in ticks per second, measured against CLOCK_MONOTONIC over one second."""
    _counter()
    start = _pair()
    time.sleep(1.0)
    stop = _pair()
    return float(stop[1] - start[1]) / (stop[0] - start[0])


def _pair() -> tuple[float, int]:
    """Return the readings of both clocks at (nearly) the same time, from the shortest of 100 attempts."""
    readings = []
    for _ in range(100):
        before, count = time.clock_gettime(time.CLOCK_MONOTONIC), _counter()
        readings.append((time.clock_gettime(time.CLOCK_MONOTONIC) - before, before, count))
    passed, before, count = min(readings)
    return before + passed / 2, count


def spinner(target: int, source: int, nbytes: int, duration_s: float) -> Launch:
    """Return a launch that copies bytes to an address and returns when `duration_s` has passed by the counter.

    Addresses and duration are constants of the compiled code, since passing arguments would take most of a call's time.
    """
    duration = round(duration_s * ticks_per_s())

    @numba.njit
    def launch():  # type: ignore[no-untyped-def]
        start = ticks()
        move(target, source, nbytes)
        while ticks() - start < duration:
            pass

    launch.compile(())
    return cast(Launch, launch)
