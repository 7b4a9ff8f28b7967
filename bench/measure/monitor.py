"""Read the state of the machine, and name the disturbances between two readings."""

import math
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kernelmark.bench.measure.affinity import (
    CPUINFO,
    CPUS,
    PROC,
    adopted,
    contents,
    core_of,
    cpu_facts,
    keeper,
    process_tree,
)
from kernelmark.bench.measure.device import Window
from kernelmark.bench.measure.memory import CGROUP, control_groups, number_in
from kernelmark.bench.measure.timing import now

STAT = PROC / "stat"
POWERCAP = Path("/sys/class/powercap")
#: A window is disturbed if other processes use more than OTHERS_CPUS of our CPUs, or the hypervisor takes more than
#: STEAL_PCT per cent of our CPUs' time.
OTHERS_CPUS = 0.1
STEAL_PCT = 2.0
#: The step of the counters in /proc/stat. Load that rounding to this step could explain is ignored.
TICK_S = 0.01
OTHERS = "other processes used {:#.2g} CPUs"
STEAL = "the hypervisor took {:.2g} % of the time"
QUOTA = "the control group's CPU quota withheld {:.2g} CPUs"
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
#: Of a process's four times in /proc/PID/stat, the user and system time of its children that have ended.
_ENDED = slice(2, 4)
#: Functions of `resource` and `os`, bound before a plug-in could replace them.
_usage, _SELF, _REAPED = resource.getrusage, resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
_wait = getattr(os, "waitid", None)


class Unwatched:
    """The monitor of a device that reports no state."""

    def look(self) -> Window:
        return Window(0.0)

    def clock_mhz(self) -> float | None:
        return None

    def energy_j(self) -> float | None:
        return None


def means(windows: Sequence[Window]) -> dict[str, float]:
    """Return each column's mean over the windows, weighted by their length."""
    sums: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for window in windows:
        for column, value in window.state.items():
            sums[column] = sums.get(column, 0.0) + value * window.seconds
            seconds[column] = seconds.get(column, 0.0) + window.seconds
    return {column: total / seconds[column] for column, total in sums.items() if seconds[column]}


class _Cpus(NamedTuple):
    """The counters of a set of CPUs, in seconds from an arbitrary zero: total, idle, and stolen by the hypervisor."""

    counted_s: float
    idle_s: float
    steal_s: float


class _Reading(NamedTuple):
    """The counters at one time: CPU time that we used, the counters of all CPUs, and those of our CPUs.

    "We" are this process and its descendants, since a transfer between two processes keeps both at work.
    """

    at_s: float
    own_s: float
    every: _Cpus
    ours: _Cpus
    cpus: int


class CpuMonitor:
    """The monitor of CPU clock, load and steal time; other processes on our cores count as a disturbance."""

    def __init__(self) -> None:
        self._cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._ours = sorted({sibling for cpu in self._cpus for sibling in core_of(cpu)})
        self._scaling = _scaling_files(CPUS, tuple(self._cpus))
        self._began_s, self._denied_s = now(), math.nan
        self._before: _Reading | None = None

    def look(self) -> Window:
        """Return the means since the last reading. Load is missing at the first reading, or if /proc/stat lacks it."""
        began_s, denied_s, before = self._began_s, self._denied_s, self._before
        self._began_s, self._denied_s, self._before = now(), _denied_s(), self._read()
        mhz, seconds = self.clock_mhz(), self._began_s - began_s
        state, denied_s = {} if mhz is None else {"clock_mhz": mhz}, self._denied_s - denied_s
        quota = {QUOTA: denied_s / seconds} if denied_s > STEAL_PCT / 100 * seconds else {}
        if before is None or self._before is None or before.every.counted_s == self._before.every.counted_s:
            return Window(seconds, state, quota)
        spent = _difference(before, self._before)
        load, steal_pct = _taken(spent, spent.every, spent.cpus)
        return Window(spent.at_s, state | {"load": load, "steal_pct": steal_pct}, self._causes(spent) | quota)

    def _causes(self, spent: _Reading) -> dict[str, float]:
        """Return disturbances that exceed counter rounding, by cause; a sum of n counters is off by sqrt(n) steps."""
        count = len(self._ours)
        step = TICK_S * (1 if count == spent.cpus else math.sqrt(count)) / spent.at_s
        others, steal_pct = _taken(spent, spent.ours, count)
        causes = {}
        if others - step > OTHERS_CPUS:
            causes[OTHERS] = others
        if steal_pct - 100 * step / count > STEAL_PCT:
            causes[STEAL] = steal_pct
        return causes

    def _read(self) -> _Reading | None:
        try:
            lines = [line.split() for line in contents(STAT).splitlines() if line.startswith(b"cpu")]
        except OSError:
            return None
        counters = {name: _counters(words) for name, *words in lines}
        every = counters.pop(b"cpu")
        ours = [counters[name] for cpu in self._ours if (name := b"cpu%d" % cpu) in counters]
        if counters and len(ours) < len(self._ours):  # a container may number the CPUs in /proc/stat differently
            return None
        if len(ours) == len(counters):  # the total is rounded once, a sum of rounded counters several times
            ours = [every]
        used = [seconds for usage in map(_usage, (_SELF, _REAPED)) for seconds in (usage.ru_utime, usage.ru_stime)]
        usage = ours[0] if len(ours) == 1 else _Cpus(*(math.fsum(column) for column in zip(*ours, strict=True)))
        return _Reading(now(), math.fsum(used) + _below_s(), every, usage, len(counters))

    def clock_mhz(self) -> float | None:
        """Return the mean clock of the CPUs that we may use, in MHz, if the system measures it."""
        scaling = [khz / 1000 for path in self._scaling if (khz := number_in(path)) is not None]
        known = scaling or _counted_mhz(self._cpus)
        return math.fsum(known) / len(known) if known else None

    def energy_j(self) -> float | None:
        """Return the energy counter of the processor packages (RAPL, all processes), or None if it may not be read."""
        try:
            return math.fsum(int(path.read_text()) for path in _package_counters()) * 1e-6 or None
        except (OSError, ValueError):
            return None


