"""What a call costs in energy, by a counter of the device's own; never estimated from power."""

from kernelmark.bench.measure.device import Monitor
from kernelmark.bench.measure.series import Series

#: The counters move in steps, up to a tenth of a second apart: short spans say nothing.
SPAN_S = 0.5
BURST_S = 10e-3
#: A counter that takes no step for this long counts nothing.
STEP_S = 1.0


def energy_per_call_j(series: Series, monitor: Monitor) -> float | None:
    """Joules a call, of calls back to back between one step of the counter and another.

    None without a sensor, and where calls are cold by eviction alone, which back to back they would not be.
    """
    if series.cold_by_eviction or monitor.energy_j() is None:
        return None
    begin = _until_step(series, monitor, 0.0)
    end = _until_step(series, monitor, SPAN_S) if begin else None
    if begin is None or end is None or end[1] < begin[1]:  # a counter that overflows begins again at zero
        return None
    return (end[1] - begin[1]) / end[0]


def _until_step(series: Series, monitor: Monitor, least_s: float) -> tuple[int, float] | None:
    """Call until `least_s` have passed and the counter then steps; return the number of calls and its reading."""
    began, calls = series.clock.now(), 0
    before = None
    while series.clock.now() - began < least_s + STEP_S:
        if series.clock.now() - began >= least_s:
            joules = monitor.energy_j()
            if joules is None:
                return None
            if before is not None and joules != before:
                return calls, joules
            before = joules
        calls += series.burst(BURST_S)
    return None
