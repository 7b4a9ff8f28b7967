"""The command `watch`."""

import os
import re
import sys
import tempfile
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from kernelmark.bench.cli.shared import AGAINST, INTERRUPTED, OK, Read, db_option, plugin_option, value_option
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.occupancy import typical
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.options import above_zero
from kernelmark.bench.plan.tiles import parse_tile
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report.layout import is_wanted
from kernelmark.bench.tune.watch import versions
from kernelmark.bench.tune.watch.session import Log, WatchSession

#: The architecture to compile for if there is no GPU.
DEFAULT_ARCH = "sm_90a"


@click.command()
@click.argument("file", metavar="FILE.cu", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("problem_id", metavar="PROBLEM")
@click.option("--kernel", metavar="ID", help="The kernel to watch, if several kernels of FILE.cu take PROBLEM.")
@click.option(
    "--against",
    metavar="GLOB",
    help="GPU kernels to time in turn with FILE.cu. [default: the vendor's kernels with the same numerics]",
)
@click.option("--tile", metavar="NAME=VALUE,..", help="Test only tiles with these values, such as T=32. [default: all]")
@click.option(
    "--vs",
    metavar="OTHER.cu",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Compare each version with this file, as it is at the start, not with the previous version.",
)
@click.option(
    "--arch", metavar="sm_90a", help="Compile for this architecture. [default: the GPU's, or sm_90a without one]"
)
@value_option(
    "--max-time", kind=Read(above_zero), metavar="S", default=1.0, text="Seconds to spend on timing each kernel."
)
@click.option("--once", is_flag=True, help="Check the file once and exit, with status 1 if something is wrong.")
@plugin_option
@db_option
def watch(file: Path, problem_id: str, once: bool, db: Path | None, **options: Any) -> None:
    """Verify and time FILE.cu each time it is saved.

    Compiles the file, verifies it on PROBLEM, and compares it with the previous version. Every tile is tested in the
    emulator, on small problems; timing needs a GPU. Ctrl-C ends with a summary. The results of each version are stored;
    `kernelmark history KERNEL PROBLEM` lists them.
    """
    with tempfile.TemporaryDirectory(prefix="kernelmark-watch-") as folder, ExitStack() as stack:
        session = _session(file, problem_id, Path(folder), **options)
        log = Log(stack.enter_context(Store(db or default_store())), session)
        try:
            for number, files in enumerate(versions.saves(file), 1):
                beside = f", compared with {session.beside.name}" if session.beside else ""
                _print(f"version {number}, {datetime.now():%H:%M:%S}{beside}")
                for part in session.look(versions.keep(files, file, Path(folder), number)):
                    _print(f"\n{part}")
                log.add(files)
                if once:
                    raise SystemExit(OK if session.good else AGAINST)
                _print(f"\nwaiting for {file} to be saved; Ctrl-C ends\n")
        except KeyboardInterrupt:
            _print(f"\n{session.summary()}")
            raise SystemExit(INTERRUPTED) from None


def _print(text: str) -> None:
    colours = {"PASS": "green", "FAIL": "red"}
    coloured = re.sub(r"\b(PASS|FAIL)\b", lambda word: click.style(word[0], fg=colours[word[0]], bold=True), text)
    click.echo(coloured, color=is_wanted(sys.stdout, os.environ))


def _session(
    file: Path,
    problem_id: str,
    folder: Path,
    kernel: str | None,
    against: str | None,
    tile: str | None,
    vs: Path | None,
    arch: str | None,
    max_time: float,
    plugins: tuple[str, ...],
) -> WatchSession:
    registry = discover(plugins)
    problem = registry.problem(problem_id)
    device = H100 if cuda_missing() else present_limits()
    fixed = parse_tile(tile, f"--tile {tile}") if tile is not None else {}
    chosen = versions.with_tile(
        versions.watched_kernel(registry, file, problem, kernel, device), fixed, problem, device
    )
    others = versions.counterparts(registry, chosen, problem, against, device)
    other = versions.keep(versions.contents(vs) or {}, vs, folder, 0) if vs else None
    comparison = None
    if not cuda_missing():
        absolute = tuple(str(Path(plugin).absolute()) for plugin in plugins)
        comparison = versions.VersionTiming(chosen.id, problem.id, others, absolute, Budget(max_time))
    arch = arch or (DEFAULT_ARCH if cuda_missing() else device.arch)
    typical(arch)  # raises UsageError if it is unknown
    if not chosen.runs_on(arch):
        wanted = ", ".join(chosen.archs) or f"sm_{chosen.min_arch} and later"
        raise UsageError(f"--arch {arch}: {chosen.id} is for {wanted}")
    return WatchSession(registry, chosen, problem, arch, comparison, device, other)
