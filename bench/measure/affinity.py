"""Choose the CPUs of a worker, and count the threads that have worked."""

import math
import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from operator import sub
from pathlib import Path
from typing import NamedTuple

CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
PROC = Path("/proc")
CPUINFO = PROC / "cpuinfo"
#: A thread that ran for less than this share of the busiest thread's time counts as waiting, not working.
WORKING_SHARE = 0.1
_PIECE_BYTES = 2**16
#: The id of the process that adopts orphaned descendants of this process; empty without a keeper.
_keeper: list[str] = []
#: Functions of `os` and `resource`, bound before a plug-in could replace them.
_usage = resource.getrusage
_open, _read, _close, _list = os.open, os.read, os.close, os.listdir


class Spent(NamedTuple):
    """A thread's run time and the time that it has waited for a CPU, in nanoseconds."""

    ran_ns: int
    waited_ns: int


def pin(threads: int) -> None:
    """Pin this process to `threads` of its CPUs; do nothing if it has no more CPUs than that."""
    if not hasattr(os, "sched_setaffinity"):
        return
    usable = os.sched_getaffinity(0)
    if threads >= len(usable):
        return
    chosen = spread(usable, threads)
    # Threads that libraries started at import would keep their CPUs, so each is pinned; 0 is the calling thread.
    for task in names(PROC / "self/task") or ["0"]:
        with suppress(ProcessLookupError):  # the thread has ended meanwhile
            os.sched_setaffinity(int(task), chosen)


def spread(usable: Iterable[int], count: int) -> list[int]:
    """Choose `count` CPUs: the first hardware thread of each core, NUMA node by NUMA node, then the others."""
    left = set(usable)
    nodes = [sorted(node & left) for node in _nodes()] or [sorted(left)]
    nodes.sort(key=lambda node: -len(_first_of_each_core(node)))  # the node with the most usable cores first
    firsts = [cpu for node in nodes for cpu in _first_of_each_core(node)]
    seconds = [cpu for node in nodes for cpu in node if cpu not in firsts]
    return sorted((firsts + seconds)[:count])


def _first_of_each_core(cpus: list[int]) -> list[int]:
    return [cpu for cpu in cpus if cpu == min(core_of(cpu) & set(cpus))]


def core_of(cpu: int) -> frozenset[int]:
    """Return the hardware threads of this CPU's core, including the CPU itself."""
    return _core_of(CPUS, cpu)


@lru_cache
def _core_of(root: Path, cpu: int) -> frozenset[int]:
    for name in ("core_cpus_list", "thread_siblings_list"):  # the second is the older name
        try:
            return frozenset(cpus_in((root / f"cpu{cpu}/topology/{name}").read_text()) | {cpu})
        except (OSError, ValueError):
            continue
    return frozenset({cpu})


def _nodes() -> list[set[int]]:
    """Return the CPUs of each NUMA node; none if the system does not report nodes."""
    try:
        return [cpus_in(path.read_text()) for path in sorted(NODES.glob("node*/cpulist"))]
    except (OSError, ValueError):
        return []


def cpus_in(text: str) -> set[int]:
    """Return the CPUs of a list in the Linux kernel's notation: `0-3,8`."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return {cpu for low, _, high in ranges for cpu in range(int(low), int(high or low) + 1)}


def affinity() -> str:
    """Return the CPUs that this process may use, such as `0-3,8`; "" if the system does not support affinity."""
    return listed(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ""


def listed(cpus: Iterable[int]) -> str:
    """Return the CPUs as a list in the Linux kernel's notation: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def cpu_facts() -> dict[str, str]:
    """Return the fields of the first CPU in /proc/cpuinfo by name; none if the system has no such file."""
    facts: dict[str, str] = {}
    with suppress(OSError):
        for line in CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
    return facts


