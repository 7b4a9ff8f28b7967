"""Publish a report of this machine's CPU: `make publish` writes it to `reports/<machine>/`, which grows.

The suites are measured first, then experiments of claims while there is time. The store is kept: a run that was cut off
is resumed, and in a run that was refused as noisy, only disturbed cases are measured again. A task whose digest has an
answer in `agenda.json` is not measured again. A claim is judged by the rows of one run: its experiment's run, or
otherwise the suites' run. If the store no longer has this run, the earlier report's verdict is kept. The exit status is
0 if the report was written, 1 if a kernel failed a check, 2 if the report was refused, 130 after Ctrl-C.
"""

import argparse
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import agenda
from agenda import Agenda, Task
from kernelmark.bench.claims.answer import Answer, claims_rows, untestable
from kernelmark.bench.claims.catalog import claims, experiment_names
from kernelmark.bench.claims.evidence import Known, planned
from kernelmark.bench.claims.prices import Prices, load_prices
from kernelmark.bench.claims.views import read_csv, write_files
from kernelmark.bench.measure.cpu import cpu_count, cpu_name
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.measure.sources import task_digest
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Plan, PlannedJob, case_count, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.signals import interruptible
from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import count
from kernelmark.bench.report.publish import CLAIMS, Publication, Report, folder_name, noise, refuse_noise, write
from kernelmark.bench.report.publish_index import Price, write_index
from kernelmark.bench.report.tables import status_line
from kernelmark.bench.run.commit import git_commit
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.session import Session, run_passes

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("founding", "smoke", "filter-sweep", "alexnet", "transposition")
PROCESSES, SPREAD_S = 5, 60.0
# The suites have 544 cases on the CPU, 17 of which are in two: founding 19, smoke 213, filter-sweep 105, alexnet 124,
# transposition 100. With this limit sampling takes 544 x 0.1 s = 54 s, and about 150 s more for cases in which six
# samples take longer (the founding product: half a second a call). Set-up, references and two verifications take as
# long again, so a process takes seven minutes on two cores, and five processes 35. A process takes longer than
# SPREAD_S, so the next one begins at its end.
MAX_TIME_S = 0.1
#: Minutes for everything. Measuring ends PUBLISH_S seconds earlier, to leave time for figures, tables and claims.
MINUTES, PUBLISH_S = 45.0, 60.0
#: The name of the task that runs the suites.
OF_SUITES = "suites"
#: Seconds of a case in addition to its sampling, as in the suites: set-up, references, verifications, slow calls.
CASE_S = 0.7


def digest(jobs: Iterable[PlannedJob], registry: Registry) -> str:
    by_kernel: dict[str, list[Problem]] = {}
    for problem, kernel in dict.fromkeys(entrant for job in jobs for entrant in job.job.entrants):
        by_kernel.setdefault(kernel, []).append(registry.problem(problem))
    return task_digest([(registry.named(kernel), problems) for kernel, problems in by_kernel.items()], H100)


def goes_on(store: Store, run: str, noisy_anyway: bool) -> bool:
    """Return whether to resume a run: whether it was cut off, or has disturbed cases that may not be published."""
    expected = store.run(run).planned
    cut = expected is not None and sum(store.statuses(run).values()) < expected
    return cut or bool(noise(store, {"": run}).noisy and not noisy_anyway)


