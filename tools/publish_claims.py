"""The experiments of claims in `make publish`: tasks of the report's agenda, each measured as a run of its own.

A claim is judged by the rows of one run: that of its experiment, or else that of the suites. Where the store has that
run no more, the verdict of the report that has it stands.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import agenda
from agenda import Agenda, Task
from kernelmark.bench.claims.answer import Answer, claims_rows, untestable
from kernelmark.bench.claims.catalog import claims, experiment_names
from kernelmark.bench.claims.evidence import Known, planned
from kernelmark.bench.claims.prices import Prices
from kernelmark.bench.claims.views import read_csv
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.measure.sources import task_digest
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import PlannedJob, case_count
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.publish import CLAIMS, noise
from kernelmark.bench.report.tables import status_line
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.run.session import Session, interruptible, run_passes

#: The task that is the run of the suites.
OF_SUITES = "suites"
#: Seconds of a case beside its sampling, as the suites take them: set-up, references, two verifications, slow calls.
CASE_S = 0.7


def digest(jobs: Iterable[PlannedJob], registry: Registry) -> str:
    """Return the digest of what jobs measure. Raises UsageError."""
    problems: dict[str, list[Problem]] = {}
    for problem, kernel in dict.fromkeys(entrant for one in jobs for entrant in one.job.entrants):
        problems.setdefault(kernel, []).append(registry.problem(problem))
    return task_digest([(registry.named(kernel), own) for kernel, own in problems.items()], H100)


def goes_on(store: Store, run: str, noisy_anyway: bool) -> bool:
    """Return whether a run was cut off, or has disturbed cases that are not to be published."""
    expected = store.run(run).planned
    cut = expected is not None and sum(store.statuses(run).values()) < expected
    return cut or bool(noise(store, {"": run}).noisy and not noisy_anyway)


class Experiments:
    """The experiments that this CPU can make: measured until the time is over, then judged. suites: their run."""

    def __init__(
        self, store: Store, found: Agenda, folder: Path, registry: Registry, suites: str, anyway: bool = False
    ) -> None:
        self._store, self._agenda, self._registry = store, found, registry
        self._suites, self._anyway = suites, anyway
        self._earlier = {one.id: one for one in read_csv(folder / CLAIMS)}
        self._known = set(store.run_ids())
        answers = found.answers.items()
        found.answers = {name: one for name, one in answers if name == OF_SUITES or self._stands(name, one)}
        self.tasks = agenda.timed(self._tasks(), found)

    def _stands(self, task: str, one: agenda.Answer) -> bool:
        """Whether the rows that an answer rests on are in the store, or else its verdicts in the report."""
        if one.state == "failed":  # was noisy
            return one.run in self._known and not self._anyway
        return one.run in self._known or all(
            (known := self._earlier.get(claim.id))
            and (known.number, known.expected) == (claim.number, str(claim.confirm))
            for claim in claims()
            if f"claim {claim.experiment}" == task
        )

    def _tasks(self) -> Iterator[Task]:
        judged, here = Counter(claim.experiment for claim in claims()), machine()
        known = Known(self._store, [self._suites])
        for name in experiment_names():
            plan, jobs = planned(name, self._registry, ("cpu",))
            cases = case_count(jobs, self._registry)
            if untestable(name, here) or not cases:
                continue
            pass_s = cases * ((plan.max_time_s or 0.0) + CASE_S)
            seconds = (plan.processes - 1) * max(pass_s, plan.spread_s) + pass_s
            yield Task(
                name=f"claim {name}", kind="claim", detail=name, value=judged[name],
                digest=digest(jobs, self._registry),
                seconds=seconds if known.lacks(plan, jobs, self._registry) else 0.0,
            )  # fmt: skip

    def measure(self, until_s: float) -> None:
        """Measure open experiments that fit, those first that most claims rest on per second."""
        waiting = list(self.tasks)
        while chosen := agenda.slot(waiting, self._agenda, until_s - now()).chosen:
            waiting.remove(chosen[0])
            self._answer(chosen[0], until_s)

    def _answer(self, task: Task, until_s: float) -> None:
        """Answer a task by the run of the suites, where that has its rows, by a run that is there, or by a new one."""
        command, began = f"make publish: {task.name} at {task.digest}", now()
        before = [self._suites] if not task.seconds else []
        before += [run for run in self._store.run_ids() if self._store.run(run).command == command]
        run = before[-1] if before else ""
        if not run or goes_on(self._store, run, self._anyway):
            run = self._run(task, command, run, until_s)
        if goes_on(self._store, run, noisy_anyway=True):  # cut off
            return
        noisy = noise(self._store, {"": run})
        state: Literal["done", "failed"] = "failed" if noisy.noisy and not self._anyway else "done"
        text = noisy.sentence or status_line(self._store.statuses(run))
        one = agenda.Answer(
            digest=task.digest, state=state, run=run, at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", text=text,
            seconds=0.0 if before else round(now() - began, 2), expected_s=round(task.seconds, 2), assumed=task.assumed,
        )  # fmt: skip
        agenda.answer(self._agenda, task, one)
        print(f"publish: {task.name}: {text}", flush=True)

    def _run(self, task: Task, command: str, begun: str, until_s: float) -> str:
        plan, jobs = planned(task.detail, self._registry, ("cpu",))
        own: dict[str, Any] = {"command": command, "planned": case_count(jobs, self._registry)}
        with Workers() as workers, interruptible() as interrupted:

            def session(resume: str | None) -> Session:
                again = resume is not None and not self._anyway
                return Session(self._store, [], plan, workers.run, resume, again, **own)

            try:
                measuring = session(begun or None)
            except UsageError as error:
                print(f"publish: {error}", file=sys.stderr)
                measuring = session(None)
            if run_passes(measuring, lambda: jobs, interrupted=lambda: interrupted() or now() >= until_s):
                measuring.finish()
            if interrupted():
                raise KeyboardInterrupt
        return measuring.run_id

    def _done(self) -> dict[str, str]:
        return {name: one.run for name, one in self._agenda.answers.items() if one.state == "done"}

    @property
    def runs(self) -> dict[str, str]:
        """Return the runs of the answers that the store has, by what each was for; without that of the suites."""
        known = set(self._store.run_ids()) - {self._suites}
        return {name: run for name, run in self._done().items() if run in known}

    def judged(self, prices: Prices) -> list[Answer]:
        """Return every claim with its verdict, each from the rows of one run."""
        done, asked, found = self._done(), dict[str, list[str]](), dict[str, Answer]()
        for claim in claims():
            asked.setdefault(done.get(f"claim {claim.experiment}", self._suites), []).append(claim.id)
        for run, names in asked.items():
            if run in self._store.run_ids():
                found |= {
                    one.id: one for one in claims_rows(self._store, [run], self._registry, prices, names, here=True)
                }
            else:
                found |= {name: self._earlier[name] for name in names}
        return [found[claim.id] for claim in claims()]

    def left(self) -> str:
        """Return the experiments without an answer, each with the reason and the command that goes on with it."""
        lines = []
        for task in self.tasks:
            one = self._agenda.answers.get(task.name)
            why = one.text if one and one.state == "failed" else f"no time was left to finish it ({task.seconds:.0f} s)"
            if agenda.is_open(task, self._agenda):
                lines.append(f"- {task.detail}: {why}; `make publish` goes on with it")
            elif one and one.state == "failed":
                lines.append(f"- {task.detail}: {why}; `make publish PUBLISH_ARGS=--noisy-anyway` publishes it")
        return "\n".join(lines)
