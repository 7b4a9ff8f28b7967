"""What foreign code is being called, and since when: a few shared bytes that show a parent what its worker does."""

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.measure.timing import now

#: What foreign code is called for: plug-ins and libraries, the class of a problem, a kernel.
IMPORT = "import"
OF_OPERATION = ("operands", "reference", "check")
STAGES = (IMPORT, *OF_OPERATION, "set-up", "verification", "warm-up", "sampling")
#: Of the machine's own byte order, in which each field is stored at once: since when, stage, contender from 1 or 0.
_LAYOUT = struct.Struct("dqq")
_NUMBER = struct.Struct("q")
_NUMBER_AT = _LAYOUT.size - _NUMBER.size


class Call(NamedTuple):
    """What is being called for a contender of the job, by its place, and since when (monotonic clock).

    The class of a problem is called for the first contender that needs it, and an import for the first of all.
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
            os.pwrite(fd, bytes(_LAYOUT.size), 0)  # a file of holes would end the process where the disk is full
        self._memory = mmap.mmap(fd, _LAYOUT.size)

    @contextmanager
    def calling(self, contender: int, stage: str) -> Iterator[None]:
        """Note what is being called: whatever happens to the process meanwhile is its doing. Calls do not nest."""
        # The number goes last: who reads in the midst of it must not take an earlier call's time for this one's.
        _LAYOUT.pack_into(self._memory, 0, now(), STAGES.index(stage), contender + 1)
        try:
            yield
        finally:  # a signal that ends the process leaves it standing, to be read
            self.clear()

    def clear(self) -> None:
        """Note that nothing foreign is being called."""
        _NUMBER.pack_into(self._memory, _NUMBER_AT, 0)

    def read(self) -> Call | None:
        """The call in progress, if there is one."""
        (number,) = _NUMBER.unpack_from(self._memory, _NUMBER_AT)
        since_s, stage, _ = _LAYOUT.unpack_from(self._memory)
        return Call(number - 1, STAGES[stage], since_s) if number else None

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
