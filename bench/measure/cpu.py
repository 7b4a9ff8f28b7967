"""The CPU as a device: host memory, wall-clock time, and the processor's name, cores and caches."""

import math
import mmap
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kernelmark.bench.measure.affinity import CPUS, cpu_facts
from kernelmark.bench.measure.device import Clock, Device, Memory, Monitor
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.memory import CGROUP, control_groups, refuse_what_does_not_fit
from kernelmark.bench.measure.monitor import CpuMonitor
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.plan.dtypes import Array, numpy_dtype
from kernelmark.bench.plan.errors import Unsupported, UsageError

#: Assumed if the system does not report its last-level cache: enough for desktop and server CPUs of 2026.
LLC_IF_UNKNOWN = 64 * 2**20
ALIGNMENT = 4096
HUGE_BYTES = 2 * 2**20
TRANSPARENT = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class InFile(np.ndarray[Any, Any]):
    """An array in an unnamed file that other processes can map; the file is deleted with the last view of the array."""

    file: "MemoryFile | None" = None

    def __array_finalize__(self, parent: Any) -> None:
        self.file = getattr(parent, "file", None)


class MemoryFile:
    """A memory file, mapped as a whole. fd: its descriptor; base: its address in this process."""

    def __init__(self, nbytes: int) -> None:
        self.fd, self.nbytes = os.memfd_create("kernelmark"), nbytes
        os.ftruncate(self.fd, nbytes)
        self._map = mmap.mmap(self.fd, nbytes)
        self.base = np.frombuffer(self._map, np.uint8).ctypes.data

    def __del__(self) -> None:
        os.close(self.fd)

    def array(self) -> InFile:
        """Return the whole file as an array of bytes."""
        array = np.frombuffer(self._map, np.uint8).view(InFile)
        array.file = self
        return array


def _huge(nbytes: int) -> Array:
    """Return memory in huge pages. Raises Unsupported if the system has none."""
    try:
        choice = TRANSPARENT.read_text()
    except OSError:
        choice = "[never]"
    if "[never]" in choice:
        raise Unsupported(f"huge pages are switched off; write madvise or always to {TRANSPARENT}")
    return _anonymous(nbytes, "MADV_HUGEPAGE")


def _shared(nbytes: int) -> Array:
    if not hasattr(os, "memfd_create"):
        raise Unsupported("memory that processes share by a descriptor (memfd_create) needs Linux")
    return MemoryFile(nbytes).array()


