"""The group of all commands, and the function that runs it on the command line."""

import atexit
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kernelmark import __version__
from kernelmark.bench.cli.defaults import default_map
from kernelmark.bench.cli.ending import ReaderGone, leave_if_interrupted, status_of
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.signals import give, stop
from kernelmark.bench.run.family import adopt, end_rest, known

#: The module of each command, and the first sentence of its help. With them, the list of commands needs no imports.
COMMANDS = {
    "list": ("listing.list_command", "List the kernels that can run here, or the suites."),
    "doctor": ("doctor.doctor", "Report what is usable here, and how to fix what is not."),
    "inspect": ("inspect.inspect", "Show registers, shared memory, spills and occupancy."),
    "profile": ("inspect.profile", "Count the memory traffic and instructions of a CUDA kernel."),
    "compare": ("show.compare", "Compare two runs: which cases got slower or faster."),
    "crossover": ("show.crossover", "Show the fastest kernel of each problem of SUITE."),
    "export": ("export.export", "Write the rows of a run for other programs and papers."),
    "history": ("show.history", "List the versions of KERNEL that watch and tune have tried."),
    "trend": ("report.trend", "Show how the times of a case or SUITE changed over the runs."),
    "show": ("show.show", "Print the tables of a run; by default the latest."),
    "suite": ("stores.suite", "Make a suite of the problems in an application's log."),
    "import": ("stores.import_command", "Import results of other programs; each file becomes a run."),
    "merge": ("stores.merge", "Merge the stores of shards: their rows become one run."),
    "runs": ("stores.runs", "List the runs of the store, newest first, or remove some."),
    "claims": ("report.claims", "Test published claims about performance against measured rows."),
    "report": ("report.report", "Write a page of a run, with figures and tables for a paper."),
    "scaling": ("report.scaling", "Compute the speedup of training NETWORK with data parallelism."),
    "run": ("run.run", "Verify and time the kernels of each SUITE."),
    "verify": ("run.verify", "Verify the kernels of each SUITE without timing them."),
    "tune": ("tune.tune", "Search the tiles of KERNEL for a faster one."),
    "select": ("select.select", "Choose the kernel to call for PROBLEM, measured or not."),
    "watch": ("watch.watch", "Verify and time FILE.cu each time it is saved."),
    "selftest": ("selftest.selftest", "Test how far timings on this machine can be trusted."),
}


class _Imported(Mapping[str, click.Command]):
    """The commands by name. The module of a command is imported when the command is first looked up."""

    def __getitem__(self, name: str) -> click.Command:
        module, function = COMMANDS[name][0].split(".")
        command: click.Command = getattr(import_module(f"kernelmark.bench.cli.{module}"), function)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(click.Group):
    """A click group that imports no command for help or completion, and raises ReaderGone for a broken pipe."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a stand-in with a command's name and its help in one sentence; help and completion need no more."""
        return click.Command(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, self.commands[name] if name else None, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # click would exit with 1
            raise ReaderGone from error


@click.group(
    cls=Commands,
    commands=_Imported(),
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Measure GEMM, transposition, FFT and convolution kernels, transfers and the aggregation of gradients.

    A result is verified before it is timed, a failure is a row with its reason, and times and speedups have intervals.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def call(taken: Iterable[int]) -> int:
    """Run the command line, end processes that a plug-in left running, and return the exit status.

    taken: the signals that end the command.
    """
    adopt()
    others = known()
    sys.unraisablehook = leave_if_interrupted
    atexit.register(give, dict.fromkeys(taken, signal.SIG_DFL))  # at exit, an interrupt may end the process at once

    def work() -> None:
        give(dict.fromkeys(taken, stop))
        try:
            cli.main(prog_name="kernelmark", standalone_mode=False, default_map=_defaults())
        finally:
            end_rest(others)

    return status_of(work)


def _defaults() -> Mapping[str, Mapping[str, Any]]:
    """Return the options' defaults from the nearest file of defaults. Shell completion ignores a file with errors."""
    try:
        return default_map(cli.commands, Path.cwd())
    except FileNotFoundError:
        raise UsageError("the folder of this shell has been removed; change to another") from None
    except UsageError:
        if "_KERNELMARK_COMPLETE" in os.environ:
            return {}
        raise
