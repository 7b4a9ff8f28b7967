"""Host memory: what can still be had, and refusing more before the system has to kill."""

import os
from pathlib import Path

#: The share of the memory that can be had which a job's buffers may take: beyond it a system kills rather than refuses.
MEMORY_SHARE = 0.8
#: Smaller buffers are not worth asking the system for.
SMALL_BYTES = 64 * 2**20
CGROUP = Path("/sys/fs/cgroup")


def refuse_what_does_not_fit(nbytes: int, subject: str) -> None:
    """Raise MemoryError, before the system has to kill, for more than a share of the host memory that can be had."""
    if nbytes < SMALL_BYTES:
        return
    available = available_bytes()
    if available is not None and nbytes > MEMORY_SHARE * available:
        found = f"{available / 1e9:.3g} GB are available, of which {MEMORY_SHARE:.0%} may be taken"
        raise MemoryError(f"{subject} {nbytes / 1e9:.3g} GB of host memory; {found}")


def available_bytes() -> int | None:
    """Return the host memory that can still be had within the limit of the control group; None where it is unknown."""
    return min((found for found in (_free_of_system(), _free_of_group()) if found is not None), default=None)


def _free_of_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def _free_of_group() -> int | None:
    """Return what a container may still take; its page cache counts as used here, which errs on the safe side."""
    try:
        return int((CGROUP / "memory.max").read_text()) - int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no limit reads `max`
        return None


def whole_bytes() -> int | None:
    """The host memory that there is, within the limit of the control group."""
    found = []
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        found.append(int((CGROUP / "memory.max").read_text()))
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def resident_bytes(pid: int) -> int | None:
    """Return how much host memory a process holds."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def kills_by_system() -> int:
    """How many processes the system has killed for want of memory since it started, as far as it reports that."""
    kills = 0
    for path in (Path("/proc/vmstat"), CGROUP / "memory.events"):
        try:
            kills += sum(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("oom_kill "))
        except OSError:
            continue
    return kills
