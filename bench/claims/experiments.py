"""Measure, in a new run, the rows of claims' experiments that no run of this machine has."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple

from kernelmark.bench.claims.answer import untestable
from kernelmark.bench.claims.catalog import Claim, Experiment, experiment
from kernelmark.bench.claims.evidence import Chosen, Known, planned
from kernelmark.bench.measure.devices import choose_devices
from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Plan, PlannedJob
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import count
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.session import Session, run_jobs

#: Seconds after which no problem is begun, since a problem may take a minute and `claims` promises ten minutes.
BUDGET_S = 510.0


class ExperimentRuns(NamedTuple):
    """The runs of this machine, the latest last. finished: False if interrupted. against: the number of failed rows."""

    run_ids: list[str]
    finished: bool = True
    against: int = 0


def own_runs(store: Store) -> list[str]:
    """Return the runs whose recorded facts all match this machine, the latest last. Old runs recorded fewer facts."""
    here = json.loads(json.dumps(machine()))
    known = {run_id: store.run(run_id).machine for run_id in store.run_ids()}
    return [run_id for run_id, facts in known.items() if facts and facts.items() <= here.items()]


def measure_missing(
    store: Store, claims: Sequence[Claim], registry: Registry, say: Callable[[str], None], budget_s: float = BUDGET_S
) -> ExperimentRuns:
    """Measure missing rows of experiments. Raises UsageError if another run uses the GPU. say: prints a message."""
    run_ids, devices, here = own_runs(store), choose_devices("auto"), machine()
    by_id = {e.id: e for e in (experiment(claim) for claim in claims if not claim.lacks)}
    known = Known(store, run_ids)
    able = [(e, *planned(e, registry, devices)) for e in by_id.values() if not untestable(e.id, here)]
    left = [(e, plan, missing) for e, plan, jobs in able if (missing := known.lacks(plan, jobs, registry))]
    if not left:
        return ExperimentRuns(run_ids)
    suites: list[Suite] = [Chosen(name=jobs[0].suite, title=e.title) for e, _, jobs in left]
    names = tuple(name for e, *_ in left for name in e.problems)
    with exclusive(devices, False), Workers() as workers:
        session = Session(store, suites, Plan(devices, ceilings=False, suites=names), workers.run)
        say(f"run {session.run_id} measures missing rows, for at most about {(budget_s + 90) / 60:.0f} minutes")
        end_s, finished = now() + budget_s, True
        for e, plan, jobs in left:
            finished = finished and _measure(session, e, plan, jobs, say, end_s)
    return ExperimentRuns([*run_ids, session.run_id], finished, session.against)


def _measure(
    session: Session, e: Experiment, plan: Plan, jobs: list[PlannedJob], say: Callable[[str], None], end_s: float
) -> bool:
    """Measure comparison groups one after another until time is up; return False if the user interrupts."""

    def problems() -> str:
        return count(len({problem for each in chain(*groups) for problem in each.job.problems}), "problem")

    began_s, rows = now(), Counter[str]()
    groups = [list(group) for _, group in groupby(jobs, key=lambda planned: planned.job.problems)]
    say(f"{e.id}: {e.title}; {problems()}")
    while groups and now() < end_s:
        # Passes over all problems keep the processes of one problem apart in time.
        batch = groups if plan.processes > 1 else groups[:1]
        if not run_jobs(session, partial(chain, *batch), lambda r: rows.update([r.status]), plan=plan):
            return False
        groups = groups[len(batch) :]
    if groups:
        say(f"  out of time: {problems()} are left; the same command continues with them")
    statuses = ", ".join(f"{number} {status}" for status, number in rows.items()) or "no rows"
    say(f"  {statuses} in {now() - began_s:.0f} s")
    return True
