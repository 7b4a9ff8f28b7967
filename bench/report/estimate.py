"""Estimate the time and the storage of a run before it begins, from earlier runs on this machine."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from kernelmark.bench.plan.case import Plan, PlannedJob
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.merge import MERGED
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.records import RunFacts

#: Suite, problem and instruction set.
_Key = tuple[str, str, str]


class Estimate(NamedTuple):
    """The time of a run. seconds, low_s, high_s: sums of each case's median, shortest and longest time in earlier runs.

    runs: the earlier runs. unknown: the number of cases that no earlier run measured; the sums leave them out. limit_s:
    the sum of the time limits of the unknown cases. row_bytes: bytes of a row in the store, or None without rows.
    """

    cases: int
    seconds: float
    low_s: float
    high_s: float
    runs: list[str]
    unknown: int
    limit_s: float
    row_bytes: float | None


def estimate(store: Reader | None, jobs: Sequence[PlannedJob], plan: Plan, machine: Mapping[str, Any]) -> Estimate:
    """Estimate the time of jobs from earlier runs on a machine with these facts. store: None if no store exists yet."""
    runs = [run for run in store.runs() if run["machine"] == machine] if store else []
    timed = [run for run in runs if _is_alike(run, plan)]
    known: dict[_Key, list[float]] = {}
    used: dict[str, None] = {}
    wanted = {(planned.suite, name, planned.job.isa) for planned in jobs for name in planned.job.problems}
    for run in timed:
        assert store
        for key, seconds in _case_seconds(store, run):
            if key in wanted:
                known.setdefault(key, []).append(seconds)
                used[run["run_id"]] = None
    cases = [
        ((planned.suite, name, planned.job.isa), planned.job) for planned in jobs for name, _ in planned.job.entrants
    ]
    taken = [known[key] for key, _ in cases if key in known]
    limits = [job.budget.max_time_s for key, job in cases if key not in known]
    passes = plan.processes if plan.mode.does.times else 1
    rows = sum(tally.rows for tallies in store.tallies().values() for tally in tallies) if store else 0
    return Estimate(
        cases=len(cases),
        seconds=passes * sum(map(median, taken)),
        low_s=passes * sum(map(min, taken)),
        high_s=passes * sum(map(max, taken)),
        runs=list(used),
        unknown=len(limits),
        limit_s=passes * sum(limits),
        row_bytes=store.path.stat().st_size / rows if store and rows else None,
    )


def _is_alike(run: RunFacts, plan: Plan) -> bool:
    """Return whether a run is complete, not made by `merge` or `tune`, and has the plan's options that affect time."""
    recorded, options = run["plan"], ("mode", "max_time_s", "rel_ci", "ceilings", "timeout_s")
    alike = all(recorded.get(name) == getattr(plan, name) for name in options)
    return alike and run["finished_at"] is not None and run["command"] != MERGED and not recorded.get("tunes")


def _case_seconds(store: Reader, run: RunFacts) -> Iterator[tuple[_Key, float]]:
    """Yield the seconds per case in each job of a run: the time until the next job, divided by the number of cases."""
    began = store.jobs_begun(run["run_id"])
    if run["plan"].get("processes", 1) == 1 and began and run["finished_at"]:
        began = [*began, began[-1]._replace(started_at=run["finished_at"])]
    for job, following in pairwise(began):
        seconds = max(0.0, _seconds(store, job.started_at, following.started_at)) / job.rows
        yield from (((job.suite, problem, job.isa), seconds) for problem in job.problems.split(","))


def _seconds(store: Reader, start: str, end: str) -> float:
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError) as error:
        raise UsageError(f"{store.path}: cannot be read: {error}; --db names another file") from None
