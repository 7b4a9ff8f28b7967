"""The command `compare`: two runs held against each other."""

import sys
from pathlib import Path
from typing import IO, Any

import click

from kernelmark.bench.cli import completion
from kernelmark.bench.cli.options import AGAINST, OK, Read, db_option, file_option, json_option, select_options
from kernelmark.bench.plan.options import per_cent

PER_CENT = Read(per_cent)


@click.command()
@click.argument("base", metavar="BASE", shell_complete=completion.runs)
@click.argument("new", metavar="NEW", shell_complete=completion.runs)
@click.option(
    "--fail-slower", metavar="P%", type=PER_CENT, help="Exit with 1 if a case got slower by more than this, or broke."
)
@click.option(
    "--margin",
    metavar="P%",
    type=PER_CENT,
    default="2%",
    show_default=True,
    help="Call a case `same` if its ratio is within this of 1.",
)
@click.option(
    "--anyway", is_flag=True, help="Compare runs of different machines, too; the output then shows what differs."
)
@file_option("--csv", "csv_path", text="Also write every case to this file.")
@file_option("--base-db", text="The store that holds BASE. [default: that of NEW]")
@select_options
@json_option
@db_option
def compare(
    base: str,
    new: str,
    fail_slower: float | None,
    margin: float,
    anyway: bool,
    csv_path: Path | None,
    base_db: Path | None,
    selection: Any,
    json_to: IO[str] | None,
    db: Path | None,
) -> None:
    """Compare two runs: which cases got slower or faster.

    Cases are judged by the medians of their processes. Both runs need several processes (`run --processes 5`), since
    one process cannot show run-to-run variation.
    """
    from kernelmark.bench.compare.runs import compare_runs
    from kernelmark.bench.record.store import Store, default_store

    new_store = Store(db or default_store(), create=False)
    base_store = Store(base_db, create=False) if base_db else new_store
    if any(selection):
        for store in {base_store, new_store}:
            store.select(selection)
    text, fails = compare_runs((base_store, base), (new_store, new), margin, fail_slower, anyway, csv_path, json_to)
    if json_to is None:
        click.echo(text)
    sys.exit(AGAINST if fails else OK)


COMMANDS = (compare,)
