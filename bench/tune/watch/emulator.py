"""The emulator of a checkout (docs/emulator.md), asked for one kernel where no GPU is there to run it."""

import importlib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from bench.plan.kernel import CudaKernel
from bench.plan.operation import Problem
from bench.plan.registry import Registry

FOLDER = Path(__file__).resolve().parents[3] / "tests"
#: More would fill the screen without telling more.
SHOWN = 8


class Emulated(msgspec.Struct, frozen=True):
    """How many small problems a kernel was taken through, and the first complaints; skipped: why it was not."""

    problems: int = 0
    complaints: tuple[str, ...] = ()
    skipped: str = ""


def emulate(registry: Registry, kernel: CudaKernel, problem: Problem) -> Emulated:
    """Run the kernel on the CPU, access by access checked, on the sweep's problems of this problem's kind.

    Not on the problem itself: a million threads would take minutes.
    """
    if reason := _missing(kernel):
        return Emulated(skipped=reason)
    build, sweep, worker = (_module(name) for name in ("build", "sweep", "worker"))
    if reason := build.missing_tool():
        return Emulated(skipped=reason)
    chosen = _cases(sweep.cases(registry, kernel), kernel, problem)
    names = sweep.entries(chosen)
    try:
        found = (complaint for case in chosen for complaint in sweep.complaints(case, names))
        return Emulated(len(chosen), tuple(islice(found, SHOWN)))
    except (build.CompileError, worker.WorkerError) as error:
        return Emulated(len(chosen), (str(error),))


def _missing(kernel: CudaKernel) -> str | None:
    if not (FOLDER / "emulator" / "sweep.py").is_file():
        return "the emulator comes with a checkout of kernelmark, not with the wheel"
    return f"{kernel.id} cannot be emulated: {kernel.emulated}" if kernel.emulated else None


def _module(name: str) -> Any:
    """A module of the emulator, which is no part of the package: imported by the name that the tests know it by."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(f"emulator.{name}")


def _cases(every: list[Any], kernel: CudaKernel, problem: Problem) -> list[Any]:
    """Those under the tile that a run takes, of the same storage type, layout and direction; failing that, all."""
    tile, kind = kernel.tile_for(problem), list(_kind(problem))
    same = [case for case in every if case.tile == tile and list(_kind(case.problem)) == kind]
    return same or every


def _kind(problem: Problem) -> Iterator[str]:
    """Storage type, layout, direction and the like: the values that are words."""
    for axis in ("dtype", "layout", "place", "direction", "kind", "unit"):
        if hasattr(problem, axis):
            yield str(getattr(problem, axis))
