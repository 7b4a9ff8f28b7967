"""How far the ratio of one product in two layouts differs from process to process."""

from collections.abc import Iterator
from statistics import mean, stdev

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import Ratio, speedup
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.selftest.finding import Finding, Tick, failures
from kernelmark.bench.selftest.known import plugin

PROCESSES = 20
BOUND = 0.015
KERNELS = ("selftest_pair/selftest.nn", "selftest_pair/selftest.nt")
#: Both on one thread: what differs between two is the order in which B is read, not how the threads were placed.
JOB = Job(("selftest_pair/n512/f32",), KERNELS, Mode.HOT, (plugin("pair"),), 0, Budget(max_time_s=1.0), 1, KERNELS[0])


def check(tick: Tick) -> Iterator[Finding]:
    """NT against NN in fresh processes, one after the other."""
    ratios = []
    for _ in range(PROCESSES):
        with Workers() as workers:
            rows = workers.run(JOB, WorkerKey("cpu", JOB.threads))
        tick()
        if bad := failures("ratio", rows):
            yield from bad
            return
        ratios.append(_ratio(rows))
    yield spread_of(ratios)


def _ratio(rows: list[Measurement]) -> Ratio:
    found = rows[1].ratio or speedup([rows[0].samples], [rows[1].samples])
    assert found is not None  # both are ok, and have six samples at the least
    return found


def spread_of(ratios: list[Ratio]) -> Finding:
    """The standard deviation of the processes' ratios over their mean."""
    spread, minima = (stdev(values) / mean(values) for values in _columns(ratios))
    centre = mean(ratio.median for ratio in ratios)
    found = f"sd {100 * spread:.2f} % over {len(ratios)} processes, of minima {100 * minima:.2f} %; NN/NT {centre:.4f}"
    return Finding("ratio: NT to NN at 512^3, one thread", found, f"{100 * BOUND:g} %", spread <= BOUND)


def _columns(ratios: list[Ratio]) -> tuple[list[float], list[float]]:
    return [ratio.median for ratio in ratios], [ratio.minima or 0.0 for ratio in ratios]
