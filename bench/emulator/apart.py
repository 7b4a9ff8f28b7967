"""Problems whose rows lie so far apart that an offset computed in 32 bits misses its row; only the rows take memory."""

import math
from collections.abc import Iterator

import msgspec

from kernelmark.bench.emulator.shapes import is_long, is_whole, problems
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry

#: Elements from one row to the next: the fourth row is past 2^32, and no multiple of it below 2^9 is near one of 2^32.
LEADING = 2**30 + 3 * 2**21


def cases_apart(registry: Registry, kernel: CudaKernel, device: DeviceLimits = H100) -> list[EmulatedCase]:
    """Return a case for each layout and a case for each storage type, with rows far apart; none where none has pads."""
    chosen: list[EmulatedCase] = []
    seen: set[str] = set()
    for problem in _candidates(registry, kernel):
        words = {problem.dtype, getattr(problem, "layout", "")}
        if words <= seen or (tile := kernel.tile_for(problem, device)) is None:
            continue
        chosen.append(EmulatedCase(kernel, problem, tile, device))
        seen |= words
    return chosen


def _candidates(registry: Registry, kernel: CudaKernel) -> Iterator[Problem]:
    """Yield the kernel's problems with the most options, first in the largest ragged sizes, all with enlarged pads."""
    problem_class = registry.operations[kernel.op]
    if not any(name.endswith("_pad") for name in problem_class.axes()):
        return
    found = [problem for problem in problems(kernel, problem_class) if not is_long(problem)]
    sizes = sorted((p for p in found if not is_whole(p)), key=lambda p: -_work(p))
    for problem in sorted(found, key=lambda p: (-_changed_options(p), -_work(p))):
        for large in (*sizes[:1], problem):
            resized = msgspec.structs.replace(problem, **{name: getattr(large, name) for name in large.sizes})
            pads = {f"ld{operand.name}_pad": LEADING - operand.shape[-1] for operand in resized.operands()}
            pads = {name: pad for name, pad in pads.items() if name in resized.axes()}
            apart = msgspec.structs.replace(resized, **pads)
            if not kernel.refuses(apart):
                yield apart


def _work(problem: Problem) -> int:
    return math.prod(getattr(problem, name) for name in problem.sizes)


def _changed_options(problem: Problem) -> int:
    fields = [field for field in msgspec.structs.fields(problem) if not field.required]
    return sum(getattr(problem, field.name) != field.default for field in fields)
