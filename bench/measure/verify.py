"""Compare results with a float64 reference: before timing, on poisoned outputs, and after timed calls."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from kernelmark.bench.measure.device import Device
from kernelmark.bench.measure.draw import Draw, index_of
from kernelmark.bench.measure.operands import OperandSet, ScratchBuffers
from kernelmark.bench.measure.sample import Called
from kernelmark.bench.measure.timing import now, undisturbed
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.kernel import Kernel, Launch
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.verdict import Verdict

#: Whole outputs of timed calls are compared only with a reference that takes no longer than this.
LONGEST_S = 0.1


class References:
    """The float64 references of one draw, computed on demand, and separately for row- and column-major kernels."""

    def __init__(self, problem: Problem, draw: Draw, called: Called) -> None:
        self._problem, self._draw, self._called = problem, draw, called
        self._known: dict[str, Any] = {}
        self.took_s = 0.0  # of the last reference

    def get(self, order: str) -> Any:
        """Return the reference for kernels that read the buffers in this order."""
        if order not in self._known:
            began = now()
            with self._called("reference"):
                self._known[order] = self._problem.reference(self._draw.views(order), self._draw.rng)
            self.took_s = now() - began
        return self._known[order]


class Checksums:
    """Checks of whole outputs of timed calls, for row- or for column-major kernels, valid until the next draw.

    Checks use the problem's checksums or, if it has none, a reference that takes little time. took_s: an estimate of
    the seconds of one check. possible: whether there is any check.
    """

    def __init__(self, problem: Problem, draw: Draw, order: str, called: Called, reference_s: float = math.inf) -> None:
        self._draw, self._order, began = draw, order, now()
        with called("reference"):
            self._check = problem.checksums(draw.views(order), draw.rng)
            if by_reference := self._check is None and reference_s <= LONGEST_S:
                problem.reference(draw.views(order), draw.rng)  # timed here, since the first also loaded libraries
                self._check = lambda outputs, now, changes, numerics: (
                    problem.check(outputs, problem.reference(now, draw.rng), numerics).reason
                )
        self.took_s = now() - began
        if by_reference:
            self.took_s *= 3  # a comparison takes about twice as long as a reference
        self.possible = self._check is not None

    def wrong(self, operands: OperandSet, numerics: str) -> str | None:
        """Return why the outputs in a set cannot be the results of its inputs, or None."""
        assert self._check is not None
        specs, changed, flat = operands.specs, operands.change, self._draw.flat
        none = np.zeros(0, np.intp)
        places = {name: changed[name][0] if name in changed else none for name in flat}
        changes = {name: (index_of(at, specs[name], self._order), flat[name][at]) for name, at in places.items()}
        with self._draw.holding(changed):
            return self._check(operands.outputs(self._order), self._draw.views(self._order), changes, numerics)


def verify(
    kernel: Kernel,
    problem: Problem,
    launch: Launch,
    operands: OperandSet,
    draw: Draw,
    references: References,
    scratch: ScratchBuffers,
    device: Device,
    called: Called,
) -> tuple[Verdict, float]:
    """Verify one call on new operands; return the verdict and the call's seconds. Raises the kernel's exceptions."""
    references.get(kernel.order)  # computed first, since it takes long, so that outputs can be read at once
    operands.repaired(draw)  # ignore damage by earlier calls, perhaps another contender's
    operands.restore(draw)
    operands.poison()
    scratch.poison()
    device.synchronize()
    spots = operands.spots(draw)
    began = now()
    with called("verification"), undisturbed():
        launch()
        device.synchronize()
        took_s = now() - began
        for read in [read for spot in spots for read in spot.early_reads()]:
            read()
    kept = operands.snapshot(None) if spots and operands.is_restored else None  # a check may overwrite its arguments
    verdict = check(kernel, problem, operands.outputs(kernel.order, kept), references, called)
    if damage := operands.repaired(draw):
        verdict = msgspec.structs.replace(verdict, reason=verdict.reason or damage)
    if not verdict.reason and (late := next((spot.operand for spot in spots if spot.was_late()), None)):
        verdict = msgspec.structs.replace(verdict, reason=f"returned before {late} was written")
    return verdict, took_s


def check(
    kernel: Kernel, problem: Problem, outputs: Mapping[str, Array], references: References, called: Called
) -> Verdict:
    """Compare outputs with the reference."""
    reference, numerics = references.get(kernel.order), kernel.numerics_for(problem)
    with called("check"):
        return problem.check(outputs, reference, numerics)