class Experiments:
    """The experiments possible on this CPU: measured while there is time, then judged. suites: the suites' run."""

    def __init__(
        self, store: Store, agenda_: Agenda, folder: Path, registry: Registry, suites: str, anyway: bool = False
    ) -> None:
        self._store, self._agenda, self._registry = store, agenda_, registry
        self._suites, self._anyway = suites, anyway
        self._earlier = {row.id: row for row in read_csv(folder / CLAIMS)}
        self._known = set(store.run_ids())
        answers = agenda_.answers.items()
        agenda_.answers = {name: answer for name, answer in answers if name == OF_SUITES or self._stands(name, answer)}
        self.tasks = agenda.timed(self._tasks(), agenda_)

    def _stands(self, task: str, answer: agenda.Answer) -> bool:
        if answer.state == "failed":  # was noisy
            return answer.run in self._known and not self._anyway
        return answer.run in self._known or all(
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
        """Measure the open experiments that fit, those with the most claims per second first."""
        waiting = list(self.tasks)
        while chosen := agenda.slot(waiting, self._agenda, until_s - now()).chosen:
            waiting.remove(chosen[0])
            self._answer(chosen[0], until_s)

    def _answer(self, task: Task, until_s: float) -> None:
        """Record a task's answer: the suites' run if it has the rows, else an earlier run of the task, or a new one."""
        command, began = f"make publish: {task.name} at {task.digest}", now()
        before = [self._suites] if not task.seconds else []
        before += [run for run in self._store.run_ids() if self._store.run(run).command == command]
        run = before[-1] if before else ""
        if not run or goes_on(self._store, run, self._anyway):
            run = self._run(task, command, run, until_s)
        if goes_on(self._store, run, noisy_anyway=True):  # cut off
            return
        noisy = noise(self._store, {"": run})
        text = noisy.sentence or status_line(self._store.statuses(run))
        failed, seconds = bool(noisy.noisy) and not self._anyway, 0.0 if before else now() - began
        agenda.answer(self._agenda, task, text, failed, run, seconds)
        print(f"publish: {task.name}: {text}", flush=True)

    def _run(self, task: Task, command: str, begun: str, until_s: float) -> str:
        plan, jobs = planned(task.detail, self._registry, ("cpu",))
        facts: dict[str, Any] = {"command": command, "planned": case_count(jobs, self._registry)}
        with Workers() as workers, interruptible() as interrupted:

            def session(resume: str | None) -> Session:
                again = resume is not None and not self._anyway
                return Session(self._store, [], plan, workers.run, resume, again, **facts)

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
        return {name: answer.run for name, answer in self._agenda.answers.items() if answer.state == "done"}

    @property
    def runs(self) -> dict[str, str]:
        known = set(self._store.run_ids()) - {self._suites}
        return {name: run for name, run in self._done().items() if run in known}

    def judged(self, prices: Prices) -> list[Answer]:
        done, claims_of_run, verdicts = self._done(), dict[str, list[str]](), dict[str, Answer]()
        for claim in claims():
            claims_of_run.setdefault(done.get(f"claim {claim.experiment}", self._suites), []).append(claim.id)
        for run, names in claims_of_run.items():
            if run in self._store.run_ids():
                rows = claims_rows(self._store, [run], self._registry, prices, names, here=True)
                verdicts |= {row.id: row for row in rows}
            else:
                verdicts |= {name: self._earlier[name] for name in names}
        return [verdicts[claim.id] for claim in claims()]

    def left(self) -> str:
        lines = []
        for task in self.tasks:
            answer = self._agenda.answers.get(task.name)
            failed = answer if answer and answer.state == "failed" else None
            why = failed.text if failed else f"no time was left to finish it ({task.seconds:.0f} s)"
            if agenda.is_open(task, self._agenda):
                lines.append(f"- {task.detail}: {why}; `make publish` continues it")
            elif failed:
                lines.append(f"- {task.detail}: {why}; `make publish PUBLISH_ARGS=--noisy-anyway` publishes it")
        return "\n".join(lines)


def main(words: Sequence[str] = ()) -> int:
    options = _options(words)
    title = f"{cpu_name()}, {count(cpu_count(), 'CPU')}"
    folder = options.out / folder_name(title)
    db = options.db or ROOT / "out" / "publish" / f"{folder.name}.db"
    prices, until_s = load_prices(options.prices), now() + 60 * options.minutes - PUBLISH_S
    agenda_, registry = agenda.read(folder, title), discover()
    if options.fresh:
        db.unlink(missing_ok=True)
    suites = [find_suite(name, registry) for name in options.suites.split(",")]
    present = digest(jobs(suites, registry, Plan(("cpu",))), registry)
    before = agenda_.answers.get(OF_SUITES)
    current = before.digest == present if before else None
    if status := measure(db, options, until_s, current):
        return status
    with Store(db, create=False) as store:
        run = _latest(store)
        refuse_noise(noise(store, {"": run}), options.noisy_anyway)
        agenda_.answers[OF_SUITES] = agenda.Answer(digest=present, run=run)
        agenda.save(folder, agenda_)
        experiments = Experiments(store, agenda_, folder, registry, run, options.noisy_anyway)
        experiments.measure(until_s)
        publish(store, options, prices, title, folder, run, experiments)
        agenda.save(folder, agenda_)
        published = {run, *experiments.runs.values()}
        against = sum(store.statuses(run)[status] for run in published for status in AGAINST)
    print(f"{folder / 'README.md'}\n{write_index(options.out)}")
    return 1 if against else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make publish", description="Measure this machine and publish a report.")
    parser.add_argument("--out", type=Path, default=ROOT / "reports", help="folder of reports")
    parser.add_argument("--db", type=Path, help="store that keeps the rows; one in out/publish/ if left out")
    parser.add_argument("--fresh", action="store_true", help="delete the store, and measure everything again")
    parser.add_argument("--suites", default=",".join(SUITES), help="suites to measure")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="fresh processes per case")
    parser.add_argument("--spread", type=float, default=SPREAD_S, help="minimum seconds between starts of processes")
    parser.add_argument(
        "--max-time", type=float, default=MAX_TIME_S, help="seconds of sampling for each case, per process"
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="for everything; experiments of claims get the time left"
    )
    parser.add_argument(
        "--noisy-anyway", action="store_true", help="publish a noisy run; the top of the report calls it noisy"
    )
    parser.add_argument("--identify", action="store_true", help="keep host names, user names and UUIDs")
    parser.add_argument("--prices", type=Path, help="file with this machine's price, like bench/claims/prices.toml")
    return parser.parse_args(words)


