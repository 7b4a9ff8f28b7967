"""Record which foreign code is being called, and since when, in shared bytes that a worker's parent can read.

A process that foreign code has forked must not return to the harness: it would answer in place of its worker. If one
does, it records the call here, and ends.
"""

import mmap
import os
import struct
from types import TracebackType
from typing import NamedTuple

from kernelmark.bench.measure.timing import now

#: What foreign code is called for: plug-ins and libraries, the class of a problem, a kernel.
IMPORT = "import"
OF_OPERATION = ("operands", "reference", "check")
STAGES = (IMPORT, *OF_OPERATION, "set-up", "verification", "warm-up", "sampling")
_NUMBER_OF = {stage: number for number, stage in enumerate(STAGES)}
#: Of the machine's own byte order, in which each field is stored at once: since when, stage, contender from 1 or 0.
_LAYOUT = struct.Struct("dqq")
_NUMBER = struct.Struct("q")
_NUMBER_AT = _LAYOUT.size - _NUMBER.size
_ENTROPY = slice(2 * _LAYOUT.size, 2 * _LAYOUT.size + 16)


class Call(NamedTuple):
    """The call in progress: the place of its contender in the job, its stage, and its start (monotonic clock).

    Calls of the problem's class count for the first contender that needs them, and imports for the first of all.
    """

    contender: int
    stage: str
    since_s: float


class Board:
    """Memory that holds the call in progress, and outlives the process that wrote it."""

    def __init__(self, fd: int | None = None) -> None:
        """Map a file that another process maps too, or memory of this process alone."""
        if fd is None:
            fd = -1
        else:
            os.pwrite(fd, bytes(_ENTROPY.stop), 0)  # a file of holes would end the process where the disk is full
        self._memory, self._pid = mmap.mmap(fd, _ENTROPY.stop), os.getpid()

    def calling(self, contender: int, stage: str) -> "_Calling":
        """Record what is being called: it is blamed for whatever happens to the process. Calls do not nest."""
        return _Calling(self._memory, _NUMBER_OF[stage], contender + 1, self._pid)

    def clear(self) -> None:
        """Record that no foreign code is being called, and nothing was drawn."""
        _NUMBER.pack_into(self._memory, _NUMBER_AT, 0)
        self.entropy = ""

    @property
    def entropy(self) -> str:
        """The random bits of the operands, for the row of a kernel with which the process ends."""
        return self._memory[_ENTROPY].hex() if any(self._memory[_ENTROPY]) else ""

    @entropy.setter
    def entropy(self, digits: str) -> None:
        self._memory[_ENTROPY] = bytes.fromhex(digits or "0" * 32)

    def read(self) -> Call | None:
        """The call in progress, if there is one."""
        (number,) = _NUMBER.unpack_from(self._memory, _NUMBER_AT)
        since_s, stage, _ = _LAYOUT.unpack_from(self._memory)
        return Call(number - 1, STAGES[stage], since_s) if number else None

    def returned_twice(self, since_s: float = 0.0) -> Call | None:
        """The last call from which a forked process also returned, if it began later than this."""
        began_s, stage, number = _LAYOUT.unpack_from(self._memory, _LAYOUT.size)
        return Call(number - 1, STAGES[stage], began_s) if number and began_s >= since_s else None

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()


class _Calling:
    """Notes one call while it lasts; a generator would take longer than the shortest calls do."""

    __slots__ = ("_memory", "_number", "_pid", "_since_s", "_stage")

    def __init__(self, memory: mmap.mmap, stage: int, number: int, pid: int) -> None:
        self._memory, self._stage, self._number, self._pid = memory, stage, number, pid

    def __enter__(self) -> None:
        # The number goes last: who reads in the midst of it must not take an earlier call's time for this one's.
        self._since_s = now()
        _LAYOUT.pack_into(self._memory, 0, self._since_s, self._stage, self._number)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            _LAYOUT.pack_into(self._memory, _LAYOUT.size, self._since_s, self._stage, self._number)
            os._exit(0)
        # A signal that ends the process leaves the call standing, to be read.
        _NUMBER.pack_into(self._memory, _NUMBER_AT, 0)
