"""Whether cold is cold: a copy that fits the caches, from memory and from them; on a GPU, one that asks to stay."""

from collections.abc import Iterator
from statistics import mean

from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.selftest.finding import Finding, Tick, failures
from kernelmark.bench.selftest.known import plugin

#: Forward and backward, so that a drift of the machine falls on both alike.
ORDER = (Mode.COLD, Mode.HOT, Mode.HOT, Mode.COLD)
BOUND = 2.0
PROBLEM, KERNEL = "copy/m512n512/f32", "copy/numpy.copyto"
#: On a GPU: a copy that asks that its input stays in L2, held to one that does not.
PERSISTING, LEAST = ("copy/cuda.vectorised", "copy/selftest.persists"), 0.95


def jobs() -> int:
    """Return how many jobs there are here."""
    return len(ORDER) + ("cuda" in devices_present())


def check(tick: Tick) -> Iterator[Finding]:
    """Time one copy of 1 MB, cold and hot in turn."""
    times: dict[Mode, list[float]] = {Mode.COLD: [], Mode.HOT: []}
    with Workers() as workers:
        for mode in ORDER:
            rows = workers.run(Job((PROBLEM,), (KERNEL,), mode, (), 0, Budget(max_time_s=1.0), 1), WorkerKey("cpu", 1))
            tick()
            if bad := failures("cold", rows):
                yield from bad
                return
            times[mode] += [row.interval.median for row in rows if row.interval]
    yield slower(times[Mode.COLD], times[Mode.HOT])
    if "cuda" in devices_present():
        with Workers() as workers:
            job = Job((PROBLEM,), PERSISTING, Mode.COLD, (plugin("cheats"),), 0, Budget(max_time_s=1.0), 1)
            rows = workers.run(job, WorkerKey("cuda", 1))
        tick()
        yield from failures("cold", rows) or [persisting(*rows)]


def slower(cold: list[float], hot: list[float]) -> Finding:
    """Return how many times the cold copy takes of the hot one's time."""
    ratio = mean(cold) / mean(hot)
    found = f"{ratio:.2f} times slower ({1e6 * mean(cold):.3g} us, hot {1e6 * mean(hot):.3g} us)"
    return Finding("cold: a copy of 1 MB, cold against hot", found, f"at least {BOUND:g}", ratio >= BOUND)


def persisting(honest: Measurement, asking: Measurement) -> Finding:
    """Return the time of a cold copy that asks for lines in L2, by that of one that does not."""
    assert honest.interval
    assert asking.interval
    ratio = asking.interval.median / honest.interval.median
    found = f"{ratio:.2f} of the time of one that does not"
    return Finding("cold: a copy that asks to stay in L2", found, f"at least {LEAST:g}", ratio >= LEAST)