def measure(db: Path, options: argparse.Namespace, until_s: float, current: bool | None) -> int:
    """Run `kernelmark run` on the suites' cases that the store lacks; return its exit status, or 0 to continue.

    current: whether the kernels are unchanged since the suites were answered; None if the suites never were.
    """
    command = [sys.executable, "-m", "kernelmark", "run", "--db", str(db)]
    if (unfinished := _unfinished(db, options.noisy_anyway, current)) is None:
        return 0
    if unfinished:
        command += ["--resume", unfinished, *(() if options.noisy_anyway else ("--noisy-again",))]
    else:
        command += [*options.suites.split(","), "--device", "cpu", "--max-time", f"{options.max_time:g}"]
        command += ["--processes", str(options.processes), "--spread", f"{options.spread:g}"]
    db.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(command) as process:
        try:
            status = process.wait(until_s - now())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it finishes and keeps the current case
            print(
                f"publish: not done after {options.minutes:g} minutes; `make publish` continues from here",
                file=sys.stderr,
            )
            status = process.wait()
        except KeyboardInterrupt:  # the process got the signal, too
            status = process.wait()
    if unfinished and status == 2:  # the machine or its software has changed since
        print("publish: `make publish PUBLISH_ARGS=--fresh` measures everything again", file=sys.stderr)
    return 0 if status in (0, 1) else status


def _unfinished(db: Path, noisy_anyway: bool = False, current: bool | None = True) -> str | None:
    """Return the run of the suites to resume, "" to begin a new one, or None if everything is measured.

    A run with disturbed cases is resumed, too, unless these may be published. Runs are resumed only at their commit.
    """
    if not db.is_file():
        return ""
    with Store(db, create=False) as store:
        if not (run := _latest(store)):
            return ""
        is_of_this_commit = store.run(run).git_commit == git_commit()
        if goes_on(store, run, noisy_anyway):
            return run if is_of_this_commit else ""
        return None if current or (current is None and is_of_this_commit) else ""


def _latest(store: Store) -> str:
    return next((run for run in reversed(store.run_ids()) if store.run(run).suites), "")


def publish(
    store: Store,
    options: argparse.Namespace,
    prices: Prices,
    title: str,
    folder: Path,
    run: str,
    experiments: Experiments,
) -> None:
    runs = {", ".join(store.run(run).suites): run, **experiments.runs}
    left = experiments.left()
    about = Publication(
        title=title,
        date=store.run(run).started_at[: len("2026-01-01")],
        runs=runs,
        main=run,
        command="make publish",
        sections=[("Experiments of claims that are left", left)] if left else [],
        price=_price(prices) if options.prices else None,  # the default file has prices of another machine
        identify=options.identify,
        anyway=bool(noise(store, runs).noisy),
    )
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(store, about, folder)
    write_files(folder, experiments.judged(prices), title)
    write(folder, report, discover())


def _price(prices: Prices) -> Price | None:
    price = next((each for each in prices.device if each.device == "cpu" and fnmatchcase(cpu_name(), each.name)), None)
    if price is None:
        return None
    source = "; ".join(filter(None, (str(prices.date), price.terms)))
    return Price(price.per_hour, prices.currency, f"{price.per_hour:g} {prices.currency} an hour ({source})")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
