"""Combine launches: one after the other, or as bands on parallel threads."""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Any, cast

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels._host import LINE_BYTES, Compiled
from kernelmark.kernels._team import Band, team


class Shared:
    """A launch that runs bands on parallel threads, the last band on the calling thread.

    meetings: for each barrier in the bands, an array that counts the threads that have arrived. If an interrupt keeps
    the calling thread from arriving, all barriers stay open until the other threads are done.
    """

    def __init__(self, bands: Sequence[Launch], meetings: Sequence[Array] = ()) -> None:
        self.bands, self.meetings = tuple(bands), tuple(meetings)
        self._team, self._tasks, self._is_broken = team(len(bands) - 1), [Band.of(band) for band in bands], False

    def __call__(self) -> None:
        if self._is_broken:
            self._team.settle()
            self._count(0)
            self._is_broken = False
        try:
            self._team.run(self._tasks)
        except BaseException:
            from kernelmark.kernels._spin import OPEN

            self._is_broken = True
            self._count(OPEN)
            raise

    def _count(self, came: int) -> None:
        for meeting in self.meetings:
            meeting[0] = came


def parts(length: int, threads: int) -> list[tuple[int, int]]:
    """Return the range (start, stop) of each thread's band of a length, without empty bands."""
    edges = [length * i // threads for i in range(threads + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if start < stop]


def in_bands(length: int, threads: int, run: Callable[[int, int], Launch]) -> Launch:
    """Return a launch that performs `run(start, stop)` on each thread's band of `length`, in parallel.

    The last band runs on the calling thread.
    """
    return in_numbered_bands(length, threads, lambda _, *ends: run(*ends))


def in_numbered_bands(length: int, threads: int, run: Callable[..., Launch]) -> Launch:
    """Return a launch as `in_bands` does, but call `run(i, start, stop)` with the number i of the thread."""
    bands = [run(i, *ends) for i, ends in enumerate(parts(length, threads))]
    return bands[0] if len(bands) == 1 else Shared(bands)


def in_turn(*launches: Launch) -> Launch:
    """Return one launch that performs the launches in order.

    Consecutive compiled launches become one launch with barriers between them, which is faster than separate launches.
    """
    joined: list[Launch] = []
    for is_compiled, run in groupby(launches or (Compiled(()),), _is_compiled):
        these = list(run)
        joined += [_joined(these)] if is_compiled else these
    if len(joined) == 1:
        return joined[0]

    def launch() -> None:
        for step in joined:
            step()

    return launch


def beside(*launches: Launch) -> Launch:
    """Return one launch that performs independent compiled launches, without barriers between them."""
    return _joined(launches, meets=False)


def _bands(launch: Launch) -> Sequence[Launch]:
    return launch.bands if isinstance(launch, Shared) else (launch,)


def _is_compiled(launch: Launch) -> bool:
    return all(isinstance(band, Compiled) for band in _bands(launch))


def _joined(launches: Sequence[Launch], meets: bool = True) -> Launch:
    """Return one launch that performs compiled launches. The calling thread runs the last band of each launch.

    meets: whether all threads wait at a barrier between two launches.
    """
    if len(launches) == 1:
        return launches[0]
    several = [cast(Sequence[Compiled], _bands(launch)) for launch in launches]
    meetings = [meeting for launch in launches if isinstance(launch, Shared) for meeting in launch.meetings]
    threads, before = max(map(len, several)), 1
    calls: list[list[Any]] = [[] for _ in range(threads)]
    for bands in several:
        if meets and max(before, len(bands)) > 1 and any(calls):
            meetings.append(np.zeros(LINE_BYTES // 8, np.int64))
            for sequence in calls:
                sequence += _meeting(meetings[-1], threads)
        for sequence, band in zip(reversed(calls), reversed(bands), strict=False):
            sequence += band.calls
        before = len(bands)
    together = [Compiled(tuple(sequence)) for sequence in calls]
    return together[0] if threads == 1 else Shared(together, meetings)


def _meeting(count: Array, threads: int) -> Any:
    """Return the call that waits at a barrier until all `threads` threads have arrived; `count` counts arrivals."""
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels._spin import meet

    return cast(Compiled, bind(meet, count, threads)).calls
