"""Transpositions of more than 2^32 elements: the last block alone, and only the matrices' last corners in memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.emulator.build import CUDA, program
from bench.emulator.report import unwaived
from bench.emulator.sweep import Case, entries, launches
from bench.emulator.worker import Array, Buffer, WorkerError, run
from bench.plan.discovery import discover
from bench.plan.dtypes import bits_dtype
from bench.plan.kernel import CudaKernel
from bench.plan.limits import H100
from emulated import program_entries
from emulator.overflows import Overflow

#: Rows and columns of a corner, which holds the last tile of every kernel.
CORNER = 128
#: naive.cu has a thread for each element, which are too many for the emulator.
PROBLEMS = {
    "transpose/cuda.unpadded": "transpose/m65603n65571/f32/out",
    "transpose/cuda.tiled": "transpose/m65603n65571/f16/out",
    "transpose/cuda.vectorised": "transpose/m65608n65576/f32/out",
}


def _corner(role: str, rows: int, cols: int, values: Array) -> Buffer:
    """Return a buffer of rows x cols elements, of which the last corner exists."""
    begins = (row * cols + cols - CORNER for row in range(rows - CORNER, rows))
    return Buffer(role, values, values.size, 0, tuple(begin * values.itemsize for begin in begins))


def _faults(kernel_id: str, problem_id: str, cuda: Path = CUDA) -> list[str]:
    """Return the reports, or that the last corner is not transposed."""
    kernel, problem = discover().kernels[kernel_id], discover().problem(problem_id)
    assert isinstance(kernel, CudaKernel)
    assert not kernel.refuses(problem)
    case = Case(kernel, problem, next(kernel.tiles(H100)))
    bits = bits_dtype(problem.dtype)
    given, held = (np.arange(CORNER**2).astype(bits) + bits.type(first) for first in (0, CORNER**2))
    buffers = {"a": _corner("in", problem.m, problem.n, given), "b": _corner("inout", problem.n, problem.m, held)}
    (launch,) = launches(case, buffers)
    names = program_entries([case]) if cuda == CUDA else entries([case])
    worker = program(cuda / kernel.source, names, include=cuda)
    (outcome,) = run(worker, buffers, [replace(launch, last=True)], orders=("forward",))
    (after,) = outcome.outputs.values()
    moved, wanted = after != held, given.reshape(CORNER, CORNER).T.ravel()
    if not (moved[-1] and np.array_equal(after[moved], wanted[moved])):
        return [*map(str, unwaived(outcome.reports)), "the corner is not transposed"]
    return [*map(str, unwaived(outcome.reports))]


@pytest.mark.parametrize(("kernel", "problem"), PROBLEMS.items())
def test_last_block_of_a_large_matrix_is_transposed(kernel: str, problem: str) -> None:
    assert not _faults(kernel, problem)


def test_launch_of_more_threads_than_the_emulator_numbers_is_refused() -> None:
    with pytest.raises(WorkerError, match=r"transpose_naive.*: the emulator numbers at most 2\^31-1 threads"):
        _faults("transpose/cuda.naive", "transpose/m65603n65571/f32/out")


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "planted"),
    [
        (kernel, Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", source))
        for kernel, source in (
            ("transpose/cuda.tiled", "transpose/tiled.cu"),
            ("transpose/cuda.vectorised", "transpose/vectorised.cu"),
        )
    ],
    ids=lambda value: getattr(value, "source", value),
)
def test_overflow_in_a_large_matrix_is_found(kernel: str, planted: Overflow) -> None:
    assert _faults(kernel, PROBLEMS[kernel], planted.folder())
