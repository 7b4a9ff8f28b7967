"""The CPU as a device: host memory, wall-clock time, and the system's facts on name, cores and caches."""

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

from kernelmark.bench.measure.device import Clock, Memory, Monitor
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.memory import CGROUP, group_folders, refuse_what_does_not_fit
from kernelmark.bench.measure.monitor import CpuMonitor
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.plan.dtypes import Array, numpy_dtype
from kernelmark.bench.plan.errors import Unsupported, UsageError

#: Where the system does not report its last-level cache: large enough for the desktop and server parts of 2026.
LLC_IF_UNKNOWN = 64 * 2**20
CPUS = Path("/sys/devices/system/cpu")
ALIGNMENT = 4096
HUGE_BYTES = 2 * 2**20
TRANSPARENT = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class InFile(np.ndarray[Any, Any]):
    """An array in a file without a name, which other processes can map; its views refer to the file too.

    The file is closed with the last view, and nothing of it remains.
    """

    file: "MemoryFile | None" = None

    def __array_finalize__(self, parent: Any) -> None:
        self.file = getattr(parent, "file", None)


class MemoryFile:
    """A file in memory, mapped here as a whole. fd: its descriptor; base: its address here."""

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
    """Raise Unsupported where the system has no huge pages for those that ask."""
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
        raise Unsupported(f"the size of pages cannot be chosen here: there is no {advice}")
    pages = mmap.mmap(-1, nbytes + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(getattr(mmap, advice))
    return _aligned(np.frombuffer(pages, np.uint8), nbytes, HUGE_BYTES)


def _aligned(raw: Array, nbytes: int, alignment: int) -> Array:
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


#: What allocates pages of each kind of host memory that a CPU's kernel may declare.
PAGES: Mapping[str, Callable[[int], Array]] = {
    "": lambda nbytes: _aligned(np.empty(nbytes + ALIGNMENT, np.uint8), nbytes, ALIGNMENT),
    "small": lambda nbytes: _anonymous(nbytes, "MADV_NOHUGEPAGE"),
    "huge": _huge,
    "shared": _shared,
}


class HostMemory:
    """Host memory in NumPy arrays, of the pages that `allocate` returns."""

    def __init__(self, allocate: Callable[[int], Array]) -> None:
        self._allocate = allocate

    def bytes(self, nbytes: int) -> Array:
        """Uninitialised bytes, aligned to a page. Raises MemoryError, or Unsupported if no page of the kind exists."""
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

    def holds(self, found: Array, name: str, draw: Draw) -> bool:
        return draw.is_held(found, name)


class _Eviction:
    """Twice the last-level cache, a share for each CPU of this process: operands lie in the caches of all of them."""

    def __init__(self, nbytes: int) -> None:
        self._shares = np.array_split(np.ones(nbytes // 8, np.uint64), cpu_count())
        cpus = iter(sorted(os.sched_getaffinity(0))[1:]) if hasattr(os, "sched_setaffinity") else None
        keep = None if cpus is None else lambda: os.sched_setaffinity(0, {next(cpus)})
        self._threads = ThreadPoolExecutor(max(1, len(self._shares) - 1), initializer=keep)

    def run(self) -> None:
        """Read and write all shares, one on this thread."""
        own, *others = self._shares
        pending = [self._threads.submit(np.add, share, 1, out=share) for share in others]
        np.add(own, 1, out=own)
        for share in pending:
            share.result()


class Cpu(HostMemory):
    """The CPU, and host memory as NumPy allocates it."""

    name = "cpu"
    device_uuid = ""
    stream = None
    warm_up_s = 0.5

    def __init__(self) -> None:
        super().__init__(PAGES[""])
        self.device_name = cpu_name()
        self.llc_bytes = last_level_cache_bytes()
        self._eviction: _Eviction | None = None

    def clock(self, hold: bool) -> Clock:
        """Wall-clock time."""
        return CpuClock()

    def host_memory(self, kind: str) -> Memory:
        """Host memory with pages of another kind."""
        return HostMemory(PAGES[kind])

    def peers(self, gpus: tuple[int, ...], edge: int = 0) -> Memory:
        """Raise Unsupported: a kernel on the CPU has no operands on GPUs."""
        raise Unsupported("host memory lies on no GPU")

    def evict(self) -> None:
        """Read and write twice the last-level cache, so that no operand stays in it.

        Raises Unsupported if the system refuses the threads, which is no fault of the kernel.
        """
        if self._eviction is None:
            self._eviction = _Eviction(2 * self.llc_bytes)
        try:
            self._eviction.run()
        except RuntimeError as error:
            hint = "`ulimit -u`, or the pids of a container, allow too few"
            raise Unsupported(f"emptying the caches of all CPUs: {error}; {hint}") from None

    def synchronize(self) -> None:
        """Calls on the CPU return when they are done."""

    def monitor(self) -> Monitor:
        """Read clock, load and steal time of the CPUs that this process may use now."""
        return CpuMonitor()

    def release(self) -> None:
        """Do nothing: NumPy releases memory by itself."""

    def broken(self) -> str | None:
        """Return None: a fault that breaks a CPU ends the process."""
        return None

    def strayed(self) -> str | None:
        """Return None: a CPU has no streams."""
        return None


def cpu_count() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """Return the number of CPUs that this process may use, or fewer if the quota of its control groups is smaller."""
    return max(1, math.floor(min(cpu_count(), *_quotas())))


def _quotas() -> Iterator[float]:
    """Yield the CPUs that each control group of this process may use, of version 2 and 1."""
    two = [folder for base in (CGROUP, CGROUP / "unified") for folder in group_folders(base, "")]
    files = [[folder / "cpu.max"] for folder in two]
    version_1 = group_folders(CGROUP / "cpu", "cpu")
    files += [[folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"] for folder in version_1]
    yield math.inf
    for texts_in in files:
        with suppress(OSError, ValueError):  # no quota reads `max` or -1
            texts = [file.read_text() for file in texts_in]
            limit, length = map(int, " ".join(texts).split())
            if limit > 0:
                yield limit / length


@lru_cache
def cpu_name() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@lru_cache
def last_level_cache_bytes() -> int:
    """Return the last-level caches of all CPUs of this process together, or the value of KERNELMARK_LLC_BYTES.

    Some processors have one for each few cores, and each socket has its own. Raises UsageError for an invalid size.
    """
    if given := os.environ.get("KERNELMARK_LLC_BYTES"):
        if re.fullmatch("0*[1-9][0-9]{0,17}", given):
            return int(given)
        raise UsageError(f"KERNELMARK_LLC_BYTES: is {given!r}, expected an integer above 0, in bytes")
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    return sum({shared: size for cpu in cpus for shared, size in _last_level_cache(cpu)}.values()) or LLC_IF_UNKNOWN


def _last_level_cache(cpu: int) -> list[tuple[str, int]]:
    """Return the CPUs that share the last-level cache of one, as a list, and its bytes; nothing where unknown."""
    caches = []
    for folder in (CPUS / f"cpu{cpu}/cache").glob("index*"):
        with suppress(OSError, ValueError):
            level, text, shared = ((folder / name).read_text().strip() for name in ("level", "size", "shared_cpu_list"))
            size = int(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)
            caches.append((int(level), size, shared))
    return [(shared, size) for _, size, shared in [max(caches)]] if caches else []
