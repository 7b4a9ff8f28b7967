"""The commands that look at what is there: `list`, `doctor`, `inspect`."""

from pathlib import Path

import click

from bench.cli.options import db_option, plugin_option


@click.command("list")
@click.option("--op", help="Only kernels of this operation.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Only kernels of this device.")
@click.option("--suites", is_flag=True, help="List suites instead of kernels.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_option
def list_command(op: str | None, device: str | None, suites: bool, as_json: bool, plugins: tuple[str, ...]) -> None:
    """List kernels and suites, and whether they can run here."""
    from bench.cli import listing
    from bench.plan.discovery import discover

    registry = discover(plugins)
    if op is not None:
        registry.problem_class(op, "--op")
    rows = listing.suites(registry) if suites else listing.kernels(registry, op, device)
    click.echo(listing.render(rows, as_json))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@db_option
def doctor(as_json: bool, db: Path | None) -> None:
    """Show what is usable here, what is not and why, and the command that fixes it; ceilings of the latest run."""
    from bench.cli import doctor as diagnosis
    from bench.record.store import default_store

    click.echo(diagnosis.render(diagnosis.examine(db or default_store()), as_json))


@click.command()
@click.option("--kernels", default="*", metavar="GLOB", show_default=True, help="Only kernels whose whole id matches.")
@click.option("--arch", "archs", metavar="sm_90a,..", help="Architectures. [default: all that kernels are built for]")
@click.option("--format", "style", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@plugin_option
def inspect(kernels: str, archs: str | None, style: str, plugins: tuple[str, ...]) -> None:
    """Show registers, shared memory, spills and occupancy of hand-written kernels; needs no GPU."""
    from bench.measure.compile import ARCHS
    from bench.plan.discovery import discover
    from bench.tune.inspect import inspect_rows, render

    rows = inspect_rows(discover(plugins), kernels, archs.split(",") if archs else ARCHS)
    click.echo(render(rows, style), nl=style != "csv")


COMMANDS = (list_command, doctor, inspect)
