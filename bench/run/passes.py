"""Combine the processes of a job: choose the processes that count, and merge each contender's measurements."""

import math
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import msgspec

from kernelmark.bench.measure.disturbance import ran_beyond, was_noisy
from kernelmark.bench.measure.measurement import BETWEEN, RULES, Measurement
from kernelmark.bench.measure.ratio import speedup
from kernelmark.bench.measure.stats import pooled_interval
from kernelmark.bench.plan.case import Entrant, Plan, PlannedJob
from kernelmark.bench.plan.status import Status

Process = Sequence[Measurement]


def planned_processes(plan: Plan) -> int:
    """Return the number of processes in which each job of a plan is measured."""
    return plan.processes if plan.mode.does.times else 1


def is_settled(planned: PlannedJob, measured: Sequence[Process], processes: int) -> bool:
    """Return whether the job needs no further process: enough were undisturbed, or the limit is reached.

    Disturbed processes may be replaced by at most `processes // 2` additional ones. The decision depends on
    disturbances, not on samples. If all contenders have failed, nothing is left to measure.
    """
    if still_good(planned, measured) is None or len(measured) >= processes + processes // 2:
        return True
    return sum(map(_stands, measured)) >= processes


def counted(measured: Sequence[Process], processes: int) -> Sequence[Process]:
    """Return the processes that count for the row, in order; undisturbed ones are preferred."""
    ranked = sorted(range(len(measured)), key=lambda place: (not _stands(measured[place]), place))
    return [measured[place] for place in sorted(ranked[:processes])]


def _stands(process: Process) -> bool:
    """Return whether a process needs no replacement: it was undisturbed, or a contender failed in it."""
    failed = any(measured.status != Status.OK for measured in process)
    return failed or not any(was_noisy(measured.disturbed) for measured in process)


def merge(runs: Sequence[Process], baseline_of: Callable[[str], str | None]) -> list[Measurement]:
    """Merge the rows of several processes, with intervals that include the variation between processes.

    baseline_of: returns the baseline of a problem. A kernel that failed in any process has failed. Ratios are formed
    only between kernels that were measured in turn in every process. The rows of a single process stay unchanged.
    """
    if len(runs) == 1:
        return list(runs[0])
    by_entrant = {m.entrant: [row for run in runs for row in run if row.entrant == m.entrant] for m in runs[0]}
    merged = {entrant: _merge(rows, len(runs)) for entrant, rows in by_entrant.items()}
    for entrant, row in merged.items():
        base = merged.get(Entrant(entrant.problem, baseline_of(entrant.problem) or ""))
        in_turn = base and base is not row and base.interval and row.interval and row.job == base.job
        if base and in_turn and not ran_beyond(base.disturbed + row.disturbed):
            row.over_baseline = speedup(_groups(by_entrant[base.entrant]), _groups(by_entrant[entrant]))
    return list(merged.values())


def still_good(planned: PlannedJob, runs: Sequence[Process]) -> PlannedJob | None:
    """Return the job without contenders that failed in an earlier process, or None if none is left."""
    bad = {measured.entrant for rows in runs for measured in rows if measured.status != Status.OK}
    good = [entrant for entrant in planned.job.entrants if entrant not in bad]
    return only(planned, good) if good else None


def only(planned: PlannedJob, entrants: Collection[Entrant]) -> PlannedJob:
    """Return the job with only these contenders."""
    return msgspec.structs.replace(planned, job=planned.job.only(entrants))


def _groups(measured: Sequence[Measurement]) -> list[list[float]]:
    return [row.samples for row in measured]


def _merge(measured: Sequence[Measurement], processes: int) -> Measurement:
    for number, row in enumerate(measured, 1):
        if row.status != Status.OK:
            where = "" if number == 1 else f"in process {number} of {processes}: "
            return msgspec.structs.replace(row, reason=where + row.reason)
    values = {name: rule([getattr(row, name) for row in measured]) for name, rule in RULES.items()}
    first, last = (datetime.fromisoformat(row.started_at) for row in (measured[0], measured[-1]))
    spread_s = (last - first).total_seconds()
    closest = max(measured, key=lambda row: (row.max_error or 0.0) / (row.error_bound or math.inf))
    values |= {"max_error": closest.max_error, "error_bound": closest.error_bound}
    values |= {"interval": pooled_interval(_groups(measured)), "interval_scope": BETWEEN, "spread_s": spread_s}
    return Measurement(**values)
