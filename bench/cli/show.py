"""The command `show` and others that print results of runs: `crossover`, `history`, `compare`."""

from pathlib import Path
from typing import IO

import click

from kernelmark.bench.cli import shared
from kernelmark.bench.cli.output import reading, selected
from kernelmark.bench.cli.progress import print_run
from kernelmark.bench.compare.runs import Gate, compare_runs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.options import per_cent
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.plan.text import indented
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.report.crossover import find_run, listed, render, standings, write_csv, write_json
from kernelmark.bench.report.export import write_text
from kernelmark.bench.report.history import history_document, history_page
from kernelmark.bench.report.layout import paragraph
from kernelmark.bench.report.networks import network_table, overlap_table, step_table
from kernelmark.bench.report.runs import summary_of, write_run
from kernelmark.bench.report.show import row_page


@click.command()
@shared.run_argument
@shared.value_option(
    "--by",
    kind=shared.Choice(["problem", "network", "overlap"]),
    default="problem",
    text="What to print: a table per problem, each network's seconds per batch, or the time hidden by overlap.",
)
@click.option(
    "--step", is_flag=True, help="With --by network: print the share of a training step spent on moving the parameters."
)
@shared.value_option(
    "--page", kind=click.IntRange(min=1), default=1, text="Print this page of a long run; a page has 100 tables."
)
@click.option(
    "--row", metavar="CASE", help="Print one row in full, with its evidence; CASE is a part of the row's name."
)
@shared.select_options
@shared.json_option
@shared.db_option
def show(
    run_id: str | None,
    by: str,
    step: bool,
    page: int,
    row: str | None,
    selection: Selection,
    json_to: IO[str] | None,
    db: Path | None,
) -> None:
    """Print the tables of a run; by default the latest."""
    if row is not None and (by, page) != ("problem", 1):
        raise UsageError("--row: shows one row, not the tables of --by and --page; leave out --row, or --by and --page")
    if json_to is not None and (by, page, row) != ("problem", 1, None):
        raise UsageError("--json: prints all rows; leave out --by, --page and --row, and choose rows by --problem")
    if step and by != "network":
        raise UsageError("--step: needs --by network; add it")
    store, run = selected(db, run_id, selection)
    if json_to is not None:
        write_run(store, run, json_to)
        return
    if row is not None:
        click.echo(f"run {run}\n\n" + "\n\n".join(row_page(store, run, row)))
        return
    summary = summary_of(store, run)
    click.echo(summary.title)
    if by == "problem":
        print_run(store, run, page)
    elif by == "overlap":
        click.echo("\n" + overlap_table(store, store.results(run)))
    elif step:
        click.echo("\n" + step_table(store, discover(), run))
    else:
        click.echo("\n" + network_table(store.layers(run), store.layer_results(run)))
    if partial := summary.partial(store.path):
        click.echo("\n" + paragraph(partial, rest=""))


@click.command()
@click.argument("suite_name", metavar="SUITE", shell_complete=shared.complete_suites)
@shared.run_argument
@shared.file_option("--csv", "csv_path", text="Also write the table to this CSV file.")
@shared.select_options
@shared.json_option
@shared.plugin_option
@shared.db_option
def crossover(
    suite_name: str,
    run_id: str | None,
    csv_path: Path | None,
    selection: Selection,
    json_to: IO[str] | None,
    plugins: tuple[str, ...],
    db: Path | None,
) -> None:
    """Show the fastest kernel of each problem of SUITE.

    Also shows where another kernel takes over. Without RUN, reads the latest run that has a time for one of the
    problems.
    """
    suite, store = listed(find_suite(suite_name, discover(plugins))), reading(db, selection)
    with store.snapshot():  # one transaction, not one for each of a hundred thousand queries
        chosen = find_run(suite, store, run_id)
        contests = standings(suite, store, chosen)
        if json_to is not None:
            write_json(suite, store, chosen, contests, json_to)
        else:
            click.echo(f"run {chosen}\n\n{render(suite, contests)}")
        if csv_path is not None:
            write_text(csv_path, lambda out: write_csv(suite, chosen, contests, out))


@click.command()
@click.argument("kernel_id", metavar="KERNEL", shell_complete=shared.complete_kernels)
@click.argument("problem_id", metavar="PROBLEM")
@click.option("--diff", is_flag=True, help="Also print a diff of the sources from version to version.")
@shared.json_option
@shared.db_option
def history(kernel_id: str, problem_id: str, diff: bool, json_to: IO[str] | None, db: Path | None) -> None:
    """List the versions of KERNEL that watch and tune have tried.

    Each version is listed with its verdict on PROBLEM, its rate, its resources and its changes. A rate is marked if the
    version was not sampled in turn with the version or kernel that it is compared with.
    """
    if "@" in kernel_id:
        raise UsageError(f"{kernel_id}: a history covers all tiles of a kernel; leave out @ and the tile")
    with reading(db) as store:
        versions = store.versions(kernel_id, problem_id)
    if not versions:  # a kernel with versions may belong to a plug-in that is not loaded
        discover().problem(problem_id)
    document = history_document(kernel_id, problem_id, versions)
    if json_to is not None:
        click.echo(indented(document), json_to)
        return
    click.echo("\n\n".join(history_page(document, diff)))


PER_CENT = shared.Read(per_cent)


@click.command()
@click.argument("base", metavar="BASE", shell_complete=shared.complete_runs)
@click.argument("new", metavar="NEW", shell_complete=shared.complete_runs)
@click.option(
    "--fail-slower",
    metavar="P%",
    type=PER_CENT,
    help="Exit with 1 if a case is more than P% slower, is missing, or is no longer `ok`.",
)
@click.option("--fail-unclear", is_flag=True, help="Also exit with 1 if a slowdown by P% could go undetected.")
@click.option("--allow-missing", is_flag=True, help="Ignore cases that are missing, `unsupported` or `oom` in NEW.")
@shared.value_option(
    "--margin",
    kind=PER_CENT,
    metavar="P%",
    default="2%",
    text="Call a case `same` if its ratio differs from 1 by no more than this.",
)
@click.option("--anyway", is_flag=True, help="Compare even runs of different machines; the output shows what differs.")
@shared.file_option("--csv", "csv_path", text="Also write every case to this file.")
@shared.file_option("--base-db", text="The store that holds BASE. [default: the store of NEW]")
@shared.select_options
@shared.json_option
@shared.db_option
def compare(
    base: str,
    new: str,
    fail_slower: float | None,
    fail_unclear: bool,
    allow_missing: bool,
    margin: float,
    anyway: bool,
    csv_path: Path | None,
    base_db: Path | None,
    selection: Selection,
    json_to: IO[str] | None,
    db: Path | None,
) -> None:
    """Compare two runs: which cases got slower or faster.

    Cases are compared by the medians of their processes. Both runs need several processes (`run --processes 5`), since
    one process cannot show run-to-run variation.
    """
    if fail_slower is None and (fail_unclear or allow_missing):
        raise UsageError("--fail-unclear and --allow-missing: work only with --fail-slower P%; add it")
    gate = None if fail_slower is None else Gate(fail_slower, fail_unclear, allow_missing)
    new_store = reading(db, selection)
    base_store = reading(base_db, selection) if base_db else new_store
    text, fails = compare_runs((base_store, base), (new_store, new), margin, gate, anyway, csv_path, json_to)
    if json_to is None:
        click.echo(text)
    raise SystemExit(shared.AGAINST if fails else shared.OK)
