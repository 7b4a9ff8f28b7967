"""Record the call in progress, and its start, in memory that a worker shares with its parent.

Only calls of foreign code are recorded: plug-ins, libraries, problem classes and kernels. If such code forks, the child
process must not continue in the harness, where it would answer instead of the worker. When the call returns in the
child, the child records this and exits.
"""

import mmap
import os
import struct
from types import TracebackType
from typing import NamedTuple

from kernelmark.bench.measure.timing import now

#: The stages in which foreign code is called: importing plug-ins and libraries, methods of the problem's class, set-up
#: and calls of a kernel.
IMPORT = "import"
OF_OPERATION = ("operands", "reference", "check")
STAGES = (IMPORT, *OF_OPERATION, "set-up", "verification", "warm-up", "sampling")
_NUMBER_OF = {stage: number for number, stage in enumerate(STAGES)}
#: Start, stage, and the contender's number from 1, or 0 for no call. Native byte order makes each store atomic.
_LAYOUT = struct.Struct("dqq")
_NUMBER = struct.Struct("q")
_NUMBER_AT = _LAYOUT.size - _NUMBER.size
_ENTROPY = slice(2 * _LAYOUT.size, 2 * _LAYOUT.size + 16)


class Call(NamedTuple):
    """The call in progress: the index of its contender in the job, its stage, and its start (monotonic clock).

    A call of a method of the problem's class is recorded under the first contender that needs the result. An import is
    recorded under the job's first contender.
    """

    contender: int
    stage: str
    since_s: float


class Board:
    """Memory that holds the call in progress, and outlives the process that wrote it."""

    def __init__(self, fd: int | None = None) -> None:
        """Map the file `fd`, which another process also maps; without `fd`, use memory private to this process."""
        if fd is not None:
            os.pwrite(fd, bytes(_ENTROPY.stop), 0)  # with a sparse file, a full disk would kill the process
        self._memory, self._pid = mmap.mmap(-1 if fd is None else fd, _ENTROPY.stop), os.getpid()

    def calling(self, contender: int, stage: str) -> "_Calling":
        """Return a context that records a call. If the process dies in it, the call is blamed. Contexts do not nest."""
        return _Calling(self._memory, _NUMBER_OF[stage], contender + 1, self._pid)

    def clear(self) -> None:
        """Record that no foreign code is being called and that no operands have been drawn."""
        _NUMBER.pack_into(self._memory, _NUMBER_AT, 0)
        self.entropy = ""

    @property
    def entropy(self) -> str:
        """The random bits, in hex, that determine the operands' values; for the row of a kernel that crashes."""
        return self._memory[_ENTROPY].hex() if any(self._memory[_ENTROPY]) else ""

    @entropy.setter
    def entropy(self, digits: str) -> None:
        self._memory[_ENTROPY] = bytes.fromhex(digits or "0" * 32)

    def read(self) -> Call | None:
        """Return the call in progress, or None."""
        (number,) = _NUMBER.unpack_from(self._memory, _NUMBER_AT)
        since_s, stage, _ = _LAYOUT.unpack_from(self._memory)
        return Call(number - 1, STAGES[stage], since_s) if number else None

    def returned_twice(self, since_s: float = 0.0) -> Call | None:
        """Return the last call that forked and returned in the child process, if it began after `since_s`, or None."""
        began_s, stage, number = _LAYOUT.unpack_from(self._memory, _LAYOUT.size)
        return Call(number - 1, STAGES[stage], began_s) if number and began_s >= since_s else None

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()


class _Calling:
    """A context that records one call. It is a class, since a generator takes longer than the shortest calls."""

    __slots__ = ("_memory", "_number", "_pid", "_since_s", "_stage")

    def __init__(self, memory: mmap.mmap, stage: int, number: int, pid: int) -> None:
        self._memory, self._stage, self._number, self._pid = memory, stage, number, pid

    def __enter__(self) -> None:
        # The contender is stored last, so that the parent never reads it together with an earlier call's start.
        self._since_s = now()
        _LAYOUT.pack_into(self._memory, 0, self._since_s, self._stage, self._number)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            _LAYOUT.pack_into(self._memory, _LAYOUT.size, self._since_s, self._stage, self._number)
            os._exit(0)
        # A signal that ends the process leaves the call recorded, for the parent to read.
        _NUMBER.pack_into(self._memory, _NUMBER_AT, 0)
