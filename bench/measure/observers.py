"""Metrics of a contender besides its time: an observer for each."""

from typing import Any

from kernelmark.bench.measure.affinity import (
    affinity,
    cpus_beyond,
    cpus_in,
    family_times,
    listed,
    thread_times,
    working_threads,
)
from kernelmark.bench.measure.device import Monitor
from kernelmark.bench.measure.monitor import means
from kernelmark.bench.measure.sample import Series

#: With less time than this a case, none is spent on energy.
METERED_S = 1.0
#: The counters of energy move in steps, up to a tenth of a second apart: short spans say nothing.
SPAN_S = 0.5
BURST_S = 10e-3
#: A counter that takes no step for this long counts nothing.
STEP_S = 1.0


class Observer:
    """Measures one metric of a contender. A subclass overrides what it needs and is listed in OBSERVERS."""

    def __init__(self, series: Series, monitor: Monitor) -> None:
        self.series, self.monitor = series, monitor

    def before(self) -> None:
        """Look before the contender warms up, which it does alone on the machine."""

    def after(self) -> None:
        """Look after it has warmed up."""

    def results(self, max_time_s: float) -> dict[str, Any]:
        """Return values by column once the samples are taken; a call of the kernel now disturbs none of them."""
        return {}


class Threads(Observer):
    """The threads that worked, and the CPUs that they could use; for kernels on the CPU."""

    def before(self) -> None:
        self._times = thread_times()

    def after(self) -> None:
        self._count = working_threads(self._times)

    def results(self, max_time_s: float) -> dict[str, Any]:
        """Look for work on other CPUs once more, since a kernel may begin it after its threads have been counted."""
        if self.series.device.name != "cpu":
            return {}
        before = family_times()
        self.series.burst(BURST_S)
        return {"threads_used": self._count, "affinity": listed({*cpus_in(affinity()), *cpus_beyond(before)})}


class Machine(Observer):
    """The state of the machine during the kept samples: clocks, temperature, power, load."""

    def results(self, max_time_s: float) -> dict[str, Any]:
        return means(self.series.windows)


class Energy(Observer):
    """Joules a call by the device's own counter, never estimated from power."""

    def results(self, max_time_s: float) -> dict[str, Any]:
        """Measure calls back to back between one step of the counter and another.

        Empty without a sensor, and if only eviction makes calls cold, since calls back to back are not.
        """
        if max_time_s < METERED_S or self.series.cold_by_eviction or self.monitor.energy_j() is None:
            return {}
        begin = self._until_step(0.0)
        end = self._until_step(SPAN_S) if begin else None
        if begin is None or end is None or end[1] < begin[1]:  # a counter that overflows begins again at zero
            return {}
        return {"energy_j": (end[1] - begin[1]) / end[0]}

    def _until_step(self, least_s: float) -> tuple[int, float] | None:
        """Call until `least_s` have passed and the counter then steps; return the number of calls and its reading."""
        now, calls = self.series.clock.now, 0
        began, before = now(), None
        while now() - began < least_s + STEP_S:
            if now() - began >= least_s:
                joules = self.monitor.energy_j()
                if joules is None:
                    return None
                if before is not None and joules != before:
                    return calls, joules
                before = joules
            calls += self.series.burst(BURST_S)
        return None


OBSERVERS: tuple[type[Observer], ...] = (Threads, Machine, Energy)
