"""Whether cold is cold: a copy that fits the caches, from memory and from them."""

from collections.abc import Iterator
from statistics import mean

from bench.plan.case import Budget, Job, WorkerKey
from bench.plan.modes import Mode
from bench.run.pool import Workers
from bench.selftest.finding import Finding, Tick, failures

#: Forward and backward, so that a drift of the machine falls on both alike.
ORDER = (Mode.COLD, Mode.HOT, Mode.HOT, Mode.COLD)
BOUND = 2.0
PROBLEM, KERNEL = "copy/m512n512/f32", "copy/numpy.copyto"


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


def slower(cold: list[float], hot: list[float]) -> Finding:
    """Return how many times the cold copy takes of the hot one's time."""
    ratio = mean(cold) / mean(hot)
    found = f"{ratio:.2f} times slower ({1e6 * mean(cold):.3g} us, hot {1e6 * mean(hot):.3g} us)"
    return Finding("cold: a copy of 1 MB, cold against hot", found, f"at least {BOUND:g}", ratio >= BOUND)
