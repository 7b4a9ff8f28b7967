"""A published report of this machine's CPU: `make publish` writes it to `reports/<machine>/`, which grows.

It measures first, the suites and then the experiments of claims while there is time, into a store that is kept, so that
a run that was cut off goes on, and of one that was refused as noisy only what was disturbed is measured again. Of what
`agenda.json` has at its present digest nothing is measured again. The exit status is 0 if the report stands, 1 if a
kernel failed a check, 2 if it was refused, 130 after Ctrl-C.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import agenda
from kernelmark.bench.claims.prices import load_prices
from kernelmark.bench.claims.views import write_files
from kernelmark.bench.measure.cpu import cpu_count, cpu_name
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import count
from kernelmark.bench.report.publish import Publication, Report, folder_name, noise, refuse_noise, write
from kernelmark.bench.report.publish_index import Price, write_index
from kernelmark.bench.run.commit import git_commit
from publish_claims import OF_SUITES, Experiments, digest, goes_on

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("founding", "smoke", "filter-sweep", "alexnet", "transposition")
PROCESSES, SPREAD_S = 5, 60.0
# The suites have 544 cases on the CPU, 17 of which are in two: founding 19, smoke 213, filter-sweep 105, alexnet 124,
# transposition 100. At this limit sampling takes 544 x 0.1 s = 54 s, and about 150 s more where six samples take longer
# (the founding product: half a second a call). Set-up, references and two verifications take as long again: a process
# takes seven minutes on two cores, and five processes 35. They follow each other at once: each takes longer than the
# minute between them.
MAX_TIME_S = 0.1
#: For all; of these a minute is left for figures, tables and claims, so that measuring ends then, whatever slowed it.
MINUTES, PUBLISH_S = 45.0, 60.0


def main(words: Sequence[str] = ()) -> int:
    """Measure what the store lacks, and publish it."""
    asked = _options(words)
    machine = f"{cpu_name()}, {count(cpu_count(), 'CPU')}"
    folder = asked.out / folder_name(machine)
    db = asked.db or ROOT / "out" / "publish" / f"{folder.name}.db"
    until_s = now() + 60 * asked.minutes - PUBLISH_S
    found, registry = agenda.read(folder, machine), discover()
    if asked.fresh:
        db.unlink(missing_ok=True)
    suites = [find_suite(name, registry) for name in asked.suites.split(",")]
    present = digest(jobs(suites, registry, Plan(("cpu",))), registry)
    before = found.answers.get(OF_SUITES)
    current = before.digest == present if before else None
    if status := measure(db, asked, until_s, current):
        return status
    with closing(Store(db, create=False)) as store:
        run = suites_run(store, asked.noisy_anyway)
        found.answers[OF_SUITES] = agenda.Answer(digest=present, run=run)
        agenda.save(folder, found)
        experiments = Experiments(store, found, folder, registry, run, asked.noisy_anyway)
        experiments.measure(until_s)
        publish(store, asked, machine, folder, run, experiments)
        agenda.save(folder, found)
        published = {run, *experiments.runs.values()}
        against = sum(store.statuses(run)[status] for run in published for status in AGAINST)
    print(f"{folder / 'README.md'}\n{write_index(asked.out)}")
    return 1 if against else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make publish", description="Measure this machine and publish a report.")
    parser.add_argument("--out", type=Path, default=ROOT / "reports", help="folder of reports")
    parser.add_argument("--db", type=Path, help="store that keeps what is measured; out/publish/ if left out")
    parser.add_argument("--fresh", action="store_true", help="measure again what the store has")
    parser.add_argument("--suites", default=",".join(SUITES), help="what is measured")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="fresh processes a case")
    parser.add_argument("--spread", type=float, default=SPREAD_S, help="seconds at least between their beginnings")
    parser.add_argument("--max-time", type=float, default=MAX_TIME_S, help="seconds a case in each process")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="for all; experiments of claims have what is left"
    )
    parser.add_argument("--noisy-anyway", action="store_true", help="publish a noisy run, with that on top")
    parser.add_argument("--identify", action="store_true", help="keep host names, user names and UUIDs")
    parser.add_argument("--prices", type=Path, help="what an hour of this machine costs (bench/claims/prices.toml)")
    return parser.parse_args(words)


def measure(db: Path, asked: argparse.Namespace, until_s: float, current: bool | None) -> int:
    """Run what the store lacks of the suites with the console script's own command; return its status if it ends here.

    current: whether kernels are still what they were when the suites were answered; None if they never were.
    """
    command = [sys.executable, "-m", "kernelmark", "run", "--db", str(db)]
    if (unfinished := _unfinished(db, asked.noisy_anyway, current)) is None:
        return 0
    if unfinished:
        command += ["--resume", unfinished, *(() if asked.noisy_anyway else ("--noisy-again",))]
    else:
        command += [*asked.suites.split(","), "--device", "cpu", "--max-time", f"{asked.max_time:g}"]
        command += ["--processes", str(asked.processes), "--spread", f"{asked.spread:g}"]
    db.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(command) as process:
        try:
            status = process.wait(until_s - now())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # the case in hand is finished and kept
            print(
                f"publish: not done after {asked.minutes:g} minutes; `make publish` goes on from here", file=sys.stderr
            )
            status = process.wait()
        except KeyboardInterrupt:  # the process got it too
            status = process.wait()
    if unfinished and status == 2:  # the machine or its software has changed since
        print("publish: `make publish PUBLISH_ARGS=--fresh` begins anew", file=sys.stderr)
    return 0 if status in (0, 1) else status


def _unfinished(db: Path, noisy_anyway: bool = False, current: bool | None = True) -> str | None:
    """Return the run of the suites that goes on, nothing where one begins, and None where all is measured.

    A run with disturbed cases goes on, too, unless they are to be published. It does so at its own commit alone.
    """
    if not db.is_file():
        return ""
    with closing(Store(db, create=False)) as store:
        if not (run := _latest(store)):
            return ""
        is_of_this_commit = store.run(run).git_commit == git_commit()
        if goes_on(store, run, noisy_anyway):
            return run if is_of_this_commit else ""
        return None if current or (current is None and is_of_this_commit) else ""


def _latest(store: Store) -> str:
    return next((run for run in reversed(store.run_ids()) if store.run(run).suites), "")


def suites_run(store: Store, noisy_anyway: bool) -> str:
    """Return the run of the suites. Raises UsageError for noise that was not asked for."""
    run = _latest(store)
    refuse_noise(noise(store, {"": run}), noisy_anyway)
    return run


def publish(
    store: Store, asked: argparse.Namespace, machine: str, folder: Path, run: str, experiments: Experiments
) -> None:
    """Write the report of the suites' run and of the experiments."""
    runs = {", ".join(store.run(run).suites): run, **experiments.runs}
    prices, left = load_prices(asked.prices), experiments.left()
    about = Publication(
        title=machine,
        date=store.run(run).started_at[: len("2026-01-01")],
        runs=runs,
        main=run,
        command="make publish",
        sections=[("Experiments of claims that are left", left)] if left else [],
        price=_price(prices) if asked.prices else None,  # the example is of another machine
        identify=asked.identify,
        anyway=bool(noise(store, runs).noisy),
    )
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(store, about, folder)
    write_files(folder, experiments.judged(prices), machine)
    write(folder, report, discover())


def _price(prices: Any) -> Price | None:
    found = prices.find("cpu", cpu_name())
    if found is None:
        return None
    words = f"{found.per_hour:g} {prices.currency} an hour ({prices.date}; {found.terms})"
    return Price(found.per_hour, prices.currency, words)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
