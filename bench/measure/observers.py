"""Measure metrics of a contender other than its time, such as energy. Each metric has an observer."""

from typing import Any

from kernelmark.bench.measure import affinity
from kernelmark.bench.measure.device import Monitor
from kernelmark.bench.measure.monitor import means
from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.timing import now

#: Energy is not measured if the time limit of a case is shorter than this.
METERED_S = 1.0
#: Energy counters move in steps up to a tenth of a second apart, so short spans cannot be measured.
SPAN_S = 0.5
BURST_S = 10e-3
#: A counter that does not step for this long is taken to be stopped.
STEP_S = 1.0


class Observer:
    """Measures one metric of a contender. Subclasses override the methods that they need; OBSERVERS lists them all."""

    def __init__(self, series: Series, monitor: Monitor) -> None:
        self.series, self.monitor = series, monitor

    def before(self) -> None:
        """Read the state before the contender warms up; no other contender runs during warm-up."""

    def after(self) -> None:
        """Read the state after the contender has warmed up."""

    def results(self, max_time_s: float) -> dict[str, Any]:
        """Return values by column. Called after sampling, so that it may call the kernel without disturbing samples."""
        return {}


class Threads(Observer):
    """The number of threads that worked and the CPUs that they could use, for kernels on the CPU."""

    def before(self) -> None:
        self._began_s, self._times = now(), affinity.family_times()

    def after(self) -> None:
        self._count = affinity.working_threads(self._times, now() - self._began_s)

    def results(self, max_time_s: float) -> dict[str, Any]:
        """Call the kernel again, as it may use some threads only later; return `threads_used` and `affinity`."""
        if self.series.device.name != "cpu":
            return {}
        count = self._count
        self.before()
        self.series.burst(BURST_S)
        self.after()
        cpus = affinity.cpus_in(affinity.affinity()) | affinity.cpus_beyond(self._times)
        most = max((known for known in (count, self._count) if known), default=None)
        return {"threads_used": most, "affinity": affinity.listed(cpus)}


class Machine(Observer):
    """The state of the machine during the kept samples: clocks, temperature, power and load."""

    def results(self, max_time_s: float) -> dict[str, Any]:
        return means(self.series.windows)


class Energy(Observer):
    """Joules per call from the device's energy counter, never estimated from power."""

    def results(self, max_time_s: float) -> dict[str, Any]:
        """Return the joules per call of back-to-back calls, measured between two steps of the counter.

        Returns no value if there is no sensor, if the time limit is short, or if caches are evicted before each call.
        """
        if max_time_s < METERED_S or self.series.cold_by_eviction or self.monitor.energy_j() is None:
            return {}
        begin = self._until_step(0.0)
        end = self._until_step(SPAN_S) if begin else None
        if begin is None or end is None or end[1] < begin[1]:  # a counter that overflows begins again at zero
            return {}
        return {"energy_j": (end[1] - begin[1]) / end[0]}

    def _until_step(self, least_s: float) -> tuple[int, float] | None:
        """Call the kernel for `least_s` seconds and then until the counter steps; return call count and reading."""
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
