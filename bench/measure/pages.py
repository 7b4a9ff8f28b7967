"""Pages of host memory by their kind: as NumPy gets them, of the smallest size, huge, or to be shared."""

import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import Unsupported

ALIGNMENT = 4096
HUGE_BYTES = 2 * 2**20
TRANSPARENT = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class InFile(np.ndarray[Any, Any]):
    """An array in a file without a name, which other processes can map; its views have the file too.

    The file is closed with the last of them, and nothing of it stays.
    """

    file: "MemoryFile | None" = None

    def __array_finalize__(self, parent: Any) -> None:
        self.file = getattr(parent, "file", None)


class MemoryFile:
    """A file in memory, mapped here as a whole. fd: its descriptor; base: the address that it is mapped at."""

    def __init__(self, nbytes: int) -> None:
        self.fd, self.nbytes = os.memfd_create("kernelmark"), nbytes
        os.ftruncate(self.fd, nbytes)
        self._map = mmap.mmap(self.fd, nbytes)
        self.base = np.frombuffer(self._map, np.uint8).ctypes.data

    def __del__(self) -> None:
        os.close(self.fd)

    def array(self) -> InFile:
        """Return the whole of it."""
        found = np.frombuffer(self._map, np.uint8).view(InFile)
        found.file = self
        return found


def _as_numpy_does(nbytes: int) -> Array:
    return _aligned(np.empty(nbytes + ALIGNMENT, np.uint8), nbytes, ALIGNMENT)


def _small(nbytes: int) -> Array:
    return _anonymous(nbytes, "MADV_NOHUGEPAGE")


def _huge(nbytes: int) -> Array:
    """Raise Unsupported where the system has no huge pages for those that ask."""
    try:
        choice = TRANSPARENT.read_text()
    except OSError:
        choice = "[never]"
    if "[never]" in choice:
        raise Unsupported(f"huge pages are switched off; {TRANSPARENT} is to hold madvise or always")
    return _anonymous(nbytes, "MADV_HUGEPAGE")


def _shared(nbytes: int) -> Array:
    if not hasattr(os, "memfd_create"):
        raise Unsupported("memory that processes share by a descriptor (memfd_create) takes Linux")
    return MemoryFile(nbytes).array()


def _anonymous(nbytes: int, advice: str) -> Array:
    if not hasattr(mmap, advice):
        raise Unsupported(f"the size of pages cannot be chosen here: there is no {advice}")
    pages = mmap.mmap(-1, nbytes + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(getattr(mmap, advice))
    return _aligned(np.frombuffer(pages, np.uint8), nbytes, HUGE_BYTES)


def _aligned(raw: Array, nbytes: int, alignment: int) -> Array:
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


#: What allocates pages of each kind of host memory that a CPU's kernel may declare.
PAGES: Mapping[str, Callable[[int], Array]] = {
    "": _as_numpy_does,
    "small": _small,
    "huge": _huge,
    "shared": _shared,
}