def _anonymous(nbytes: int, advice: str) -> Array:
    if not hasattr(mmap, advice):
        raise Unsupported(f"the page size cannot be chosen on this system: there is no {advice}")
    pages = mmap.mmap(-1, nbytes + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(getattr(mmap, advice))
    return _aligned(np.frombuffer(pages, np.uint8), nbytes, HUGE_BYTES)


def _aligned(raw: Array, nbytes: int, alignment: int) -> Array:
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


#: The functions that allocate each kind of host memory that a CPU kernel may declare.
PAGES: Mapping[str, Callable[[int], Array]] = {
    "": lambda nbytes: _aligned(np.empty(nbytes + ALIGNMENT, np.uint8), nbytes, ALIGNMENT),
    "small": lambda nbytes: _anonymous(nbytes, "MADV_NOHUGEPAGE"),
    "huge": _huge,
    "shared": _shared,
}


class HostMemory:
    """Host memory as NumPy arrays in the pages that `allocate` returns."""

    def __init__(self, allocate: Callable[[int], Array]) -> None:
        self._allocate = allocate

    def bytes(self, nbytes: int) -> Array:
        """Return uninitialised, page-aligned bytes. Raises MemoryError; Unsupported if the system lacks such pages."""
        refuse_what_does_not_fit(nbytes, "a buffer needs")
        return self._allocate(nbytes)

    def dtype(self, storage: str) -> "np.dtype[Any]":
        return numpy_dtype(storage)

    def upload(self, target: Array, source: Array) -> None:
        np.copyto(target, source)

    def scatter(self, target: Array, places: Array, values: Array) -> None:
        target[places] = values

    def download(self, source: Array) -> Array:
        return source

    def holds(self, array: Array, name: str, draw: Draw) -> bool:
        return draw.is_held(array, name)


class _Eviction:
    """A buffer twice as large as the last-level cache; each CPU reads a share, since its cache may hold operands."""

    def __init__(self, nbytes: int) -> None:
        self._shares = np.array_split(np.ones(nbytes // 8, np.uint64), cpu_count())
        cpus = iter(sorted(os.sched_getaffinity(0))[1:]) if hasattr(os, "sched_setaffinity") else None
        keep = None if cpus is None else lambda: os.sched_setaffinity(0, {next(cpus)})
        self._threads = ThreadPoolExecutor(max(1, len(self._shares) - 1), initializer=keep)

    def run(self) -> None:
        """Read and write each share on a separate thread; the calling thread takes one of them."""
        first, *others = self._shares
        pending = [self._threads.submit(np.add, share, 1, out=share) for share in others]
        np.add(first, 1, out=first)
        for share in pending:
            share.result()


class Cpu(HostMemory, Device):
    """The CPU as a device, with host memory as NumPy allocates it."""

    name = "cpu"
    warm_up_s = 0.5

    def __init__(self) -> None:
        super().__init__(PAGES[""])
        self.device_name = cpu_name()
        self.llc_bytes = last_level_cache_bytes()
        self._eviction: _Eviction | None = None

    def clock(self, hold: bool) -> Clock:
        """Return a clock of wall time."""
        return CpuClock()

    def host_memory(self, kind: str) -> Memory:
        """Return host memory with pages of this kind."""
        return HostMemory(PAGES[kind])

    def evict(self) -> None:
        """Read and write twice the size of the last-level cache, so that no operand stays in it.

        Raises Unsupported if the system refuses to start threads, since no kernel is to blame for that.
        """
        if self._eviction is None:
            self._eviction = _Eviction(2 * self.llc_bytes)
        try:
            self._eviction.run()
        except RuntimeError as error:
            hint = "`ulimit -u`, or the limit of pids in a container, is too low"
            raise Unsupported(f"emptying the caches of all CPUs: {error}; {hint}") from None

    def monitor(self) -> Monitor:
        """Return a monitor of clock, load and steal time of the CPUs that this process may use now."""
        return CpuMonitor()


def cpu_count() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """Return the number of CPUs that this process may use, or fewer if the quota of its control groups is smaller."""
    return max(1, math.floor(min(cpu_count(), *_quotas())))


def _quotas() -> Iterator[float]:
    yield math.inf
    for version, folder in control_groups(CGROUP, "cpu"):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        with suppress(OSError, ValueError):  # without a quota the file contains `max` or -1
            limit, length = map(int, " ".join((folder / name).read_text() for name in names).split())
            if limit > 0:
                yield limit / length


@lru_cache
def cpu_name() -> str:
    """Return the processor's name as the system reports it."""
    facts = cpu_facts()
    return (facts.get("model name") if facts else platform.processor()) or platform.machine()


def last_level_cache_bytes() -> int:
    """Return the size of the last-level caches that this process uses, in bytes, or the size to assume if unknown."""
    return known_llc_bytes() or LLC_IF_UNKNOWN


@lru_cache
def known_llc_bytes() -> int | None:
    """Return the total bytes of the last-level caches of this process's CPUs, or the value of KERNELMARK_LLC_BYTES.

    Each socket has its own last-level cache, and some processors have one for every few cores. Returns None if the
    system reports none. Raises UsageError for an invalid size.
    """
    if given := os.environ.get("KERNELMARK_LLC_BYTES"):
        if re.fullmatch("0*[1-9][0-9]{0,17}", given):
            return int(given)
        raise UsageError(f"KERNELMARK_LLC_BYTES: is {given!r}, expected an integer above 0, in bytes")
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    return sum({shared: size for cpu in cpus for shared, size in _last_level_cache(cpu)}.values()) or None


def _last_level_cache(cpu: int) -> list[tuple[str, int]]:
    """Return [(CPUs that share this CPU's last-level cache, the cache's bytes)], or [] if unknown."""
    caches = []
    for folder in (CPUS / f"cpu{cpu}/cache").glob("index*"):
        with suppress(OSError, ValueError):
            level, text, shared = ((folder / name).read_text().strip() for name in ("level", "size", "shared_cpu_list"))
            size = int(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)
            caches.append((int(level), size, shared))
    return [(shared, size) for _, size, shared in [max(caches)]] if caches else []
