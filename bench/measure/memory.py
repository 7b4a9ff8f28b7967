"""Measure the available host memory, and refuse larger buffers before the system kills the process."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

#: The share of available memory that a job's buffers may use. Beyond it, the system may grant the memory and then kill
#: a process.
MEMORY_SHARE = 0.8
#: Smaller buffers are not checked, since that takes time.
SMALL_BYTES = 64 * 2**20
CGROUP = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")

_preadv: Any = getattr(os, "preadv", None)
_usage, _THREAD = resource.getrusage, getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def page_faults() -> int:
    """Return the number of minor page faults of this thread."""
    return _usage(_THREAD).ru_minflt


def read_by_system(address: int, into: Any) -> Callable[[], object] | None:
    """Return a function that copies bytes at an address into `into`, even from protected memory; None if impossible."""
    memory = _own_memory(os.getpid())
    return None if memory is None else partial(_preadv, memory, (into,), address)


@lru_cache
def _own_memory(pid: int) -> int | None:
    with suppress(OSError):
        return os.open("/proc/self/mem", os.O_RDONLY)
    return None


def refuse_what_does_not_fit(nbytes: int, subject: str) -> None:
    """Raise MemoryError if buffers need more than MEMORY_SHARE of the available host memory."""
    if nbytes < SMALL_BYTES:
        return
    available = available_bytes()
    if available is not None and nbytes > MEMORY_SHARE * available:
        limit = f"{available / 1e9:.3g} GB are available, of which {MEMORY_SHARE:.0%} may be used"
        raise MemoryError(f"{subject} {nbytes / 1e9:.3g} GB of host memory; {limit}")


def available_bytes() -> int | None:
    """Return the host memory that is available within the limits of control groups, or None if unknown."""
    of_system = _counter(Path("/proc/meminfo"), "MemAvailable:")
    limits = [of_system and 1024 * of_system, *(_free_of(group) for group in _groups(CGROUP))]
    return min((free for free in limits if free is not None), default=None)


def whole_bytes() -> int | None:
    """Return the total host memory, within the limits of control groups."""
    limits = [physical_bytes(), *(number_in(group.limit) for group in _groups(CGROUP))]
    return min((limit for limit in limits if limit is not None), default=None)


def physical_bytes() -> int | None:
    """Return the host memory of the machine, or None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


class _ControlGroup(NamedTuple):
    """The files with a control group's limit, usage and counters, and the name of the counter of reclaimable bytes."""

    limit: Path
    used: Path
    counters: Path
    reclaimable: str


@lru_cache
def _groups(root: Path) -> tuple[_ControlGroup, ...]:
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }
    groups = ((folder, *names[version]) for version, folder in control_groups(root, "memory"))
    return tuple(
        _ControlGroup(folder / limit, folder / used, folder / "memory.stat", reclaimable)
        for folder, limit, used, reclaimable in groups
        if (folder / limit).exists()
    )


def control_groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield the version, 2 or 1, and the folder of each control group of this process, the innermost first.

    root: the folder of all control groups. controller: `memory` or `cpu`. A container may have only the root.
    """
    try:
        lines = [line.split(":", 2) for line in OWN_GROUPS.read_text().splitlines()]
    except OSError:
        lines = []
    for version, base, name in ((2, root, ""), (2, root / "unified", ""), (1, root / controller, controller)):
        path = next((path for _, controllers, path in lines if name in controllers.split(",")), "/")
        folder = base / path.lstrip("/")
        yield version, folder
        while folder != base:
            folder = folder.parent
            yield version, folder


def _free_of(group: _ControlGroup) -> int | None:
    """Return the bytes that a group may still use. Inactive file pages count as free, since they can be reclaimed."""
    limit, used = number_in(group.limit), number_in(group.used)
    if limit is None or used is None:
        return None
    return limit - used + min(used, _counter(group.counters, group.reclaimable) or 0)


def number_in(path: Path) -> int | None:
    """Return the integer in a system file, or None if it holds no integer (as `max`, for no limit) or is missing."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _counter(path: Path, name: str) -> int | None:
    """Return the number on the line that begins with this name, or None without such a line or file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)


def kills_by_system() -> int:
    """Return the number of processes killed for lack of memory since the system started; 0 if unknown."""
    folders = {group.limit.parent for group in _groups(CGROUP)}
    events = [folder / name for folder in folders for name in ("memory.events", "memory.oom_control")]
    return sum(_counter(path, "oom_kill") or 0 for path in (Path("/proc/vmstat"), *events))
