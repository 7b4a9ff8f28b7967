"""Many runs of one product, planned, measured and stored as `kernelmark run` does; four checks share them.

The processes of a run lie more than a minute apart, as those of any run do. So that this takes minutes and not hours,
the runs of a series are under way at once: the first process of each, then the second of each. One series is compared
with another that begins when the first is over.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Job, Plan, PlannedJob, WorkerKey, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.run.session import Session
from kernelmark.bench.selftest import comparing, headline
from kernelmark.bench.selftest.finding import Finding, Tick
from kernelmark.bench.selftest.known import plugin

SERIES, RUNS = 2, 60
#: With five, a difference of 5 % is found in four tries of ten only, on a machine that drifts by 2 to 3 %.
PROCESSES = 10
PROBLEM, PLAIN, PLANTED = "gemm/m256n256k256/f32/NN", "gemm/numpy.matmul", "gemm/selftest.slowed"
#: One thread: with more, how the system places them is most of what differs from process to process.
PLAN = Plan(
    devices=("cpu",),
    kernels=(PLAIN, PLANTED),
    mode=Mode.HOT,
    threads=(1,),
    plugins=(plugin("slowed"),),
    max_time_s=0.5,
    ceilings=False,
    processes=PROCESSES,
    suites=(PROBLEM,),
)


class Repeat(NamedTuple):
    """One run: the row of the product, and what each process found for the product and for the slowed one."""

    row: Interval
    plain: Sequence[float]
    planted: Sequence[float]


class NoTimeError(Exception):
    """A kernel of ours has failed."""


def count() -> int:
    """Return how many processes there are."""
    return SERIES * RUNS * PROCESSES


def check(tick: Tick) -> Iterator[Finding]:
    """Two series of runs, and what they show."""
    registry = discover(PLAN.plugins)
    suites = [find_suite(PROBLEM, registry)]
    (planned,) = jobs(suites, registry, PLAN)
    try:
        with TemporaryDirectory() as folder, closing(Store(Path(folder) / "selftest.db")) as store:
            series = []
            for _ in range(SERIES):
                sessions = [Session(store, suites, PLAN, _fresh) for _ in range(RUNS)]
                _measure(sessions, planned, registry, tick)
                series.append([_repeat(store, session.run_id) for session in sessions])
    except NoTimeError as error:
        yield Finding("repeats", str(error), "a time", False)
        return
    yield from judge(*series)


def _fresh(job: Job, key: WorkerKey) -> list[Measurement]:
    """A process that has done nothing before."""
    with Workers() as workers:
        return workers.run(job, key)


def _measure(sessions: Sequence[Session], planned: PlannedJob, registry: Registry, tick: Tick) -> None:
    for process in itertools.count(1):
        left = [session for session in sessions if session.missing(planned, registry)]
        if not left:
            break
        for session in left:
            session.measure(0, planned, registry, process, PLAN.processes)
            if process <= PLAN.processes:  # `count` has no further ones
                tick()


def _repeat(store: Store, run_id: str) -> Repeat:
    rows = {result.kernel: result for result, _ in store.results(run_id)}
    for row in rows.values():
        if row.time_s_ci95_low is None:
            raise NoTimeError(f"{row.kernel}: {row.status}: {row.reason}")
    plain, planted = ([part.median_s for part in store.parts(run_id, rows[name].case)] for name in (PLAIN, PLANTED))
    return Repeat(_interval(rows[PLAIN]), plain, planted)


def _interval(row: Result) -> Interval:
    median, low, high = row.time_s_median, row.time_s_ci95_low, row.time_s_ci95_high
    assert median is not None
    assert low is not None
    assert high is not None
    return Interval(median, low, high)


def judge(first: Sequence[Repeat], second: Sequence[Repeat]) -> Iterator[Finding]:
    """What two series of runs show: all of them together, and each of one against its counterpart in the other."""
    rows = [repeat.row for repeat in (*first, *second)]
    yield headline.coverage(rows)
    yield headline.spread(rows)
    base, new = ([repeat.plain for repeat in series] for series in (first, second))
    yield comparing.false_alarms(base, new)
    yield from comparing.planted(base, new, [repeat.planted for repeat in second])
