"""A run: pass jobs to the worker and rows to the store, until the suites are done or the user interrupts."""

import secrets
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from socket import gethostname
from typing import Any

import msgspec

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.measure.machine import environment, machine
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.timing import now, pause
from kernelmark.bench.plan.case import Entrant, Plan, PlannedJob, case_of
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import only_utf8
from kernelmark.bench.plan.signals import interruptible
from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.text import as_utf8
from kernelmark.bench.record.columns import Result, make_result
from kernelmark.bench.record.records import unlike
from kernelmark.bench.record.store import Layer, Run, Store
from kernelmark.bench.run.ceilings import Ceilings, Known
from kernelmark.bench.run.commit import git_commit
from kernelmark.bench.run.crashes import Execute
from kernelmark.bench.run.passes import counted, is_settled, merge, only, planned_processes, still_good
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.variants import set_against_variants

Notify = Callable[[Result], None]
Jobs = Callable[[], Iterable[PlannedJob]]


def ignore_row(row: Result) -> None:
    """Do nothing with a row; the default of `notify`."""


class Session:
    """A run that a store records: it is begun or resumed, and then measures the jobs that it is given."""

    def __init__(
        self,
        store: Store,
        suites: list[Suite],
        plan: Plan,
        execute: Execute | None,
        resume: str | None = None,
        noisy_again: bool = False,
        known: Known | None = None,
        **facts: Any,
    ) -> None:
        """execute: None if an executor measures (dispatch.py). noisy_again: repeat disturbed cases.

        known: measured peak rates, shared by consecutive runs until they are stale. facts: fields of the run's record.
        """
        self.plan, self._store, self._execute = plan, store, execute
        self._registry = discover(plan.plugins, plan.timeout_s)
        self.tally: Counter[str] = Counter()
        run = msgspec.structs.replace(_run_of(suites, plan), **facts)
        if resume is None:
            store.begin(run)
        else:
            run = taken_up(store, resume, run, noisy_again)
            self.tally.update(store.statuses(run.run_id))
        self.run_id = run.run_id
        self._cases = store.recorded(run.run_id) if resume is not None else set()
        self._places: dict[str, int] = {}
        self._taken = resume is not None  # only a resumed run may have measurements of earlier processes
        self._ceilings: Ceilings | None = None
        if plan.ceilings and plan.mode.does.times and execute is not None:
            keep, doubt = (partial(method, self.run_id) for method in (store.add_ceiling, store.doubt_ceiling))
            earlier = partial(store.earlier_ceilings, self.run_id)
            self._ceilings = Ceilings(self._registry, execute, keep, doubt, earlier, known)

    def note(self, planned: PlannedJob) -> None:
        """Record the network that the job is a layer of, if any."""
        if planned.part:
            name = f"{planned.suite} {planned.network}".strip()
            for problem in planned.job.problems:
                self._store.add_layer(self.run_id, Layer(name, problem, planned.part, planned.count), planned.place)

    def missing(self, planned: PlannedJob) -> PlannedJob | None:
        """Return the part of the job still to be measured, with its baselines, or None if nothing is left.

        Suites, and sweeps in a suite, may overlap: if several jobs have the same case, only the first job in the plan
        measures it, in all processes. A run may be resumed in the middle of a job.
        """
        job = planned.job
        left = []
        for entrant in job.entrants:
            case = case_of(job, entrant.problem, self._registry.kernels[entrant.kernel])
            if case not in self._cases and self._places.setdefault(case, planned.place) == planned.place:
                left.append(entrant)
        bases = {Entrant(problem, job.baseline_of(problem) or "") for problem, _ in left}
        keep = [entrant for entrant in job.entrants if entrant in left or entrant in bases]
        return only(planned, keep) if left else None

    def measure(
        self, number: int, planned: PlannedJob, process: int = 1, processes: int = 1
    ) -> list[tuple[Result, Measurement]]:
        """Measure the job with this number in the plan, in one of its processes, unless that is done already.

        After the last process, commit and return the job's rows; before that, store each process's measurements.
        """
        before = runs = self._store.pending(self.run_id, number) if self._taken else []
        left = still_good(planned, before) if len(before) < process else None
        if left:
            assert self._execute is not None, "a session without `execute` cannot measure"
            runs = [*before, self._execute(left.job, msgspec.structs.replace(left.key, process=process))]
        if not is_settled(planned, runs, processes):
            if left:
                self._taken = True
                self._store.set_aside(self.run_id, number, process, runs[-1])
            return []
        measured = merge(counted(runs, processes), planned.job.baseline_of)
        if self._ceilings is not None:  # compares with the present ceilings
            self._ceilings.apply(planned.job, measured)
        rows = self.record(planned, measured)
        if before:
            self._store.forget(self.run_id, number)
        return rows

    def record(self, planned: PlannedJob, measurements: list[Measurement]) -> list[tuple[Result, Measurement]]:
        """Commit the rows of a job; a case that already has a row in the run keeps it."""
        set_against_variants(measurements, self._registry)
        rows = []
        for measured in measurements:
            kernel, problem = self._registry.kernels[measured.kernel], self._registry.problem(measured.problem)
            result = make_result(measured, kernel, problem, planned, self.run_id, git_commit())
            if result.case not in self._cases:
                samples, parts = (measured.samples, measured.parts) if result.samples else ([], [])
                measured_parts = samples, measured.over_baseline, parts, measured.evidence
                self._store.add(result, problem.dims(), *measured_parts, planned.place)
                self._cases.add(result.case)
                self.tally[result.status] += 1
            rows.append((result, measured))
        return rows

    def finish(self) -> None:
        """Record the end of the run."""
        self._store.finish(self.run_id, datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def against(self) -> int:
        """The number of rows whose status makes the command fail."""
        return sum(self.tally[status] for status in AGAINST)


def new_run_id(started: datetime) -> str:
    """Return a new id for a run that begins at this time; imported runs get their ids here, too."""
    return f"{started:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def _run_of(suites: list[Suite], plan: Plan) -> Run:
    started, command = datetime.now(UTC), shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    with only_utf8():
        msgspec.json.encode(plan)
    return Run(
        run_id=new_run_id(started),
        machine=machine(),
        started_at=started.isoformat(timespec="seconds"),
        suites=tuple(suite.name for suite in suites),
        command=as_utf8(command),  # names of output files may have any bytes
        environment=environment(),
        git_commit=git_commit(),
        plan={**msgspec.to_builtins(plan), "suite_digests": [suite.digest for suite in suites]},
    )


def run_jobs(
    session: Session,
    jobs: Jobs,
    notify: Notify = ignore_row,
    progress: Progress | None = None,
    plan: Plan | None = None,
) -> bool:
    """Measure everything; return True if not interrupted. After a signal the current job has ten seconds to finish."""
    with interruptible() as interrupted:
        if run_passes(session, jobs, notify, progress, interrupted, plan):
            session.finish()
        return not interrupted()


def run_passes(
    session: Session,
    jobs: Jobs,
    notify: Notify = ignore_row,
    progress: Progress | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    plan: Plan | None = None,
) -> bool:
    """Pass over all jobs once per process, so that a case's processes are far apart; the last pass stores the rows.

    Jobs that were disturbed in a pass get further passes. notify: called with each row; progress: receives the
    notifications. plan: sets the number of processes and the time between them; by default the session's plan. Returns
    whether all jobs are done.
    """
    plan, progress = plan or session.plan, progress or Progress()
    last = planned_processes(plan)
    for process in count(1):
        began, unsettled = now(), process < last
        for number, planned in enumerate(jobs()):
            if interrupted():
                return False
            session.note(planned)
            left = session.missing(planned)
            if left is not None:
                progress.begins(left, process)
                rows = session.measure(number, left, process, last)
                unsettled |= not rows
                for result, _ in rows:
                    notify(result)
            progress.ends(planned, process)
        if not unsettled:
            break
        # Without waiting, the next process would find the machine in the same state as the last.
        while (left_s := began + plan.spread_s - now()) > 0 and not interrupted():
            progress.waits(left_s)
            pause(min(left_s, 1.0))
    return True


def plan_of(store: Store, run_id: str) -> Plan:
    """Return the plan of a run. Raises UsageError for a run that cannot be resumed."""
    recorded = store.run(run_id)
    _refuse_merged(recorded)
    return _recorded_plan(recorded, "--resume", "the command that began the tuning continues it")


def plan_again(store: Store, run_id: str) -> Plan:
    """Return the plan for reproducing a run on the same values. Raises UsageError."""
    recorded = store.run(run_id)
    plan = _recorded_plan(recorded, "--reproduce", "name the suites")
    return msgspec.structs.replace(plan, shard=None, reproduce=recorded.run_id)


def _recorded_plan(run: Run, option: str, if_tuned: str) -> Plan:
    try:
        plan = msgspec.convert(run.plan, Plan)
    except msgspec.ValidationError as error:
        raise UsageError(f"{option} {run.run_id}: its plan is damaged: {error}; start a new run") from None
    if plan.tunes:
        raise UsageError(f"{option} {run.run_id}: is a run of `kernelmark tune`; {if_tuned}")
    if not plan.suites:
        raise UsageError(f"{option} {run.run_id}: the run has no record of its suites; name them")
    return plan


def taken_up(store: Store, run_id: str, now: Run, noisy_again: bool = False) -> Run:
    """Return the run with this id. Raises UsageError unless its plan, machine and environment are unchanged.

    noisy_again: disturbed cases will be measured again.
    """
    store.require_sound()
    before = store.run(run_id)
    _refuse_merged(before)
    host, here = store.pending_host(before.run_id), gethostname()
    if host not in ("", here):  # their processes would be pooled in one interval
        what = f"has processes of host {host}, which are not pooled with those of {here}"
        raise UsageError(f"--resume {before.run_id}: {what}; resume it there, or start a new run")
    runs = [msgspec.json.decode(msgspec.json.encode(run)) for run in (before, now)]  # so that tuples become lists
    differences = [
        f"{leaf} was {was} and is {here}"
        for name in ("machine", "environment", "git_commit", "suites", "plan")
        for leaf, (was, here) in unlike(name.removeprefix("git_"), [run[name] for run in runs])
    ]
    if differences:
        what = "; ".join(differences[:3]) + (f"; and {len(differences) - 3} more" if len(differences) > 3 else "")
        raise UsageError(f"--resume {before.run_id}: {what}; only an unchanged run can be resumed; start a new one")
    if noisy_again:
        with held_run(store.path, before.run_id, "start a run of your own"):  # no process may be measuring it
            store.remove_noisy(before.run_id)
    return before


def _refuse_merged(run: Run) -> None:
    if "shards" in run.plan:
        remedy = "resume the shard where it was measured, and merge it again"
        raise UsageError(f"--resume {run.run_id}: is merged from shards; {remedy}")
