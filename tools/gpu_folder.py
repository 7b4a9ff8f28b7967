"""The folder of a GPU's report: the store in it, what each stage came to, and the files that people read.

Every file is written again after each stage, from what the store holds then, so that a run that is cut off at any time
leaves a report of what it measured.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec
from tabulate import tabulate

from bench.plan.errors import UsageError
from bench.plan.modes import TIMED
from bench.plan.status import AGAINST
from bench.record.result import COLUMNS, Result
from bench.record.store import Store
from bench.report.export import write_text
from bench.report.tables import ceiling_table, run_table, summary

STORE, RUNS, LEFT_OUT = "results.db", "runs.json", "left_out.json"


class Outcome(msgspec.Struct):
    """What a stage came to. state: `done`, `cut off`, `failed` or `not begun`; text: its result, or the reason."""

    stage: str
    state: str
    text: str = ""
    seconds: float = 0.0


class Folder:
    """A report's folder; what several processes need to know of the run lies in files there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def store(self) -> Store:
        """Open the store."""
        return Store(self.path / STORE)

    def read(self, name: str) -> dict[str, str]:
        """The entries of a file of notes; none where it is not there yet."""
        try:
            found: dict[str, str] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def note(self, name: str, key: str, value: str) -> None:
        """Add an entry to a file of notes, whole or not at all."""
        self.write(name, json.dumps(self.read(name) | {key: value}, indent=2) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a file, whole or not at all."""
        new = self.path / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        new.rename(self.path / name)


def publish(folder: Folder, title: str, outcomes: list[Outcome]) -> None:
    """Write README.md, results.csv, environment.json and tables.md; one that cannot be written harms no other."""
    _guarded(lambda: folder.write("README.md", _readme(folder, title, outcomes)))
    if not (folder.path / STORE).exists():
        return
    store = folder.store()
    try:
        _guarded(lambda: write_text(folder.path / "results.csv", lambda out: _rows(store, out)))
        _guarded(lambda: folder.write("environment.json", _environment(folder, store)))
        _guarded(lambda: folder.write("tables.md", _tables(folder, store, title)))
    finally:
        store.close()


def _guarded(write: Callable[[], None]) -> None:
    try:
        write()
    except (OSError, UsageError) as error:  # a full disk, say
        print(f"make gpu: {error}", file=sys.stderr)


def _readme(folder: Folder, title: str, outcomes: list[Outcome]) -> str:
    lines = [(one.stage, one.state, f"{one.seconds:.0f} s", one.text.replace("|", "\\|")) for one in outcomes]
    left_out = [f"- {kernel}: {reason}" for kernel, reason in folder.read(LEFT_OUT).items()]
    parts = [
        f"# {title}",
        "Measured by `make gpu`, in stages, each saved when it ended.",
        tabulate(lines, ("stage", "state", "time", "what it came to"), tablefmt="github", disable_numparse=True),
        *(["Kernels left out, since they took two workers along:\n\n" + "\n".join(left_out)] if left_out else []),
        "Rows are in results.csv and tables.md, the machine in environment.json, every sample in results.db.",
    ]
    return "\n\n".join(parts) + "\n"


def _rows(store: Store, out: IO[str]) -> None:
    """Write the rows of all runs, with the dimensions that occur in any."""
    runs = store.run_ids()
    others = dict.fromkeys(name for run in runs for name in store.dimensions(run) if name not in COLUMNS)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *others])
    for run in runs:
        for values, dims, _ in store.records(run):
            writer.writerow([*values, *(dims.get(name) for name in others)])


def _environment(folder: Folder, store: Store) -> str:
    runs = store.run_ids()
    facts: dict[str, object] = {"runs": folder.read(RUNS)}
    if runs:
        run = store.run(runs[-1])
        facts |= {"machine": run.machine, "environment": run.environment, "git_commit": run.git_commit}
    return json.dumps(facts, indent=2) + "\n"


def _tables(folder: Folder, store: Store, title: str) -> str:
    parts = [f"# {title}", "Verified against float64 before and after timing. An interval holds for one process where"]
    parts[-1] += " the title of its table names no number of processes."
    for stage, run in folder.read(RUNS).items():
        rows = [result for result, _ in store.results(run)]
        parts += [f"## {stage}", summary(rows), *_paragraphs(store, run, rows)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _paragraphs(store: Store, run: str, rows: list[Result]) -> Iterator[str]:
    """Yield the tables of timed rows and their ceilings; of rows that are verified alone, those that went wrong."""
    if rows and rows[0].mode in TIMED:
        yield run_table(rows, "github")
        yield ceiling_table(store.ceilings(run), "github")
    else:
        yield "\n".join(f"- {r.status}: {r.kernel} on {r.problem}: {r.reason}" for r in rows if r.status in AGAINST)


def against(folder: Folder) -> int:
    """Return how many rows went against their kernels."""
    store = folder.store()
    try:
        return sum(store.statuses(run)[status] for run in store.run_ids() for status in AGAINST)
    finally:
        store.close()
