"""Many runs of one product, planned, measured and stored as `kernelmark run` does; four checks share them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.isolation import Workers
from bench.measure.stats import Interval, pooled_interval
from bench.plan.case import Plan
from bench.plan.discovery import discover
from bench.plan.suites import find_suite
from bench.record.result import Result
from bench.record.store import Store
from bench.runner import Session, run_suites
from bench.selftest import comparing, headline
from bench.selftest.comparing import Runs
from bench.selftest.finding import Finding, Tick
from bench.selftest.known import plugin

RUNS, PROCESSES = 61, 5
PROBLEM, PLAIN, PLANTED = "gemm/m256n256k256/f32/NN", "gemm/numpy.matmul", "gemm/selftest.slowed"
#: One thread: with more, how the system places them is most of what differs from process to process.
PLAN = Plan(
    devices=("cpu",),
    kernels=(PLAIN, PLANTED),
    mode="hot",
    threads=(1,),
    plugins=(plugin("slowed"),),
    max_time_s=1.0,
    ceilings=False,
    processes=PROCESSES,
    suites=(PROBLEM,),
)


class Repeat(NamedTuple):
    """One run: the row of the product, and what each process found for the product and for the slowed one."""

    row: Interval
    plain: Sequence[float]
    planted: Sequence[float]


def check(tick: Tick) -> Iterator[Finding]:
    """The runs one after the other, and what they show."""
    registry = discover(PLAN.plugins)
    suites = [find_suite(PROBLEM, registry)]
    repeats = []
    with TemporaryDirectory() as folder, closing(Store(Path(folder) / "selftest.db")) as store, Workers() as workers:
        for _ in range(RUNS):
            session = Session(store, suites, PLAN, workers.run)
            if not run_suites(session, suites, registry, PLAN, lambda result: None):
                raise KeyboardInterrupt
            rows = {result.kernel: result for result, _ in store.results(session.run_id)}
            tick()
            if bad := [row for row in rows.values() if row.time_s_ci95_low is None]:
                yield Finding(f"repeats: {bad[0].kernel}", f"{bad[0].status}: {bad[0].reason}", "a time", False)
                return
            repeats.append(Repeat(_interval(rows[PLAIN]), *(_medians(store, rows[name]) for name in (PLAIN, PLANTED))))
    yield from judge(repeats)


def _interval(row: Result) -> Interval:
    median, low, high = row.time_s_median, row.time_s_ci95_low, row.time_s_ci95_high
    assert median is not None
    assert low is not None
    assert high is not None
    return Interval(median, low, high)


def _medians(store: Store, row: Result) -> list[float]:
    return [part.median_s for part in store.parts(row.run_id, row.case)]


def judge(repeats: Sequence[Repeat]) -> Iterator[Finding]:
    """What the runs show as they were, and for information what they had shown with their processes in turn.

    Where the machine drifts for longer than a run of one case takes, its processes agree with each other and not with
    those of the next run. The processes of a case that are spread over a long run see the drift.
    """
    plain, planted = [repeat.plain for repeat in repeats], [repeat.planted for repeat in repeats]
    yield from _figures([repeat.row for repeat in repeats], plain, planted)
    turned = in_turn(plain)
    rows = [pooled_interval([[median] for median in group]) for group in turned]
    for finding in _figures(rows, turned, in_turn(planted)):
        yield Finding(f"{finding.check}; processes in turn", finding.found, "", None)


def _figures(rows: list[Interval], plain: Runs, planted: Runs) -> Iterator[Finding]:
    yield headline.coverage(rows)
    yield headline.spread(rows)
    yield comparing.false_alarms(plain)
    yield from comparing.planted(plain, planted)


def in_turn(groups: Runs) -> Runs:
    """The processes dealt out anew in the order in which they ran: the n-th of each run comes from the n-th round."""
    flat = [median for group in groups for median in group]
    return [flat[start :: len(groups)] for start in range(len(groups))]
