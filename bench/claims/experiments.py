"""The experiments of claims: the rows that no run of this machine has yet are measured, into a run of their own."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kernelmark.bench.claims.catalog import Claim, Experiment, experiment
from kernelmark.bench.claims.evidence import Known
from kernelmark.bench.claims.problems import Layered, chosen, grouped, missing_here, plan
from kernelmark.bench.measure.devices import choose_devices
from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.run.session import Session, run_suites

#: Seconds after which no problem is begun: one may take a minute, and ten minutes are the promise.
BUDGET_S = 510.0
#: Called with each line of progress.
Say = Callable[[str], None]


class Measured(NamedTuple):
    """The runs of this machine, the latest last; whether all was measured that can be; rows that went against it."""

    run_ids: list[str]
    finished: bool = True
    against: int = 0


def own_runs(store: Store) -> list[str]:
    """Return the runs that were made on this machine, the latest last.

    Older runs know fewer facts of their machine; those that they know must agree.
    """
    here = json.loads(json.dumps(machine()))
    known = {run_id: store.run(run_id).machine for run_id in store.run_ids()}
    return [run_id for run_id, facts in known.items() if facts and facts.items() <= here.items()]


def measure_missing(
    store: Store, claims: Sequence[Claim], registry: Registry, say: Say, budget_s: float = BUDGET_S
) -> Measured:
    """Measure what the claims' experiments lack. Raises UsageError where another run is using the GPU."""
    run_ids, devices = own_runs(store), choose_devices("auto")
    left = _left(Known(store, run_ids), claims, registry, devices)
    if not left:
        return Measured(run_ids)
    suites = [chosen(layers, asked.together) for asked, layers in left]
    whole = Plan(devices, ceilings=False, suites=tuple(name for asked, _ in left for name in asked.problems))
    with exclusive(devices, False), Workers() as workers:
        session = Session(store, suites, whole, workers.run)
        say(f"run {session.run_id} measures what is missing, for at most about {(budget_s + 90) / 60:.0f} minutes")
        end_s, finished = now() + budget_s, True
        for asked, layers in left:
            finished = finished and _measure(session, asked, layers, registry, plan(asked, devices), say, end_s)
    return Measured([*run_ids, session.run_id], finished, session.against)


def _left(
    known: Known, claims: Sequence[Claim], registry: Registry, devices: tuple[str, ...]
) -> list[tuple[Experiment, list[Layered]]]:
    """Return the experiments that can be made here and lack something, each once, with what is missing."""
    asked = {e.id: e for e in (experiment(claim) for claim in claims if not claim.lacks) if not missing_here(e)}
    found = ((e, known.lacks(e, registry, devices)) for e in asked.values())
    return [(e, layers) for e, layers in found if layers]


def _measure(
    session: Session,
    asked: Experiment,
    layers: Sequence[Layered],
    registry: Registry,
    how: Plan,
    say: Say,
    end_s: float,
) -> bool:
    """Measure group by group of siblings until the time is over; False where the user interrupts."""
    began_s, rows = now(), Counter[str]()
    say(f"{asked.id}: {asked.title}; {len(layers)} problem{'s' * (len(layers) > 1)}")
    left = grouped(layers, asked.together)
    while left and now() < end_s:
        # Several processes are passes over all problems, so that the measurements of one lie further apart.
        batch = left if asked.processes > 1 else left[:1]
        suite = chosen([layer for group in batch for layer in group], asked.together)
        if not run_suites(session, [suite], registry, how, lambda r: rows.update([r.status])):
            return False
        left = left[len(batch) :]
    if left:
        say(f"  the time is over: {sum(map(len, left))} problems are left; the same command goes on with them")
    statuses = ", ".join(f"{count} {status}" for status, count in rows.items()) or "no rows"
    say(f"  {statuses} in {now() - began_s:.0f} s")
    return True
