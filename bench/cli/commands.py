"""The group of all commands, and what calls it with the words of the command line."""

import atexit
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from kernelmark.bench.cli import (
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
    select,
    selftest,
    tune,
    views,
    watch,
)
from kernelmark.bench.cli.defaults import default_map
from kernelmark.bench.cli.ending import Commands, interrupt_again, on_interrupt, status_of
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.run.family import adopt, end_rest, known


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="kernelmark")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Measure GEMM, transposition, FFT and convolution kernels, transfers and the aggregation of gradients.

    A result is verified before it is timed, a failure is a row with its reason, and every figure has an interval.
    """
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
    select,
    profile,
    history,
    selftest,
):
    for command in module.COMMANDS:
        cli.add_command(command)


def call(interruptible: bool) -> int:
    """Do what the words of the command line ask for, end what a plug-in left running, and return the exit status."""
    adopt()
    others = known()
    sys.unraisablehook = interrupt_again
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # nothing is left then that an interrupt could end

    def work() -> None:
        if interruptible:
            signal.signal(signal.SIGINT, on_interrupt)
        try:
            cli.main(standalone_mode=False, default_map=_defaults())
        finally:
            end_rest(others)

    return status_of(work)


def _defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of the nearest file; a shell that completes shows no complaint about it."""
    try:
        return default_map(cli.commands, Path.cwd())
    except UsageError:
        if "_KERNELMARK_COMPLETE" in os.environ:
            return {}
        raise