def working_threads(before: Mapping[str, Spent], seconds: float) -> int | None:
    """Return how many threads have worked at once since `family_times` returned `before`, or None if unknown.

    Threads that take turns count as one. All threads that hardly worked count together as one if their total time is
    large enough, since a kernel may have a separate thread for each operand set. If there is only one CPU, descendants'
    threads do not count.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    grown = _grown(before, family_times() if cpus > 1 else _times(["self"]))
    ran = [spent.ran_ns for spent in grown.values()]
    if (busiest := max(ran, default=0)) <= 0:
        return None
    worked = [ns for ns in ran if ns > WORKING_SHARE * busiest]
    count = len(worked) + (sum(ran) - sum(worked) > WORKING_SHARE * busiest)
    at_once = math.ceil(sum(map(sum, grown.values())) * 1e-9 / seconds - WORKING_SHARE)
    return max(1, min(count, at_once, cpus if cpus > 1 else count))  # threads of several pools may outnumber CPUs


def family_times() -> dict[str, Spent]:
    """Return the times of each thread of this process and its descendants, by thread id."""
    return _times([*process_tree("self"), *adopted()])


def _grown(before: Mapping[str, Spent], after: Mapping[str, Spent]) -> dict[str, Spent]:
    zero = Spent(0, 0)
    return {task: Spent(*map(sub, spent, before.get(task, zero))) for task, spent in after.items()}


def _times(processes: Iterable[str]) -> dict[str, Spent]:
    _usage(resource.RUSAGE_SELF)  # makes the system count this thread's time up to now, not up to the last tick
    times = {}
    for process in processes:
        tasks = f"{PROC}/{process}/task"
        for task in names(tasks):
            with suppress(OSError, ValueError, TypeError):  # the thread has ended, or the system keeps no times
                times[task] = Spent(*map(int, contents(f"{tasks}/{task}/schedstat").split()[:2]))
    return times


def process_tree(pid: str) -> Iterator[str]:
    """Yield the ids of a process and its descendants, or only the process's own id if the system lists no children."""
    processes = [pid]
    for process in processes:
        yield process
        processes += children_of(process)


def set_keeper(pid: int) -> None:
    """Record the process that adopts this process's orphaned descendants; this process must be its only own child."""
    _keeper[:] = [str(pid)]


def keeper() -> list[str]:
    """Return a list with the id of the process that adopts this process's descendants; empty if there is none."""
    return list(_keeper)


def adopted() -> Iterator[str]:
    """Yield the ids of descendants of this process that its keeper has adopted, and of their descendants."""
    for child in (child for pid in _keeper for child in children_of(pid)):
        if child != str(os.getpid()):
            yield from process_tree(child)


def children_of(pid: str) -> list[str]:
    """Return the ids of a process's children; none if the system does not list children."""
    children, tasks = [], f"{PROC}/{pid}/task"  # strings, since Path objects would double the time
    for task in names(tasks):
        with suppress(OSError):  # the thread has ended meanwhile
            children += contents(f"{tasks}/{task}/children").decode().split()
    return children


def cpus_beyond(before: Mapping[str, Spent]) -> set[int]:
    """Return the CPUs outside this process's affinity on which its other threads or descendants may have worked.

    before: an earlier result of `family_times`. The set is empty if threads outside the affinity have hardly run since.
    """
    grown = {task: spent.ran_ns for task, spent in _grown(before, family_times()).items()}
    beyond: set[int] = set()
    spent_ns = 0  # summed, since each operand set may have a separate thread
    for task, ns in grown.items():
        with suppress(ProcessLookupError):
            if ns > 0 and (others := os.sched_getaffinity(int(task)) - os.sched_getaffinity(0)):
                beyond |= others
                spent_ns += ns
    return beyond if spent_ns > WORKING_SHARE * max(grown.values(), default=0) else set()


def contents(path: Path | str) -> bytes:
    """Return the contents of a file; twice as fast as Path.read_text. Raises OSError."""
    fd, data = _open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while piece := _read(fd, _PIECE_BYTES):
            data += piece
    finally:
        _close(fd)
    return data


def names(folder: Path | str) -> list[str]:
    """Return the names of a folder's entries, faster than Path.iterdir; none if the folder does not exist."""
    try:
        return _list(folder)
    except OSError:
        return []
