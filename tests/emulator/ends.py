"""Run only the last blocks of problems of more than 2^32 elements; only the memory that they touch is allocated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path

import msgspec
import numpy as np

from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import unwaived
from kernelmark.bench.emulator.sweep import EmulatedCase, entries, launches
from kernelmark.bench.emulator.worker import Array, Buffer, Launch, run
from kernelmark.bench.measure.draw import poison
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import numpy_dtype
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Operand, Problem
from kernelmark.bench.plan.tiles import tile_on
from support.emulated import program_entries
from support.kernels import CUDA as KERNELS

Choose = Callable[[list[Launch]], list[Launch]]


def last(launch: Launch, blocks: int = 1) -> Launch:
    count = prod(extents(launch.grid))
    return numbered(launch, *range(count - blocks, count))


def ends(launch: Launch, rows: int = 1, blocks: int = 1) -> Launch:
    """Return the launch of the last `blocks` blocks of each row; the grid is divided into `rows` equal rows along x."""
    x, y, z = extents(launch.grid)
    places = product(range(y * z), range(rows), range(blocks))
    return numbered(launch, *(yz * x + (row + 1) * x // rows - 1 - block for yz, row, block in places))


def numbered(launch: Launch, *blocks: int) -> Launch:
    return replace(launch, sample=dict.fromkeys(blocks, 1))


def last_block(planned: list[Launch]) -> list[Launch]:
    """Choose the last block of the last launch, and all blocks of the launches before it."""
    return [*planned[:-1], last(planned[-1])]


def case_of(kernel: str, problem: Problem, tile: Mapping[str, int] | None = None) -> EmulatedCase:
    """Return the case of a problem with the tile that has these values, or with the tile that a run uses."""
    assert not KERNELS[kernel].refuses(problem)
    taken = tile_on(H100, tile) if tile else KERNELS[kernel].tile_for(problem)
    assert taken is not None
    return EmulatedCase(KERNELS[kernel], problem, taken)


def drawn(problem: Problem) -> dict[str, Array]:
    """Draw values for all operands, but fill outputs with the poison that marks elements that are not written."""
    rng = np.random.default_rng(1)
    values = {o.name: rng.uniform(-1, 1, o.shape).astype(numpy_dtype(o.dtype)) for o in problem.operands()}
    for operand in problem.operands():
        if operand.role == "out":
            poison(values[operand.name], operand.dtype)
    return values


def faults(
    case: EmulatedCase,
    part: Problem,
    values: dict[str, Array],
    buffers: dict[str, Buffer],
    cuda: Path = CUDA,
    choose: Choose = list,
    *scratch: Callable[[Scratch], Buffer],
) -> list[str]:
    """Run launches of a case once; return the reports, and the reason if its outputs are not the results of `part`."""
    inputs = {o.name: values[o.name].copy() for o in part.operands() if o.role != "out"}
    reference = part.reference(inputs, np.random.default_rng(1))
    planned = choose(list(launches(case, buffers, *scratch)))
    names = program_entries([case]) if cuda == CUDA else entries([case])
    worker = program(cuda / case.kernel.source, names, include=cuda)
    (outcome,) = run(worker, buffers, planned, orders=("forward",), limit_s=60)
    outputs = {o.name: outcome.outputs[o.name].reshape(o.shape) for o in part.operands() if o.role != "in"}
    wrong = part.check(outputs, reference, case.kernel.numerics_for(part)).reason
    return [*map(str, unwaived(outcome.reports)), *filter(None, [wrong])]


@dataclass(frozen=True)
class End:
    """A problem with the sizes `whole`, of which only the chosen blocks run; they compute the problem `part`.

    The operands of `part` are the ends of the whole problem's operands along every axis. rows: for each scratch buffer
    that is too large to allocate, its number of equal rows, and how many bytes at the end of each row are allocated.
    """

    kernel: str
    part: str
    whole: Mapping[str, int]
    tile: Mapping[str, int] = field(default_factory=dict)
    choose: Choose = last_block
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.kernel} {self.part}"

    @cached_property
    def case(self) -> EmulatedCase:
        return case_of(self.kernel, msgspec.structs.replace(discover().problem(self.part), **self.whole), self.tile)

    def faults(self, cuda: Path = CUDA) -> list[str]:
        part, case = discover().problem(self.part), self.case
        assert max(operand.elements for operand in case.problem.operands()) > 2**32
        values = drawn(part)
        buffers = {o.name: _at_the_end(o, values[o.name]) for o in case.problem.operands()}
        return faults(case, part, values, buffers, cuda, self.choose, self._scratch)

    def _scratch(self, wanted: Scratch) -> Buffer:
        rows, nbytes = self.rows.get(wanted.name, (1, wanted.nbytes))
        places = tuple((row + 1) * wanted.nbytes // rows - nbytes for row in range(rows))
        return Buffer("scratch", np.full(rows * nbytes, 0xFF, np.uint8), places=places)


def _at_the_end(operand: Operand, values: Array) -> Buffer:
    """Return a buffer of the operand's size in which only the last elements along each axis exist."""
    axis = max(
        (i for i, (size, of) in enumerate(zip(values.shape, operand.shape, strict=True)) if size != of), default=0
    )
    outer, piece = values.shape[:axis], prod(values.shape[axis:])
    first = np.subtract(operand.shape[:axis], outer).reshape(-1, *[1] * axis)
    at = np.ravel_multi_index(tuple(np.indices(outer) + first), operand.shape[:axis]) if axis else np.zeros(1, int)
    row = prod(operand.shape[axis:])
    begins = (at.ravel().astype(object) * row + row - piece) * values.itemsize
    return Buffer(operand.role, values.ravel(), values.size, 0, tuple(map(int, begins)))
