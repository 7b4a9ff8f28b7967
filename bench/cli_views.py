"""The commands that read what runs left in a store: `show`, `export`, `crossover`, `compare`."""

import sys
from pathlib import Path
from typing import Any

import click

from bench.cli_options import db_option, file_option, plugin_option

RUN = click.argument("run_id", required=False, metavar="[RUN]")


@click.command()
@RUN
@click.option(
    "--by",
    type=click.Choice(["problem", "network"]),
    default="problem",
    show_default=True,
    help="A table for each problem, or seconds a batch of whole networks.",
)
@db_option
def show(run_id: str | None, by: str, db: Path | None) -> None:
    """The tables of a run; the latest if RUN is left out."""
    from bench.record.store import Store
    from bench.report.networks import network_table
    from bench.runner import default_store

    store = Store(db or default_store(), create=False)
    found = store.find_run(run_id)["run_id"]
    click.echo(f"run {found}")
    if by == "problem":
        print_run(store, found)
    else:
        click.echo("\n" + network_table(store.layers(found), [result for result, _ in store.results(found)]))


@click.command()
@click.argument("suite_name", metavar="SUITE")
@RUN
@file_option("--csv", "csv_path", text="Write the table here too.")
@plugin_option
@db_option
def crossover(
    suite_name: str, run_id: str | None, csv_path: Path | None, plugins: tuple[str, ...], db: Path | None
) -> None:
    """The fastest kernel of each problem of SUITE, and where another takes over, from the rows of a run.

    Without RUN, of the latest run that has a time for one of its problems.
    """
    from bench.plan.discovery import discover
    from bench.plan.suites import find_suite
    from bench.record.store import Store
    from bench.report.crossover import render, write_csv
    from bench.report.export import write_text
    from bench.report.standings import find_run, standings
    from bench.runner import default_store

    suite, store = find_suite(suite_name, discover(plugins)), Store(db or default_store(), create=False)
    chosen = find_run(suite, store, run_id)
    found = standings(suite, store, chosen)
    click.echo(f"run {chosen}\n\n{render(suite, found)}")
    if csv_path is not None:
        write_text(csv_path, lambda out: write_csv(suite, chosen, found, out))


def print_run(store: Any, run_id: str) -> None:
    """The tables of a run, its ceilings and its tally."""
    from bench.report.tables import ceiling_table, run_table, summary

    rows, ceilings = [result for result, _ in store.results(run_id)], store.ceilings(run_id)
    click.echo(f"\n{run_table(rows)}" if rows else "\nno rows")
    if ceilings:
        click.echo(f"\n{ceiling_table(ceilings)}")
    if rows:
        click.echo(f"\n{summary(rows)}")


@click.command()
@RUN
@click.option(
    "--format", "style", type=click.Choice(["csv", "json", "markdown", "latex"]), default="csv", show_default=True
)
@file_option("-o", "--output", text="[default: standard output]")
@db_option
def export(run_id: str | None, style: str, output: Path | None, db: Path | None) -> None:
    """The rows of a run for other programs and for papers; the latest run if RUN is left out."""
    from bench.record.store import Store
    from bench.report.export import WRITERS, check_writable, write_file
    from bench.runner import default_store

    store = Store(db or default_store(), create=False)
    found = store.find_run(run_id)["run_id"]
    if output is None:
        WRITERS[style](store, found, sys.stdout)
    else:
        check_writable(output)
        write_file(store, found, style, output)


VIEWS = (show, export, crossover)
