"""Kernels are right where the sweep does not reach, or hardly, and bugs there are found."""

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from emulator.corners import CORNERS, Corner
from emulator.overflows import Overflow
from kernelmark.bench.emulator.sweep import complaints, entries
from kernelmark.bench.plan.discovery import discover
from support.emulated import program_entries

_STRIDE = ("return gridDim.x / CLUSTER;", "return gridDim.x;")
#: Bugs in what the corners are there for, each with the place of one that sees it.
PLANTED = {
    Overflow("gemm/wgmma_specialised.cuh", *_STRIDE, "gemm/wgmma_persistent.cu"): 0,
    Overflow("gemm/tileorder.cuh", "{band * BAND + left", "{left", "gemm/mma.cu"): 2,
    Overflow("conv/lowering.cuh", "return image.tap_spot(tap);", "return {int(tap.fast), 0};", "conv/implicit.cu"): 3,
    Overflow("transpose/c2r_runs.cuh", "product_ + product_back_", "product_", "transpose/c2r.cu"): 10,
    Overflow("transpose/c2r_ring.cuh", "i -= rows_ - 1", "i -= rows_", "transpose/c2r.cu"): 23,
    Overflow("grid.cuh", "finished_[step] = 1", "finished_[step + 1] = 1", "transpose/c2r_fused.cu"): 26,
    Overflow("transpose/pairs.cuh", "nth % GROUP", "nth / GROUP", "transpose/square_inplace.cu"): 28,
}


def _corners() -> Iterator[ParameterSet]:
    """Yield each case; the short run takes those that a planted bug needs."""
    for place, corner in enumerate(CORNERS):
        marks = () if place in PLANTED.values() else pytest.mark.long
        yield pytest.param(corner, id=f"{corner.kernel}-{corner.problem}", marks=marks)


@pytest.mark.parametrize("corner", list(_corners()))
def test_kernel_is_right_beyond_the_shapes_of_the_sweep(corner: Corner) -> None:
    case = corner.case(discover())
    assert not case.kernel.refuses(case.problem)
    found = list(complaints(case, program_entries([case])))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.long
@pytest.mark.parametrize(("planted", "place"), PLANTED.items(), ids=lambda value: getattr(value, "id", ""))
def test_bug_beyond_the_shapes_of_the_sweep_is_found(planted: Overflow, place: int) -> None:
    case = CORNERS[place].case(discover())
    assert next(complaints(case, entries([case]), planted.folder()), None)
