"""`kernelmark report`."""

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from kernelmark.bench.cli.options import db_option, plugin_option, run_argument


@click.command()
@run_argument
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder to write: index.html, figures/, tables/, method.txt, environment.json.",
)
@plugin_option
@db_option
def report(run_id: str | None, out: Path, plugins: tuple[str, ...], db: Path | None) -> None:
    """Write a page of a run, with figures and tables for a paper.

    The page opens without a network. Without RUN, it shows the latest run.
    """
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.record.store import Store, default_store
    from kernelmark.bench.report.runs import summary_of

    with closing(Store(db or default_store(), create=False)) as store:
        found, registry = store.find_run(run_id)["run_id"], discover(plugins)
        run = summary_of(store, found)
        click.echo("\n".join(filter(None, (run.title, run.partial))))
        click.echo(write_folder(store, found, out, registry))


def write_folder(store: Any, run_id: str, out: Path, registry: Any, pdf: bool = True) -> Path:
    """Write the page of a run with all that belongs to it, and return the page; pdf: whether figures are PDF too."""
    from kernelmark.bench.claims import claims_rows
    from kernelmark.bench.claims.views import statements, write_files
    from kernelmark.bench.report.page import write_report

    with store.snapshot():
        answers = claims_rows(store, [run_id], registry)
    page = write_report(store, run_id, out, registry, statements(answers), pdf)
    write_files(out / "tables", answers, f"run {run_id}")
    return page


COMMANDS = (report,)
