"""The group of all commands, and what calls it with the words of the command line."""

import atexit
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kernelmark import __version__
from kernelmark.bench.cli.ending import Commands, interrupt_again, on_interrupt, status_of
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.run.family import adopt, end_rest, known

#: The module of each command.
MODULES = {
    **dict.fromkeys(("list", "doctor", "inspect"), "overview"),
    **dict.fromkeys(("run", "verify"), "run"),
    **dict.fromkeys(("show", "export", "crossover"), "views"),
    **{name: name for name in ("claims", "compare", "history", "merge", "profile", "report", "runs", "scaling")},
    **{name: name for name in ("select", "selftest", "tune", "watch")},
    "import": "importing",
}


class _Lazy(Mapping[str, click.Command]):
    """The commands by name; the module of one is imported when that command is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        commands: tuple[click.Command, ...] = import_module(f"kernelmark.bench.cli.{MODULES[name]}").COMMANDS
        return next(command for command in commands if command.name == name)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


@click.group(
    cls=Commands,
    commands=_Lazy(),
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Measure GEMM, transposition, FFT and convolution kernels, transfers and the aggregation of gradients.

    A result is verified before it is timed, a failure is a row with its reason, and every figure has an interval.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


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
            cli.main(prog_name="kernelmark", standalone_mode=False, default_map=_defaults())
        finally:
            end_rest(others)

    return status_of(work)


def _defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of the nearest file; a shell that completes shows no complaint about it."""
    from kernelmark.bench.cli.defaults import default_map

    try:
        return default_map(cli.commands, Path.cwd())
    except UsageError:
        if "_KERNELMARK_COMPLETE" in os.environ:
            return {}
        raise
