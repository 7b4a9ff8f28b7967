"""Rows as CSV, JSON, Markdown or LaTeX, written as they are read from the store."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
from tabulate import tabulate

from bench.plan.errors import UsageError
from bench.record.result import COLUMNS, Result, row
from bench.record.store import Store
from bench.report.tables import HEADERS, ceiling_table, run_table, seconds, spread

Writer = Callable[[Store, str, IO[str]], None]


def write_csv(store: Store, run_id: str, out: IO[str]) -> None:
    """The contract's columns, then every dimension that occurs in the run; unknown is empty."""
    names = [*COLUMNS, *(name for name in store.dimensions(run_id) if name not in COLUMNS)]
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    for result, dims in store.results(run_id):
        writer.writerow(row(result, dims))


def write_json(store: Store, run_id: str, out: IO[str]) -> None:
    """One object: the run's facts, its rows with the samples (seconds a call), its ceilings (flop/s, bytes/s)."""
    run = store.find_run(run_id)
    facts = {key: run[key] for key in ("run_id", "started_at", "finished_at", "command", "git_commit")}
    facts |= {key: json.loads(run[key]) for key in ("suites", "environment", "plan")}
    facts["machine"] = json.loads(run["facts"])
    out.write(f'{{"run": {json.dumps(facts)},\n"results": [')
    for i, (result, dims) in enumerate(store.results(run_id)):
        values: dict[str, Any] = {**row(result, dims), "samples_s": store.samples(run_id, result.case)}
        out.write(("" if i == 0 else ",") + "\n" + json.dumps(values))
    out.write("\n],\n")
    ceilings = [{**msgspec.structs.asdict(found), "doubt": doubt} for found, doubt in store.ceilings(run_id)]
    out.write(f'"ceilings": {json.dumps(ceilings)}}}\n')


def write_markdown(store: Store, run_id: str, out: IO[str]) -> None:
    """One table a problem and the ceilings, as `show` prints them, in GitHub's Markdown."""
    parts = (
        run_table((r for r, _ in store.results(run_id)), "github"),
        ceiling_table(store.ceilings(run_id), "github"),
    )
    out.write("\n\n".join(filter(None, parts)) + "\n")


def write_latex(store: Store, run_id: str, out: IO[str]) -> None:
    """One table in booktabs style: problem, kernel, threads, time, interval, rates, speedup."""
    headers = ("problem", "kernel", "threads", "time", HEADERS[2], HEADERS[3], HEADERS[4], "speedup")
    rows = [_latex_cells(result) for result, _ in store.results(run_id)]
    out.write(tabulate(rows, headers, tablefmt="latex_booktabs", disable_numparse=True) + "\n")


def _latex_cells(r: Result) -> tuple[str, ...]:
    if r.status != "ok":
        return (r.problem, r.kernel, str(r.threads), r.status, "", "", "", "")
    rates = tuple("" if rate is None else f"{rate:.4g}" for rate in (r.gflop_per_s, r.gbyte_per_s, r.speedup))
    return (r.problem, r.kernel, str(r.threads), seconds(r.time_s_median), spread(r), *rates)


WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "json": write_json,
    "markdown": write_markdown,
    "latex": write_latex,
}


def check_writable(path: Path) -> None:
    """Say now, and not after an hour of measuring, that a file cannot be written. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def write_file(store: Store, run_id: str, style: str, path: Path) -> None:
    """A run in one of the styles of `WRITERS`. Raises UsageError."""
    write_text(path, lambda out: WRITERS[style](store, run_id, out))


def write_text(path: Path, write: Callable[[IO[str]], None]) -> None:
    """A file that `write` fills. Raises UsageError."""
    try:
        with path.open("w", newline="", encoding="utf-8") as out:
            write(out)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
