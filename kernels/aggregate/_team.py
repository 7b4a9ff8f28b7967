"""Worker processes, each of which maps the arrays of a plan and performs its step of each phase.

The calling process is the first worker. A process is started for each other worker when a plan first needs it; it stays
in this process group and ends when its socket closes. Between calls it waits in a read. If a process has ended, the
next call fails, and the call after that starts a new team, which maps the arrays again.
"""

import atexit
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

#: The header of each message: the number of a plan; a phase, DROP or TAKE; and the number of bytes that follow.
HEADER = struct.Struct("<qqq")
TAKE, DROP = -1, -2
DONE = b"."
#: The most descriptors in a message.
DESCRIPTORS = 64
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from kernelmark.kernels.aggregate._worker import main; main(int(sys.argv[1]))"
)


class Mapped(NamedTuple):
    """The location of an array: the number of its file, offset in bytes, shape and type."""

    file: int
    offset: int
    shape: tuple[int, ...]
    dtype: str


class Order(NamedTuple):
    """The work of a process: arrays by name, and its step (or None) of each phase."""

    arrays: Mapping[str, Mapped]
    steps: Sequence[Any]


class Team:
    """The processes for all plans with the same number of workers. generation: how often they were started."""

    def __init__(self, helpers: int) -> None:
        self._helpers = helpers
        self._members: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self._numbers = count()
        self.generation = 0
        atexit.register(self.close)

    def take(self, orders: Sequence[Order], files: Sequence[int]) -> int:
        """Send each process its order. When all have compiled the plan, return the plan's number."""
        if not self._members:
            self._members = [_started() for _ in range(self._helpers)]
            self.generation += 1
        number = next(self._numbers)
        for (_, link), order in zip(self._members, orders, strict=True):
            content = pickle.dumps(order)
            with suppress(OSError):  # `wait` finds a process that has ended
                socket.send_fds(link, [HEADER.pack(number, TAKE, len(content))], files)
                link.sendall(content)
        self.wait(range(self._helpers))
        return number

    def drop(self, number: int, generation: int) -> None:
        """Let the processes of a generation drop a plan and unmap its arrays."""
        if generation == self.generation:
            self.begin(number, DROP, range(len(self._members)))

    def begin(self, number: int, phase: int, who: Sequence[int]) -> None:
        """Let these processes perform their steps of a phase."""
        for i in who:
            with suppress(OSError):
                self._members[i][1].sendall(HEADER.pack(number, phase, 0))

    def wait(self, who: Sequence[int]) -> None:
        """Wait until these processes are done. If one has ended, end the others and raise RuntimeError."""
        for i in who:
            if self._answer(i) != DONE:
                status = self._members[i][0].wait()
                self.close()
                how = signal.Signals(-status).name if status < 0 else f"with status {status}"
                raise RuntimeError(f"worker process {i + 2} of {self._helpers + 1} ended {how}")

    def _answer(self, i: int) -> bytes:
        try:
            return self._members[i][1].recv(1)
        except OSError:
            return b""

    def close(self) -> None:
        """Kill all processes, even those that are busy."""
        members, self._members = self._members, []
        for process, link in members:
            link.close()
            process.kill()
            process.wait()

    @property
    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        return [process.pid for process, _ in self._members]


@lru_cache
def team_of(workers: int) -> Team:
    """Return the team of this many workers, including this process."""
    return Team(workers - 1)


def _started() -> tuple[subprocess.Popen[bytes], socket.socket]:
    link, others = socket.socketpair()
    with others:
        words = [sys.executable, "-c", _START, str(others.fileno()), *sys.path]
        return subprocess.Popen(words, pass_fds=[others.fileno()], stdin=subprocess.DEVNULL), link
