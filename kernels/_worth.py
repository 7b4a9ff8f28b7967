"""Decide whether a problem is large enough for several threads, given the measured cost of a launch on them.

A problem's time on one thread is estimated from its flop and bytes. The rates and the cost of a launch are measured
once per process, so within a process the decision depends only on sizes.
"""

import time
from collections.abc import Callable
from functools import cache, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from kernelmark import Launch, Unsupported
from kernelmark.kernels._ahead import ahead
from kernelmark.kernels._host import registers

LAUNCHES = 2  # launches that a kernel is assumed to consist of
MOST_S = 100e-6  # upper limit of the measured cost of a launch, since the machine may have been busy
STEPS, COPIED = 4096, 1 << 24  # steps of multiply-adds and copied bytes, for measuring the rates


class Sized(Protocol):
    """A problem whose flop and bytes are known."""

    @property
    def flop(self) -> int: ...
    @property
    def traffic_bytes(self) -> int: ...


class _Threads(Protocol):
    threads: int


P = TypeVar("P", bound=Sized)
X = TypeVar("X", bound=_Threads)
Rest = ParamSpec("Rest")
SetUp = Callable[Concatenate[P, X, Rest], Launch]


def threads_that_pay(compiled: bool = True) -> Callable[[SetUp[P, X, Rest]], SetUp[P, X, Rest]]:
    """Return a decorator that sets a kernel up for one thread if several threads would save less than they cost.

    If the kernel is not compiled yet, a child process compiles it for one thread, while this process compiles the code
    that measures the cost of threads. compiled: whether the kernel's threads call only compiled functions, so that no
    thread waits for the GIL.
    """

    def decorate(setup: SetUp[P, X, Rest]) -> SetUp[P, X, Rest]:
        @wraps(setup)
        def sized(problem: P, x: X, *args: Rest.args, **options: Rest.kwargs) -> Launch:
            def alone() -> Launch:
                x.threads = 1
                return setup(problem, x, *args, **options)

            if x.threads > 1:
                if compiled:
                    with ahead((setup, alone)):
                        _compile()
                if not pays(problem, x.threads, compiled):
                    return alone()
            return setup(problem, x, *args, **options)

        return cast(SetUp[P, X, Rest], sized)

    return decorate


@cache
def _compile() -> None:
    """Compile the code that `pays` measures, and the code that threads need."""
    from kernelmark.kernels._spin import compiled

    _multiply_adds()
    compiled()


def pays(problem: Sized, threads: int, compiled: bool) -> bool:
    """Return whether several threads save more time on a problem than launching them takes."""
    try:
        flop_per_s, bytes_per_s = rates()
    except Unsupported:  # Numba has no fused multiply-adds to measure here, as with --isa sse
        return True
    alone_s = problem.flop / flop_per_s + problem.traffic_bytes / bytes_per_s
    return alone_s * (1 - 1 / threads) > LAUNCHES * launch_s(threads, compiled)


@cache
def launch_s(threads: int, compiled: bool) -> float:
    """Return the time in seconds of a launch of empty bands, at most MOST_S."""
    from kernelmark.kernels._launches import in_bands
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels._spin import nothing

    def band(start: int, _: int) -> Launch:
        return bind(nothing, start) if compiled else lambda: None

    launch = in_bands(threads, threads, band)
    return min(MOST_S, *(_typical_s(launch, 21) for _ in range(5)))


@cache
def rates() -> tuple[float, float]:
    """Measure one thread's flop/s, by multiply-adds in registers, and bytes/s, by a copy larger than its caches."""
    source, target = np.zeros((2, COPIED), np.uint8)
    copy_s = _typical_s(lambda: np.copyto(target, source), 3)
    return 2 * registers().group(4) * STEPS / _typical_s(_multiply_adds(), 11), 2 * COPIED / copy_s


@cache
def _multiply_adds() -> Launch:
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels.fma._numba import groups

    size = registers().group(4)
    d, x = np.zeros((2, size), np.float32)
    factors = np.full((2, 1), 0.5, np.float32)
    return bind(groups, d, x, *factors, STEPS, size, 0, 1)


def _typical_s(launch: Launch, count: int) -> float:
    """Return the median time in seconds of `count` launches, after one launch that is not timed."""
    launch()
    return sorted(_time_s(launch) for _ in range(count))[count // 2]


def _time_s(launch: Launch) -> float:
    start = time.perf_counter()
    launch()
    return time.perf_counter() - start
