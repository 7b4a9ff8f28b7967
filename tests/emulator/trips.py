"""The loops of kernels, and the trips (iterations) that the sweep must make in each."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emulator.mutation import blank_comments
from kernelmark.bench.emulator import counters
from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.sweep import ROUNDS, EmulatedCase, _buffer, entries, launches
from kernelmark.bench.emulator.worker import run
from kernelmark.bench.plan.kernel import Tile

_COUNTER = re.compile(r'emu_trips\{("(?:[^"\\]|\\.)*")\}')
#: The variables in a bound; names of template parameters and constants are in capitals, and do not match.
_OWN_NAME = re.compile(r"\b[a-z]\w*\b(?!:)")
_GRID_STRIDE = re.compile(r"gridDim\.x(?! \* blockDim)|\bstride\(\)|\bround\b|\bown\.step\b")
#: Loops that mostly make one trip: over the rest of a stride in gemm/skinny.cu, and the emulator's check in grid.cuh.
_ONCE = ("k0 < end", "taken && i < min(before, step)")
_RING = re.compile(r"^steps?\b|^nth < stripes$")


class Loop(NamedTuple):
    """A `for (...; ...; ...)` loop, its file below `cuda/` and its line. `while` loops only wait, and are left out."""

    file: str
    line: int
    condition: str
    step: str

    def least(self, tile: Tile) -> int:
        """Return the trips that some case of the sweep must make: two, or 0 for a loop with a constant bound.

        A ring of stages must go round twice, and the loop of a persistent block ROUNDS times.
        """
        bound = re.sub(r"^\w+|\bunsigned\b|\bsizeof\b", "", self.condition)
        if "STAGES" not in self.condition and _RING.search(self.condition) and getattr(tile, "STAGES", 1) > 1:
            return tile.STAGES * (1 if self.step.endswith("= 2") else 2)
        if self.condition and not _OWN_NAME.search(bound):
            return 0
        if self.condition in _ONCE:
            return 1
        return ROUNDS if _GRID_STRIDE.search(self.step) else 2


class Trips(NamedTuple):
    """The trips of a loop in the case that most exceeds the required trips; least: the trips required in this case."""

    trips: int
    least: int
    case: EmulatedCase

    @property
    def beyond(self) -> tuple[bool, int]:
        """Return a sort key: whether there is any trip, then by how much the trips exceed the least."""
        return self.trips > 0, self.trips - self.least


def trips(cases: Sequence[EmulatedCase]) -> dict[Loop, Trips]:
    """Return the trips of each loop that a kernel enters, or that its own .cu file contains."""
    names = entries(list(cases))
    by_loop = {loop: Trips(0, 1, cases[0]) for loop in _written(cases[0].kernel.source)}
    for case in cases:
        rng = np.random.default_rng(1)
        buffers = {operand.name: _buffer(operand, rng) for operand in case.problem.operands()}
        arch = case.device.capability * 10
        worker = program(CUDA / case.kernel.source, names, trips=True, checks=False, arch=arch)
        # One order of threads is enough, since the trips do not depend on it.
        (outcome,) = run(worker, buffers, list(launches(case, buffers)), orders=("forward",))
        for place, count in outcome.trips.items():
            if count and (loop := _loop(place)):
                reached = Trips(count, loop.least(case.tile), case)
                by_loop[loop] = max(by_loop.get(loop, reached), reached, key=lambda most: most.beyond)
    return by_loop


def _loop(place: counters.Loop) -> Loop | None:
    parts = place.head.split(";")
    file = str(Path(place.file).relative_to(CUDA))
    return Loop(file, place.line, parts[1].strip(), parts[2].strip()) if len(parts) == 3 else None


def _written(source: str) -> Iterator[Loop]:
    """Yield the loops in a .cu file."""
    text = counters.with_trips(f'# 1 "{CUDA / source}"\n{blank_comments((CUDA / source).read_text())}')
    for counter in _COUNTER.finditer(text):
        place = counters.Loop(str(CUDA / source), text.count("\n", 0, counter.start()), json.loads(counter[1]))
        if loop := _loop(place):
            yield loop
