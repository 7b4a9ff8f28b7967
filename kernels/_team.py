"""Threads that do their bands of a launch together with the calling one: one CPU for each, awake between launches.

A thread that slept until it is needed starts 50 us late, and the scheduler often wakes it on the CPU of the one that
called it, where the two take turns for milliseconds. On two CPUs, a product of 0.5 ms was seen to take 1 ms so.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from threading import Lock, Semaphore, Thread
from typing import cast

import numpy as np

from kernelmark import Launch

#: How often a thread looks for work before it sleeps: 0.3 ms on an AMD EPYC, elsewhere by what a pause costs the CPU.
#: That has to be less than what contenders are apart, as for the threads of OpenBLAS and libgomp (bench/__init__.py).
ROUNDS = 10_000
#: With the GIL kept, which takes less time than to let go of it.
_LIBC = ctypes.PyDLL(None)


class _Signal:
    """A count that one thread raises and another one awaits: at first awake, then asleep."""

    def __init__(self) -> None:
        from kernels._spin import rises

        self._rises, self._count = rises, np.zeros(1, np.int64)
        self._asleep, self._semaphore = False, Semaphore(0)

    def send(self) -> None:
        self._count[0] += 1
        if self._asleep:
            self._asleep = False
            self._semaphore.release()

    def wait(self, beyond: int) -> None:
        """Return once it was sent more than `beyond` times."""
        while not self._rises(self._count, beyond, ROUNDS):
            self._asleep = True
            if self._count[0] > beyond:  # it was sent before it could know that a thread sleeps
                self._asleep = False
            else:
                self._semaphore.acquire()


class _Member:
    """A thread that does one task after the other."""

    def __init__(self, name: str) -> None:
        self._asked, self._done, self._tasks = _Signal(), _Signal(), 0
        self._task: Launch | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def begin(self, task: Launch) -> None:
        self._task = task
        self._tasks += 1
        self._asked.send()

    def end(self) -> BaseException | None:
        """Wait until all tasks are done, and return what the last one raised."""
        self._done.wait(self._tasks - 1)
        error, self._error = self._error, None
        return error

    def keep_to(self, cpus: Sequence[int]) -> None:
        if self._thread.native_id is not None:
            os.sched_setaffinity(self._thread.native_id, cpus)

    def _serve(self) -> None:
        done = 0
        while True:
            self._asked.wait(done)
            task, self._task = self._task, None
            try:
                cast(Launch, task)()
            except BaseException as error:
                self._error = error
            del task  # and the operands that it holds
            done += 1
            self._done.send()


class _Team:
    """The calling thread, and one for each further band."""

    def __init__(self, others: int) -> None:
        self._members = [_Member(f"kernelmark-{i}") for i in range(others)]
        self._lock, self._cpu = Lock(), -1

    def run(self, bands: Sequence[Launch]) -> None:
        """Do all bands at once, the last on the calling thread."""
        with self._lock:
            self._spread()
            for member, band in zip(self._members, bands[:-1], strict=True):
                member.end()  # of a launch that was interrupted
                member.begin(band)
            bands[-1]()
            for error in [member.end() for member in self._members]:
                if error is not None:
                    raise error

    def _spread(self) -> None:
        """Keep the others to CPUs of their own, beside that of the calling thread, if there are enough."""
        if (cpu := here()) == self._cpu:
            return
        self._cpu = cpu
        for member, own in zip(self._members, beside(cpu, len(self._members)), strict=False):
            member.keep_to(own)


def here() -> int:
    """Return the CPU that the calling thread runs on now, or -1 where the system does not report it."""
    return int(_LIBC.sched_getcpu()) if sys.platform == "linux" else -1


def beside(cpu: int, threads: int) -> list[list[int]]:
    """Return the CPUs for each of some threads, beside that of the calling one; none where they do not suffice."""
    others = sorted(os.sched_getaffinity(0) - {cpu}) if sys.platform == "linux" else []
    return [others[i::threads] for i in range(threads)] if len(others) >= threads else []


def in_bands(length: int, threads: int, run: Callable[[int, int], Launch]) -> Launch:
    """A launch that does `run(start, stop)` for each of `threads` bands of `length`, the last on the calling thread."""
    edges = [length * i // threads for i in range(threads + 1)]
    bands = [run(start, stop) for start, stop in pairwise(edges) if start < stop]
    if len(bands) == 1:
        return bands[0]
    together = team(len(bands) - 1)
    return lambda: together.run(bands)


@cache
def team(others: int) -> _Team:
    """Return the threads that others than the calling one are; they last as long as the process."""
    return _Team(others)
