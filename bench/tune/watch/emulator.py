"""The emulator (docs/emulator.md) for one kernel, where no GPU is there to run it."""

from collections.abc import Iterator
from itertools import islice

import msgspec

from bench.emulator.build import CompileError, missing_tool
from bench.emulator.sweep import Case, cases, complaints, entries
from bench.emulator.worker import WorkerError
from bench.plan.kernel import CudaKernel
from bench.plan.operation import Problem
from bench.plan.registry import Registry

#: More would fill the screen without being of use.
SHOWN = 8


class Emulated(msgspec.Struct, frozen=True):
    """How many small problems a kernel was taken through, and the first complaints; skipped: why it was not."""

    problems: int = 0
    complaints: tuple[str, ...] = ()
    skipped: str = ""


def emulate(registry: Registry, kernel: CudaKernel, problem: Problem) -> Emulated:
    """Run the kernel on the CPU, access by access checked, on the sweep's problems of this problem's kind.

    The problem itself is left out: a million threads would take minutes.
    """
    if kernel.emulated:
        return Emulated(skipped=f"{kernel.id} cannot be emulated: {kernel.emulated}")
    if reason := missing_tool():
        return Emulated(skipped=reason)
    chosen = _cases(cases(registry, kernel), kernel, problem)
    names = entries(chosen)
    try:
        found = (complaint for case in chosen for complaint in complaints(case, names))
        return Emulated(len(chosen), tuple(islice(found, SHOWN)))
    except (CompileError, WorkerError) as error:
        return Emulated(len(chosen), (str(error),))


def _cases(every: list[Case], kernel: CudaKernel, problem: Problem) -> list[Case]:
    """Return the cases of a run's tile and the problem's storage type, layout and direction; all if there are none."""
    tile, kind = kernel.tile_for(problem), list(_kind(problem))
    same = [case for case in every if case.tile == tile and list(_kind(case.problem)) == kind]
    return same or every


def _kind(problem: Problem) -> Iterator[str]:
    """Yield the values that are words: storage type, layout, direction and the like."""
    for axis in ("dtype", "layout", "place", "direction", "kind", "unit"):
        if hasattr(problem, axis):
            yield str(getattr(problem, axis))
