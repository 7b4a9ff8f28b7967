"""The command `kernelmark`: reads arguments, prints, sets the exit status; the work is done elsewhere."""

import atexit
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from bench.cli import (
    claims,
    compare,
    history,
    importing,
    merge,
    overview,
    profile,
    report,
    run,
    runs,
    scaling,
    selftest,
    tune,
    views,
    watch,
)
from bench.cli.defaults import default_map
from bench.cli.ending import Commands, interrupt_again, status_of
from bench.plan.errors import UsageError


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="kernelmark")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Microbenchmarks of GEMM, transposition and convolution kernels: proved right, then timed, with an interval."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for module in (
    overview,
    run,
    runs,
    views,
    compare,
    scaling,
    report,
    claims,
    importing,
    merge,
    watch,
    tune,
    profile,
    history,
    selftest,
):
    for command in module.COMMANDS:
        cli.add_command(command)


def main() -> None:
    """Entry point: every complaint is one line on standard error, with an exit status of its own."""
    sys.unraisablehook = interrupt_again
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # nothing is left then that an interrupt could end
    sys.exit(status_of(lambda: cli.main(standalone_mode=False, default_map=_defaults())))


def _defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of the nearest file; a shell that completes shows no complaint about it."""
    try:
        return default_map(cli.commands, Path.cwd())
    except UsageError:
        if "_KERNELMARK_COMPLETE" in os.environ:
            return {}
        raise
