"""The commands that look at what is there: `list`, `doctor`, `inspect`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kernelmark.bench.cli import completion
from kernelmark.bench.cli.options import db_option, plugin_option


@click.command("list")
@click.option("--op", help="List only kernels of this operation.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="List only kernels of this device.")
@click.option("--suites", is_flag=True, help="List suites instead of kernels.")
@click.option("--all", "everything", is_flag=True, help="Also list kernels that cannot run here, with the reason.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, of all kernels.")
@plugin_option
def list_command(
    op: str | None, device: str | None, suites: bool, everything: bool, as_json: bool, plugins: tuple[str, ...]
) -> None:
    """List the kernels that can run here, or the suites.

    With --all, also those that cannot run here, and why.
    """
    from kernelmark.bench.cli import listing
    from kernelmark.bench.plan.discovery import discover

    registry = discover(plugins)
    if op is not None:
        registry.problem_class(op, "--op")
    rows = listing.suites(registry) if suites else listing.kernels(registry, op, device)
    if as_json:
        click.echo(listing.as_json(rows))
    else:
        click.echo(listing.render_suites(rows) if suites else listing.render(rows, everything))


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also name the kernels that cannot run here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@db_option
def doctor(everything: bool, as_json: bool, db: Path | None) -> None:
    """Report what is usable here, and how to fix what is not.

    Also shows the ceilings of the latest run.
    """
    from kernelmark.bench.cli import doctor as diagnosis
    from kernelmark.bench.record.store import default_store

    found = diagnosis.examine(db or default_store())
    click.echo(diagnosis.as_json(found) if as_json else diagnosis.render(found, everything))


@click.command()
@click.argument("kernel", required=False, metavar="[KERNEL", shell_complete=completion.kernels)
@click.argument("problem_id", required=False, metavar="PROBLEM]")
@click.option(
    "--kernels",
    default="*",
    metavar="GLOB",
    show_default=True,
    shell_complete=completion.kernels,
    help="Show only kernels whose whole id matches.",
)
@click.option("--arch", "archs", metavar="sm_90a,..", help="Architectures. [default: all that kernels are built for]")
@click.option("--format", "style", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@plugin_option
def inspect(
    kernel: str | None, problem_id: str | None, kernels: str, archs: str | None, style: str, plugins: tuple[str, ...]
) -> None:
    """Show registers, shared memory, spills and occupancy.

    Compiles the hand-written CUDA kernels; needs no GPU. With KERNEL PROBLEM, shows the tile that a run takes for
    PROBLEM, and how many tiles KERNEL has for it.
    """
    from kernelmark.bench.measure.compile import ARCHS
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.tune.inspect import inspect_rows, render

    registry, wanted = discover(plugins), archs.split(",") if archs else ARCHS
    if kernel is None:
        click.echo(render(inspect_rows(registry, kernels, wanted), style), nl=style != "csv")
    else:
        _inspect_one(registry, kernel, problem_id, wanted, style)


def _inspect_one(registry: Any, kernel: str, problem_id: str | None, archs: Sequence[str], style: str) -> None:
    from kernelmark.bench.plan.errors import UsageError
    from kernelmark.bench.tune.inspect import render, space_text, tile_rows
    from kernelmark.bench.tune.listing import limits_here

    if problem_id is None:
        raise UsageError(f"inspect {kernel}: expected a problem after the kernel; --kernels GLOB is without one")
    chosen, problem = registry.named(kernel), registry.problem(problem_id)
    rows = tile_rows(chosen, problem, archs)
    if rows or style != "table":
        click.echo(render(rows, style), nl=style != "csv")
    if style == "table":
        click.echo(space_text(chosen, problem, limits_here(chosen)))


COMMANDS = (list_command, doctor, inspect)
