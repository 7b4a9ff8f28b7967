"""`kernelmark report`."""

from pathlib import Path

import click

from bench.cli.options import db_option, plugin_option


@click.command()
@click.argument("run_id", required=False, metavar="[RUN]")
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
    """A page that opens without a network, with figures and tables for a paper; the latest run if RUN is left out."""
    from bench.plan.discovery import discover
    from bench.record.store import Store, default_store
    from bench.report.page import write_report

    store = Store(db or default_store(), create=False)
    try:
        found = store.find_run(run_id)["run_id"]
        click.echo(f"run {found}")
        click.echo(write_report(store, found, out, discover(plugins)))
    finally:
        store.close()


COMMANDS = (report,)
