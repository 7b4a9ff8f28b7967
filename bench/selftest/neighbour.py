"""A neighbour: a process that is busy on the same core for a share of the time."""

import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: A neighbour is busy for this share of each period.
SHARE, PERIOD_S = 0.1, 0.01


@contextmanager
def pinned() -> Iterator[None]:
    """Pin this process, and the processes that it starts in the context, to one CPU; Linux only."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Neighbour:
    """A process that is partly busy on this process's CPUs while the context lasts. share: the CPU share it used."""

    share = 0.0

    def __enter__(self) -> "Neighbour":
        words = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self.share = float(self._process.communicate()[0] or 0)


def disturb(stop_fd: int) -> float:
    """Compute for SHARE of each period, from a random moment on, until the pipe closes. Return the CPU share used."""
    began, used = time.monotonic(), time.process_time()
    period = began
    while True:
        start = period + random.uniform(0, PERIOD_S * (1 - SHARE))
        if select.select([stop_fd], [], [], max(0.0, start - time.monotonic()))[0]:
            return (time.process_time() - used) / (time.monotonic() - began)
        busy_until = time.process_time() + PERIOD_S * SHARE
        while time.process_time() < busy_until:
            pass
        period = max(period + PERIOD_S, time.monotonic() - PERIOD_S)


if __name__ == "__main__":
    sys.stdout.write(str(disturb(sys.stdin.fileno())))
