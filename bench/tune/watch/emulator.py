"""The emulator (docs/emulator.md) for one kernel: every tile of it, on the small problems of one kind."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from kernelmark.bench.emulator.build import HostCompileError, missing_tool
from kernelmark.bench.emulator.sweep import Defect, EmulatedCase, cases, entries, findings
from kernelmark.bench.emulator.worker import WorkerError
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.plan.kernel import CudaKernel, Tile
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry


class Emulated(msgspec.Struct, frozen=True):
    """What the emulator found in which cases. chosen: the tile that a run takes for the problem.

    untested: tiles that take the problem, but none of the small ones. skipped: why nothing was tested. refused: why the
    source or its plan is no job for the emulator, with the compiler's log. left: cases after the first timeout.
    """

    chosen: Tile
    tested: tuple[EmulatedCase, ...] = ()
    findings: tuple[Defect, ...] = ()
    untested: tuple[Tile, ...] = ()
    skipped: str = ""
    refused: str = ""
    left: tuple[EmulatedCase, ...] = ()


def emulate(registry: Registry, kernel: CudaKernel, problem: Problem, device: DeviceLimits) -> Emulated:
    """Run each tile of the kernel on the CPU, access by access checked, on the sweep's problems of this problem's kind.

    The problem itself is left out: a million threads would take minutes.
    """
    tile = kernel.tile_for(problem, device)
    assert tile is not None, "a kernel that takes the problem has a tile for it"
    if kernel.emulated:
        return Emulated(tile, skipped=f"{kernel.id} cannot be emulated: {kernel.emulated}")
    if reason := missing_tool():
        return Emulated(tile, skipped=reason)
    chosen = _of_kind(cases(registry, kernel, device), problem)
    taken = [case.tile for case in chosen]
    untested = [t for t in kernel.tiles(device) if t not in taken and kernel.unwanted(problem, t, device) is None]
    try:
        looked = list(_looked_at(chosen))
    except (HostCompileError, WorkerError, ValueError) as error:  # the last: a waiver without a reason
        return Emulated(tile, refused=str(error))
    found = tuple(finding for _, some in looked for finding in some)
    tested = tuple(case for case, _ in looked)
    return Emulated(tile, tested, found, tuple(untested), left=tuple(chosen[len(tested) :]))


def _of_kind(every: list[EmulatedCase], problem: Problem) -> list[EmulatedCase]:
    """Return the cases of the problem's storage type, layout and direction; all if there are none."""
    kind = list(_kind(problem))
    return [case for case in every if list(_kind(case.problem)) == kind] or every


def _kind(problem: Problem) -> Iterator[str]:
    """Yield the values that are words: storage type, layout, direction and the like."""
    for axis in ("dtype", "layout", "place", "direction", "kind", "unit"):
        if hasattr(problem, axis):
            yield str(getattr(problem, axis))


def _looked_at(chosen: list[EmulatedCase]) -> Iterator[tuple[EmulatedCase, list[Defect]]]:
    """Yield the cases with what was found in each, up to the first timeout: a kernel that hangs would take minutes."""
    names = entries(chosen)
    with ThreadPoolExecutor(cpu_count()) as pool:
        for case, found in zip(chosen, pool.map(lambda case: list(findings(case, names)), chosen), strict=True):
            yield case, found
            if any(finding.report and finding.report.kind == "timeout" for finding in found):
                pool.shutdown(cancel_futures=True)
                return
