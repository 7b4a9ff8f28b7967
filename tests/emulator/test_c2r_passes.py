"""Passes of C2R over matrices of more than 2^32 elements, of which the last row or the last stripe of columns exists.

What each pass moves is computed from the formulas at the top of cuda/transpose/c2r.cu.
"""

from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np
import pytest

from emulator.ends import last
from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import unwaived
from kernelmark.bench.emulator.sweep import EmulatedCase, launches
from kernelmark.bench.emulator.worker import Array, Buffer, run
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.tiles import tile_on
from support.emulated import program_entries

W = 8  # columns of a stripe
DTYPES = {2: "f16", 4: "f32"}  # by bytes


def _moved(sides: tuple[int, int], back: bool, entry: str, values: Array, places: Array, stages: int = 1) -> Array:
    """Return what the last block of one pass makes of the elements at these places, in elements, which alone exist."""
    rows, cols = sides
    assert rows * cols > 2**32
    m, n = (cols, rows) if back else (rows, cols)
    problem = discover().problem(f"transpose/m{m}n{n}/{DTYPES[values.itemsize]}/in")
    kernel = discover().kernels["transpose/cuda.c2r"]
    assert isinstance(kernel, CudaKernel)
    device = replace(H100, multiprocessors=2**20)  # a stripe for each block of a ring
    case = EmulatedCase(kernel, problem, tile_on(device, {"SCRATCH": 0, "W": W, "STAGES": stages}), device)
    planned = launches(case, {}, lambda wanted: Buffer("scratch", np.empty(0)))
    (launch,) = (last(launch) for launch in planned if launch.entry.startswith(entry))
    at = tuple((places.astype(np.int64) * values.itemsize).tolist())
    buffers = {"a": Buffer("inout", values.ravel(), values.size, 0, at)}
    worker = program(CUDA / kernel.source, program_entries([case]), include=CUDA)
    (outcome,) = run(worker, buffers, [launch], orders=("forward",))
    assert not [str(report) for report in unwaived(outcome.reports)]
    return outcome.outputs["a"].reshape(values.shape)


def _drawn(*shape: int, bits: type[np.unsignedinteger[Any]] = np.uint16) -> Array:
    return np.random.default_rng(1).integers(0, 2**16, shape, bits)


@pytest.mark.long
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("sides", [(40000, 110000), (40000, 110080)], ids=["short runs", "long runs"])
def test_the_last_row_is_permuted(sides: tuple[int, int], back: bool) -> None:
    rows, cols = sides
    i, j, b, row = rows - 1, np.arange(cols), cols // gcd(*sides), _drawn(cols)
    goes_to = ((i + j // b) % rows + j * rows) % cols
    wanted = np.empty_like(row)
    if back:
        wanted = row[goes_to]
    else:
        wanted[goes_to] = row
    assert np.array_equal(_moved(sides, back, "c2r_rows<", row, np.array([i * cols])), wanted)


@pytest.mark.long
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("step", ["ROTATE", "PERMUTE"])
@pytest.mark.parametrize(("sides", "stages"), [((14400, 300000), 1), ((3600, 1200400), 2)])
def test_the_last_stripe_is_permuted(sides: tuple[int, int], stages: int, step: str, back: bool) -> None:
    rows, cols = sides
    a, b = (side // gcd(*sides) for side in sides)
    i, j, stripe = (
        np.arange(rows)[:, None],
        np.arange(cols - W, cols),
        _drawn(rows, W, bits=np.uint16 if stages == 1 else np.uint32),
    )
    comes_from = (i + j // b if step == "ROTATE" else i * cols + j - i // a) % rows
    wanted = np.empty_like(stripe)
    if back:
        np.put_along_axis(wanted, comes_from, stripe, 0)
    else:
        wanted = np.take_along_axis(stripe, comes_from, 0)
    entry = f"c2r_columns{'' if stages == 1 else '_by_ring'}<bits::{DTYPES[stripe.itemsize]}, {W}, Step::{step}"
    assert np.array_equal(_moved(sides, back, entry, stripe, i.ravel() * cols + cols - W, stages), wanted)