def _below_s() -> float:
    """Return the CPU seconds of descendants that this process has not reaped; 0 if the system does not list children.

    Included are descendants that the keeper (this process's parent, family.py) has adopted or reaped.
    """
    below = [*islice(process_tree("self"), 1, None)] if has_children() else []
    return math.fsum([*map(_spent_s, below), *map(_spent_s, adopted()), *(_spent_s(pid, _ENDED) for pid in keeper())])


def _spent_s(pid: str, which: slice = slice(None)) -> float:
    """Return the CPU seconds of a process and of its ended children; with `_ENDED`, only of the ended children."""
    with suppress(OSError, ValueError, IndexError):  # the process has ended meanwhile
        words = contents(f"{PROC}/{pid}/stat").rpartition(b")")[2].split()
        return math.fsum(int(word) for word in words[11:15][which]) * TICK_S
    return 0.0


def has_children() -> bool:
    """Return whether this process has a child, without reading the children of each of its threads."""
    try:
        if _wait:
            _wait(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # leaves the child's status for a later wait
    except ChildProcessError:
        return False
    return _wait is not None


def _denied_s() -> float:
    """Return the seconds for which CPU quotas have throttled the threads of this process's control groups."""
    denied_s = 0.0
    for file, name, unit_s in _throttled(CGROUP):
        with suppress(OSError):
            lines = contents(file).splitlines()
            denied_s += sum(int(line.split()[1]) * unit_s for line in lines if line.startswith(name))
    return denied_s


@lru_cache
def _throttled(root: Path) -> tuple[tuple[str, bytes, float], ...]:
    """Return the files that count throttled time (control groups of version 2 and 1), with their counters and units."""
    counters = {2: (b"throttled_usec ", 1e-6), 1: (b"throttled_time ", 1e-9)}
    files = ((folder / "cpu.stat", *counters[version]) for version, folder in control_groups(root, "cpu"))
    return tuple((str(file), name, unit_s) for file, name, unit_s in files if file.exists())


def _counters(words: list[bytes]) -> _Cpus:
    seconds = [int(word) * TICK_S for word in words]
    return _Cpus(math.fsum(seconds), seconds[_IDLE] + seconds[_IOWAIT], seconds[_STEAL])


def _difference(early: _Reading, late: _Reading) -> _Reading:
    every, ours = (
        _Cpus(*(b - a for a, b in zip(first, second, strict=True)))
        for first, second in ((early.every, late.every), (early.ours, late.ours))
    )
    return _Reading(late.at_s - early.at_s, late.own_s - early.own_s, every, ours, late.cpus)


def _taken(spent: _Reading, cpus: _Cpus, count: int) -> tuple[float, float]:
    """Return how many of `count` CPUs other processes used, and the per cent of time that the hypervisor stole.

    The first is computed from idle time, which is exact to a step of the counter; busy time may be sampled at ticks.
    """
    others_s = count * spent.at_s - cpus.idle_s - cpus.steal_s - spent.own_s
    return max(0.0, others_s) / spent.at_s, 100 * cpus.steal_s / (count * spent.at_s)


@lru_cache
def _scaling_files(root: Path, cpus: tuple[int, ...]) -> tuple[Path, ...]:
    """Return the files with each CPU's clock; cached, since most virtual machines have none and searching is slow."""
    files = (root / f"cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in cpus)
    return tuple(file for file in files if file.exists())


def _counted_mhz(cpus: Sequence[int]) -> list[float]:
    """Return the clocks in /proc/cpuinfo, in MHz; none without the flag `aperfmperf`, since they are constants then."""
    if not _counts_cycles():
        return []
    words = [line.partition(":") for line in CPUINFO.read_text().splitlines()]
    numbers = [int(value) for name, _, value in words if name.strip() == "processor"]
    clocks = [float(value) for name, _, value in words if name.strip() == "cpu MHz"]
    return [mhz for cpu, mhz in zip(numbers, clocks, strict=False) if cpu in cpus]


@lru_cache
def _counts_cycles() -> bool:
    return "aperfmperf" in cpu_facts().get("flags", "").split()


@lru_cache
def _package_counters() -> tuple[Path, ...]:
    """Return the energy counters of whole packages; the counters of cores and memory would count energy twice."""
    try:
        zones = [path.parent for path in POWERCAP.glob("*/name") if path.read_text().startswith("package-")]
    except OSError:
        return ()
    return tuple(zone / "energy_uj" for zone in zones)
