"""A published report of this machine's CPU: `make publish` writes it to `reports/<machine>/`, which grows.

It measures first, into a store that is kept, so that a run that was cut off goes on, and of one that was refused as
noisy only what was disturbed is measured again. The exit status is 0 if the report stands, 1 if a kernel failed a
check, 2 if it was refused, 130 after Ctrl-C.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelmark.bench.claims import claims_rows
from kernelmark.bench.claims.prices import load_prices
from kernelmark.bench.claims.views import write_csv
from kernelmark.bench.measure.cpu import cpu_count, cpu_name
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.export import write_text
from kernelmark.bench.report.format import count
from kernelmark.bench.report.publish import CLAIMS, Report, folder_name, noise, refuse_noise, write
from kernelmark.bench.report.publish_index import write_index
from kernelmark.bench.report.publish_readme import Price, Publication

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("founding", "smoke", "filter-sweep", "alexnet", "transposition")
PROCESSES, SPREAD_S = 5, 60.0
# The suites have 544 cases on the CPU, 17 of which are in two: founding 19, smoke 213, filter-sweep 105, alexnet 124,
# transposition 100. At this limit sampling takes 544 x 0.1 s = 54 s, and about 150 s more where six samples take longer
# (the founding product: half a second a call). Set-up, references and two verifications take as long again: a process
# takes seven minutes on two cores, and five processes 35. They follow each other at once: each takes longer than the
# minute between them.
MAX_TIME_S = 0.1
#: Measuring ends then, whatever slowed it; a minute is left for figures, tables and claims.
LIMIT_S = 44 * 60.0


def main(words: Sequence[str] = ()) -> int:
    """Measure what the store lacks, and publish it."""
    asked = _options(words)
    machine = f"{cpu_name()}, {count(cpu_count(), 'CPU')}"
    name = folder_name(machine)
    db = asked.db or ROOT / "out" / "publish" / f"{name}-{datetime.now(UTC):%Y-%m-%d}.db"
    if asked.fresh:
        db.unlink(missing_ok=True)
    if status := measure(db, asked):
        return status
    with closing(Store(db, create=False)) as store:
        folder = publish(store, asked, machine, asked.out / name)
        against = sum(store.statuses(run)[status] for run in store.run_ids() for status in AGAINST)
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
    parser.add_argument("--noisy-anyway", action="store_true", help="publish a noisy run, with that on top")
    parser.add_argument("--identify", action="store_true", help="keep host names, user names and UUIDs")
    parser.add_argument("--prices", type=Path, help="what an hour of this machine costs (bench/claims/prices.toml)")
    return parser.parse_args(words)


def measure(db: Path, asked: argparse.Namespace) -> int:
    """Run what the store lacks with the console script's own command; return its status where it has to end here."""
    command = [sys.executable, "-m", "kernelmark", "run", "--db", str(db)]
    if (unfinished := _unfinished(db, asked.noisy_anyway)) is None:
        return 0
    if unfinished:
        command += ["--resume", unfinished, *(() if asked.noisy_anyway else ("--noisy-again",))]
    else:
        command += [*asked.suites.split(","), "--device", "cpu", "--max-time", f"{asked.max_time:g}"]
        command += ["--processes", str(asked.processes), "--spread", f"{asked.spread:g}"]
    db.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(command) as process:
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # the case in hand is finished and kept
            minutes = f"{LIMIT_S / 60:.0f} minutes"
            print(f"publish: not done after {minutes}; `make publish` goes on from here", file=sys.stderr)
            status = process.wait()
        except KeyboardInterrupt:  # the process got it too
            status = process.wait()
    return 0 if status in (0, 1) else status


def _unfinished(db: Path, noisy_anyway: bool = False) -> str | None:
    """Return the run that goes on, nothing where there is none yet, and None where all has been measured.

    A run with disturbed cases goes on, too, unless they are to be published.
    """
    if not db.is_file():
        return ""
    with closing(Store(db, create=False)) as store:
        runs = store.run_ids()
        if not runs:
            return ""
        latest = store.run(runs[-1])
        counted = sum(store.statuses(latest.run_id).values())
        noisy = noise(store, {"": latest.run_id}).noisy and not noisy_anyway
    return latest.run_id if noisy or (latest.planned is not None and counted < latest.planned) else None


def publish(store: Store, asked: argparse.Namespace, machine: str, folder: Path) -> Path:
    """Write the report and return its folder. Raises UsageError for noise that was not asked for."""
    runs = {", ".join(store.run(run).suites): run for run in store.run_ids()[-1:]}
    found, registry = noise(store, runs), discover()
    refuse_noise(found, asked.noisy_anyway)
    prices = load_prices(asked.prices)
    about = Publication(
        title=machine,
        date=store.run(next(iter(runs.values()))).started_at[: len("2026-01-01")],
        runs=runs,
        command="make publish",
        price=_price(prices) if asked.prices else None,  # the example is of another machine
        identify=asked.identify,
        anyway=bool(found.noisy),
    )
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(store, about, folder)
    answers = claims_rows(store, list(runs.values()), registry, prices)
    write_text(folder / CLAIMS, lambda out: write_csv(answers, out))
    write(folder, report, registry)
    return folder


def _price(prices: Any) -> Price | None:
    """Return the price of an hour of this CPU, or None."""
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
