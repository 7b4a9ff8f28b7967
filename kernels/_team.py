"""Threads that run bands of a launch together with the calling thread, each on its own CPU, awake between launches.

A sleeping thread starts 50 us late. The scheduler often wakes it on the calling thread's CPU, and the two threads then
compete for milliseconds. On two CPUs this made a product of 0.5 ms take 1 ms.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from functools import cache
from threading import Lock, Semaphore, Thread
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from kernelmark import Launch
from kernelmark.kernels._host import Compiled

if TYPE_CHECKING:
    from kernelmark.kernels._calls import Table

#: The number of times that a thread looks for work before it sleeps. On an AMD EPYC this takes 0.3 ms; the time depends
#: on the CPU's pause instruction. It must be shorter than the gap between contenders, as must the time that threads of
#: OpenBLAS and libgomp spin (bench/__init__.py).
ROUNDS = 10_000
RAISED = "a compiled function raised an exception, in this thread or in another"
#: A PyDLL keeps the GIL during calls, which takes less time than releasing it.
_LIBC = ctypes.PyDLL(None)


class Band(NamedTuple):
    """A thread's work in a launch. table: the calls of the launch if it is compiled, otherwise None."""

    launch: Launch
    table: "Table | None"

    @staticmethod
    def of(launch: Launch) -> "Band":
        from kernelmark.kernels._calls import table

        return Band(launch, table(launch) if isinstance(launch, Compiled) else None)


class _Member:
    """A thread that does one task after the other: compiled calls without the GIL, and Python launches with it."""

    def __init__(self, name: str) -> None:
        from kernelmark.kernels import _spin

        self._spin = _spin
        lines = np.zeros(64, np.int64)
        self._box, self._done = lines[:16], lines[32:]  # in separate cache lines, since different threads write them
        self._requests, self._asleep, self._semaphore = 0, False, Semaphore(0)
        self._task: Launch | None = None
        self._band: Band | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def begin(self, band: Band) -> None:
        self._requests += 1
        self._band = band  # keeps alive the arguments of calls that still run after an interrupt
        if band.table is None:
            self._task = band.launch
            self._spin.ask(self._box, 0, self._spin.OTHER, self._requests)
        else:
            self._spin.ask(self._box, band.table.address, band.table.calls, self._requests)
        if self._asleep:
            self._asleep = False
            self._semaphore.release()

    def end(self) -> BaseException | None:
        """Wait until all tasks are done, and return the last exception that a task raised, or None."""
        if self._band is None:
            return None
        while not self._spin.rises(self._done, self._requests - 1, ROUNDS):
            os.sched_yield()
        if self._done[self._spin.FAILED]:
            self._done[self._spin.FAILED] = 0
            self._error = ArithmeticError(RAISED)
        error, self._error, self._band = self._error, None, None
        return error

    def keep_to(self, cpus: Sequence[int]) -> None:
        if self._thread.native_id is not None:
            os.sched_setaffinity(self._thread.native_id, cpus)

    def _serve(self) -> None:
        done = 0
        while True:
            done = self._spin.serve(self._box, self._done, done, ROUNDS)
            if self._task is not None:
                self._do()
                done += 1
                self._spin.end(self._done, done)
            else:
                self._sleep(done)

    def _sleep(self, done: int) -> None:
        self._asleep = True
        if self._box[0] > done:  # a request may have come before `_asleep` was set
            self._asleep = False
        else:
            self._semaphore.acquire()

    def _do(self) -> None:
        task, self._task = self._task, None
        try:
            cast(Launch, task)()
        except BaseException as error:
            self._error = error


class _Team:
    """Runs bands in parallel, on the calling thread and one more thread for each further band."""

    def __init__(self, others: int) -> None:
        from kernelmark.kernels._spin import perform

        self._members = [_Member(f"kernelmark-{i}") for i in range(others)]
        self._lock, self._cpu, self._perform = Lock(), -1, perform

    def run(self, bands: Sequence[Band]) -> None:
        """Run all bands in parallel, the last on the calling thread."""
        with self._lock:
            self._spread()
            for member, band in zip(self._members, bands[:-1], strict=True):
                member.end()  # waits for tasks of an interrupted launch
                member.begin(band)
            launch, table = bands[-1]
            if table is None:
                launch()
            elif self._perform(table.address, table.calls):
                raise ArithmeticError(RAISED)
            for error in [member.end() for member in self._members]:
                if error is not None:
                    raise error

    def settle(self) -> None:
        """Wait for the remaining tasks of an interrupted launch."""
        with self._lock:
            for member in self._members:
                member.end()

    def _spread(self) -> None:
        """Restrict the other threads to separate CPUs, none of them the calling thread's, if there are enough."""
        if (cpu := here()) == self._cpu:
            return
        self._cpu = cpu
        for member, cpus in zip(self._members, beside(cpu, len(self._members)), strict=False):
            member.keep_to(cpus)


def here() -> int:
    """Return the CPU that the calling thread is running on, or -1 if the system does not report it."""
    return int(_LIBC.sched_getcpu()) if sys.platform == "linux" else -1


def beside(cpu: int, threads: int) -> list[list[int]]:
    """Return, for each of `threads` threads, the CPUs other than `cpu` that it may use; [] if there are too few."""
    others = sorted(os.sched_getaffinity(0) - {cpu}) if sys.platform == "linux" else []
    return [others[i::threads] for i in range(threads)] if len(others) >= threads else []


@cache
def team(others: int) -> _Team:
    """Return the team with this many additional threads, which last as long as the process."""
    return _Team(others)
