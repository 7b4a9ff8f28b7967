"""Compressed blocks that drawn gradients do not have: of zeros alone, of one sign, and one element short of a block."""

from collections.abc import Callable

import numpy as np
import pytest

from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import unwaived
from kernelmark.bench.emulator.sweep import EmulatedCase, entries, launches
from kernelmark.bench.emulator.worker import Array, Buffer, run
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100

BLOCKS = {"int8": 256, "onebit": 512}
Change = Callable[[dict[str, Array], int], None]


def zeros(values: dict[str, Array], block: int) -> None:
    """The second block of all parties, and the first of one worker."""
    for name in ("g", "e"):
        values[name][:, block : 2 * block] = 0
        values[name][0, :block] = 0


def negative(values: dict[str, Array], block: int) -> None:
    """No element of the first block is a high one."""
    for name in ("g", "e"):
        values[name][:, :block] = -np.abs(values[name][:, :block])


def drawn(values: dict[str, Array], block: int) -> None:
    """As they are."""


def faults(name: str, n: int, change: Change) -> list[str]:
    kernel, problem = discover().kernels[f"aggregate/cuda.{name}"], discover().problem(f"aggregate/w2n{n}/f32/ef")
    assert isinstance(kernel, CudaKernel)
    rng = np.random.default_rng(1)
    values = {o.name: rng.uniform(-1, 1, o.shape).astype("f4") for o in problem.operands()}
    change(values, BLOCKS[name])
    reference = problem.reference({key: np.array(value) for key, value in values.items()}, rng)
    buffers = {o.name: Buffer(o.role, values[o.name].ravel()) for o in problem.operands()}
    tile = kernel.tile_for(problem, H100)
    assert tile is not None
    case = EmulatedCase(kernel, problem, tile)
    planned = list(launches(case, buffers))
    (outcome,) = run(program(CUDA / kernel.source, entries([case])), buffers, planned, orders=("forward",))
    outputs = {o.name: outcome.outputs[o.name].reshape(o.shape) for o in problem.operands() if o.role != "in"}
    wrong = problem.check(outputs, reference, name).reason
    return [*map(str, unwaived(outcome.reports)), *filter(None, [wrong])]


@pytest.mark.long
@pytest.mark.parametrize("change", [zeros, negative])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_zeros_and_of_one_sign_are_right(name: str, change: Change) -> None:
    assert not faults(name, 3 * BLOCKS[name], change)


@pytest.mark.long
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_lacks_one_element_is_right(name: str) -> None:
    assert not faults(name, 2 * BLOCKS[name] - 1, drawn)
