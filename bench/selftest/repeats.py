"""Many runs of one product, planned, measured and stored as by `kernelmark run`; four checks share them.

The processes of a run start more than a minute apart, as in any run. To save hours, the runs of a series are
interleaved: the first process of each run, then the second of each, and so on. The second series begins when the first
has ended, and is compared with it.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Job, Plan, PlannedJob, WorkerKey
from kernelmark.bench.plan.case import jobs as planned_jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.welch import ALPHA, POWER, detectable, welch
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.session import Session
from kernelmark.bench.selftest.finding import Finding, Tick
from kernelmark.bench.selftest.known import SLOWED, plugin

SERIES, RUNS = 2, 60
#: On a machine that drifts by 2 to 3 %, five processes show a difference of 5 % in only four of ten tries.
PROCESSES = 10
PROBLEM, PLAIN, PLANTED = "gemm/m256n256k256/f32/NN", "gemm/numpy.matmul", "gemm/selftest.slowed"
#: One thread: with more, processes differ mostly by how the system places their threads.
PLAN = Plan(
    devices=("cpu",),
    kernels=(PLAIN, PLANTED),
    mode=Mode.HOT,
    threads=(1,),
    plugins=(plugin("timed"),),
    max_time_s=0.5,
    ceilings=False,
    processes=PROCESSES,
    suites=(PROBLEM,),
)
LEAST_COVERAGE, LARGEST_SPREAD = 0.9, 0.01
MOST_ALARMS, LEAST_FOUND = 0.1, 0.8
#: For each run, the times of its processes, in seconds.
Runs = Sequence[Sequence[float]]


class Repeat(NamedTuple):
    """One run: the interval of the plain product, and the processes' medians for the plain and the slowed product."""

    row: Interval
    plain: Sequence[float]
    planted: Sequence[float]


class NoTimeError(Exception):
    """One of kernelmark's kernels has failed."""


def jobs() -> int:
    """Return the number of jobs, each of which runs in its own process."""
    return SERIES * RUNS * PROCESSES


def check(tick: Tick) -> Iterator[Finding]:
    """Measure two series of runs, and yield the findings on them."""
    registry = discover(PLAN.plugins)
    suites = [find_suite(PROBLEM, registry)]
    (planned,) = planned_jobs(suites, registry, PLAN)
    try:
        with TemporaryDirectory() as folder, Store(Path(folder) / "selftest.db") as store:
            series = []
            for _ in range(SERIES):
                sessions = [Session(store, suites, PLAN, _fresh) for _ in range(RUNS)]
                _measure(sessions, planned, tick)
                series.append([_repeat(store, session.run_id) for session in sessions])
    except NoTimeError as error:
        yield Finding("repeats", str(error), "a time", False)
        return
    yield from judge(*series)


def _fresh(job: Job, key: WorkerKey) -> list[Measurement]:
    with Workers() as workers:
        return workers.run(job, key)


def _measure(sessions: Sequence[Session], planned: PlannedJob, tick: Tick) -> None:
    for process in itertools.count(1):
        left = [session for session in sessions if session.missing(planned)]
        if not left:
            break
        for session in left:
            session.measure(0, planned, process, PLAN.processes)
            if process <= PLAN.processes:  # `jobs` does not count processes that replace disturbed ones
                tick()


def _repeat(store: Store, run_id: str) -> Repeat:
    rows = {result.kernel: result for result, _ in store.results(run_id)}
    for row in rows.values():
        if None in (row.time_s_median, row.time_s_ci95_low, row.time_s_ci95_high):
            raise NoTimeError(f"{row.kernel}: {row.status}: {row.reason}")
    plain, planted = ([part.median_s for part in store.parts(run_id, rows[name].case)] for name in (PLAIN, PLANTED))
    plain_row = rows[PLAIN]
    ends: list[Any] = [plain_row.time_s_median, plain_row.time_s_ci95_low, plain_row.time_s_ci95_high]
    return Repeat(Interval(*ends), plain, planted)


def judge(first: Sequence[Repeat], second: Sequence[Repeat]) -> Iterator[Finding]:
    """Yield findings on all runs together, and on pairs of a run of the first series and a run of the second.

    Each pair is tested alone, so p-values are not corrected for multiple tests.
    """
    rows = [repeat.row for repeat in (*first, *second)]
    yield coverage(rows)
    yield spread(rows)
    base, new = ([repeat.plain for repeat in series] for series in (first, second))
    yield false_alarms(base, new)
    yield from planted(base, new, [repeat.planted for repeat in second])


def coverage(rows: Sequence[Interval]) -> Finding:
    """Return the finding on the share of runs whose 95 % interval contains the median of all runs' medians."""
    grand = median(row.median for row in rows)
    covering = sum(row.low <= grand <= row.high for row in rows)
    width = median(row.relative_width for row in rows)
    figure = f"{100 * covering / len(rows):.0f} % ({covering} of {len(rows)} runs); width {100 * width:.2f} %"
    bound = f"at least {100 * LEAST_COVERAGE:g} %"
    return Finding("coverage: 95 % intervals, 256^3 SGEMM", figure, bound, covering >= LEAST_COVERAGE * len(rows))


def spread(rows: Sequence[Interval]) -> Finding:
    """Return the finding on the coefficient of variation of `time_s_median` over the runs."""
    medians = [row.median for row in rows]
    variation = stdev(medians) / mean(medians)
    figure = f"CV {100 * variation:.2f} % over {len(rows)} runs"
    bound = f"{100 * LARGEST_SPREAD:g} %"
    return Finding("spread: time_s_median, 256^3 SGEMM", figure, bound, variation <= LARGEST_SPREAD)


def false_alarms(base: Runs, new: Runs) -> Finding:
    """Return the finding on false alarms: how often `compare` calls two runs of the same product different."""
    alarms = welch(base, new).p < ALPHA
    name, bound = f"aa: false alarms of compare, {100 * ALPHA:g} % stated", f"at most {100 * MOST_ALARMS:g} %"
    figure = f"{100 * alarms.mean():.0f} % ({alarms.sum()} of {len(alarms)} pairs)"
    return Finding(name, figure, bound, bool(alarms.mean() <= MOST_ALARMS))


def planted(base: Runs, new: Runs, slowed: Runs) -> Iterator[Finding]:
    """Yield findings: how often the slowed product is reported as slower, and the smallest detectable difference."""
    test = welch(base, slowed)
    hits = (test.p < ALPHA) & (test.ratio > 1)
    yield Finding(
        f"planted: {100 * (SLOWED - 1):.0f} % slower, found by compare",
        f"{100 * hits.mean():.0f} % ({hits.sum()} of {len(hits)} tries); {100 * np.median(test.ratio - 1):.2f} %",
        f"at least {100 * LEAST_FOUND:g} %",
        bool(hits.mean() >= LEAST_FOUND),
    )
    again = welch(base, new)
    smallest = float(np.median(detectable(again.error, again.freedom)))
    name = f"planted: smallest difference that is found in {100 * POWER:.0f} % of tries"
    yield Finding(name, f"{100 * smallest:.2g} %", "", None)
