"""The command `kernelmark watch`."""

import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bench.cli.options import AGAINST, OK, plugin_option
from bench.plan.errors import UsageError

#: The architecture to compile for where there is no GPU, if the kernel has it.
DEFAULT_ARCH = "sm_90a"


@click.command()
@click.argument("file", metavar="FILE.cu", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("problem_id", metavar="PROBLEM")
@click.option("--kernel", metavar="ID", help="Which of the kernels of FILE.cu, where several take PROBLEM.")
@click.option(
    "--against", metavar="GLOB", help="GPU kernels to time beside it. [default: the vendor's of the same numerics]"
)
@click.option("--arch", metavar="sm_90a", help="Compile for this one. [default: of the GPU here; without one sm_90a]")
@click.option(
    "--max-time",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds for timing each kernel.",
)
@click.option("--once", is_flag=True, help="Look at the file once and exit, with status 1 where something is wrong.")
@plugin_option
def watch(file: Path, problem_id: str, once: bool, **options: Any) -> None:
    """Compile, verify and time FILE.cu on PROBLEM each time it is saved, beside the version before.

    Without a GPU it is compiled, emulated on small problems, and what it takes is shown. Ctrl-C ends.
    """
    from bench.tune.watch.source import keep, saves

    session = _session(file, problem_id, **options)
    with tempfile.TemporaryDirectory(prefix="kernelmark-watch-") as folder:
        for number, files in enumerate(saves(file), 1):
            beside = f", beside version {session.previous.number}" if session.previous else ""
            click.echo(f"version {number}, {datetime.now():%H:%M:%S}{beside}")
            for part in session.look(keep(files, file, Path(folder), number)):
                click.echo(f"\n{part}")
            if once:
                sys.exit(OK if session.good else AGAINST)
            click.echo(f"\nwaiting for {file} to be saved; Ctrl-C ends\n")


def _session(
    file: Path,
    problem_id: str,
    kernel: str | None,
    against: str | None,
    arch: str | None,
    max_time: float,
    plugins: tuple[str, ...],
) -> Any:
    from bench.measure.cuda import cuda_missing, present_limits
    from bench.plan.case import Budget
    from bench.plan.discovery import discover
    from bench.plan.limits import H100
    from bench.tune.watch.comparison import Comparison
    from bench.tune.watch.contenders import counterparts, watched_kernel
    from bench.tune.watch.session import Session

    registry = discover(plugins)
    problem = registry.problem(problem_id)
    device = H100 if cuda_missing() else present_limits()
    chosen = watched_kernel(registry, file, problem, kernel, device)
    others = counterparts(registry, chosen, problem, against, device)
    if cuda_missing():
        return Session(registry, chosen, problem, _arch(chosen, arch or DEFAULT_ARCH), None)
    absolute = tuple(str(Path(plugin).absolute()) for plugin in plugins)
    comparison = Comparison(chosen.id, problem.id, others, absolute, Budget(max_time))
    return Session(registry, chosen, problem, _arch(chosen, arch or device.arch), comparison, device)


def _arch(kernel: Any, arch: str) -> str:
    """The architecture, if the kernel has instructions for it. Raises UsageError."""
    from bench.measure.occupancy import typical

    typical(arch)
    if not kernel.runs_on(arch):
        wanted = ", ".join(kernel.archs) or f"sm_{kernel.min_arch} and later"
        raise UsageError(f"--arch {arch}: {kernel.id} is for {wanted}")
    return arch


COMMANDS = (watch,)
