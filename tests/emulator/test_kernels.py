"""Every registered CUDA kernel gives right results and no reports on the CPU, in every order of threads."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from emulator.ends import case_of, drawn, faults
from emulator.proof import CORNERS, Overflow, paired_cases, short_run
from emulator.trips import trips
from kernelmark.bench.emulator.build import HostCompileError, source_folder
from kernelmark.bench.emulator.shapes import LEAST_SIZES, sizes_by_variant
from kernelmark.bench.emulator.sweep import EmulatedCase, cases, complaints, entries
from kernelmark.bench.emulator.worker import Array, Buffer
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from support.emulated import wrong_in_emulator
from support.kernels import CUDA

KERNELS = list(CUDA.values())


def _items(kernels: Iterable[CudaKernel]) -> Iterator[ParameterSet]:
    for kernel in kernels:
        source = Path(kernel.source).name
        if kernel.emulated:
            mark = pytest.mark.skip(reason=f"{kernel.id} is not emulated: {kernel.emulated}")
            yield pytest.param((), id=f"{source}/not-emulated", marks=mark)
            continue
        yield pytest.param(partial(short_run, kernel.id), id=f"{source}/{kernel.id}")
        yield pytest.param(partial(paired_cases, kernel.id), id=f"{source}/{kernel.id}/pairs", marks=pytest.mark.long)


@pytest.mark.parametrize("every", list(_items(KERNELS)))
def test_emulated_kernel_is_right_and_without_reports(every: partial[list[EmulatedCase]]) -> None:
    assert not wrong_in_emulator(every())


def test_kernel_that_cannot_be_emulated_is_reported_with_its_reason() -> None:
    kernel = replace(KERNELS[0], source="gemm/wgmma.cu", emulated="wgmma has no twin")
    (item,) = _items([kernel])
    assert item.id == "wgmma.cu/not-emulated"
    assert [mark.kwargs["reason"] for mark in item.marks] == [f"{kernel.id} is not emulated: wgmma has no twin"]


def test_source_that_does_not_compile_is_named_with_its_kernel() -> None:
    folder = source_folder({"broken.cu": "__global__ void f() { nonsense; }"})
    case = replace(cases(discover(), KERNELS[0])[0], kernel=replace(KERNELS[0], source="broken.cu"))
    with pytest.raises(HostCompileError, match=r"broken\.cu:1: `nonsense` is declared neither") as refused:
        list(complaints(case, ("f",), folder))
    assert str(refused.value).startswith(f"{KERNELS[0].id}: ")


EMULATED = [kernel for kernel in KERNELS if not kernel.emulated]


@pytest.mark.parametrize("kernel", EMULATED, ids=lambda k: f"{Path(k.source).name}/{k.id}")
def test_sweep_takes_every_kernel_through_enough_sizes_in_each_variant(kernel: CudaKernel) -> None:
    variants = sizes_by_variant(kernel, discover().operations[kernel.op])
    scarce = {variant: len(sizes) for variant, sizes in variants.items() if 0 < len(sizes) < LEAST_SIZES}
    assert not any("zeros" in variant for variant in variants), "emulated operands are never drawn as for timed calls"
    assert any(variants.values()), f"{kernel.id} takes none of the sizes in emulator/shapes.py"
    assert not scarce, f"{kernel.id} takes too few of the sizes in emulator/shapes.py, expected {LEAST_SIZES}: {scarce}"


@pytest.mark.long
@pytest.mark.parametrize("kernel", EMULATED, ids=lambda k: f"{Path(k.source).name}/{k.id}")
def test_loops_go_round_twice_or_more_in_the_short_run(kernel: CudaKernel) -> None:
    loops = trips(short_run(kernel.id))
    short = [f"{loop}: {most.trips} of {most.least} trips" for loop, most in loops.items() if most.trips < most.least]
    assert not short, f"{kernel.id}: no case of the short run has them; see Cases of the sweep in emulator-internals.md"


def test_kernel_that_takes_too_few_sizes_is_named_with_the_variant() -> None:
    convolution = next(kernel for kernel in EMULATED if kernel.op == "conv")
    kernel = replace(convolution, supports=lambda p: None if p.footprint_bytes < 1000 else "is too large")
    with pytest.raises(AssertionError, match=rf"{kernel.id} takes too few of the sizes .*, expected 8: \{{'f"):
        test_sweep_takes_every_kernel_through_enough_sizes_in_each_variant(kernel)


_STRIDE = ("return gridDim.x / CLUSTER;", "return gridDim.x;")
#: Bugs that only corners detect, each with the index of a corner that detects it.
PLANTED = {
    Overflow("gemm/wgmma_specialised.cuh", *_STRIDE, "gemm/wgmma_persistent.cu"): 0,
    Overflow("gemm/tileorder.cuh", "{band * BAND + left", "{left", "gemm/mma.cu"): 2,
    Overflow("conv/lowering.cuh", "return image.tap_spot(tap);", "return {int(tap.fast), 0};", "conv/implicit.cu"): 3,
    Overflow("transpose/c2r_runs.cuh", "product_ + product_back_", "product_", "transpose/c2r.cu"): 10,
    Overflow("transpose/c2r_ring.cuh", "i -= rows_ - 1", "i -= rows_", "transpose/c2r.cu"): 23,
    Overflow("grid.cuh", "finished_[step]++", "finished_[step + 1]++", "transpose/c2r_fused.cu"): 26,
    Overflow("transpose/pairs.cuh", "nth % GROUP", "nth / GROUP", "transpose/square_inplace.cu"): 28,
}


def _corners() -> Iterator[ParameterSet]:
    """Yield each case in CORNERS; the short test run uses only those that detect a bug in PLANTED."""
    for place, corner in enumerate(CORNERS):
        marks = () if place in PLANTED.values() else pytest.mark.long
        yield pytest.param(corner, id=f"{corner.kernel.id}-{corner.problem.id}", marks=marks)


@pytest.mark.parametrize("case", list(_corners()))
def test_kernel_is_right_beyond_the_shapes_of_the_sweep(case: EmulatedCase) -> None:
    assert not case.kernel.refuses(case.problem)
    assert not wrong_in_emulator([case])


@pytest.mark.long
@pytest.mark.parametrize(("planted", "place"), PLANTED.items(), ids=lambda value: getattr(value, "id", ""))
def test_bug_beyond_the_shapes_of_the_sweep_is_found(planted: Overflow, place: int) -> None:
    case = CORNERS[place]
    assert next(complaints(case, entries([case]), planted.folder()), None)


BLOCKS = {"int8": 256, "onebit": 512}


def zeros(values: dict[str, Array], block: int) -> None:
    """Set the second block of every gradient and residual to 0, and the first block of one worker."""
    for name in ("g", "e"):
        values[name][:, block : 2 * block] = 0
        values[name][0, :block] = 0


def negative(values: dict[str, Array], block: int) -> None:
    """Make all elements of the first block negative, so that none is above the threshold."""
    for name in ("g", "e"):
        values[name][:, :block] = -np.abs(values[name][:, :block])


@pytest.mark.long
@pytest.mark.parametrize(("change", "elements"), [(zeros, 0), (negative, 0), (lambda *drawn: None, -1)])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_zeros_of_one_sign_and_short_of_an_element_are_right(name: str, change: Any, elements: int) -> None:
    problem = discover().problem(f"aggregate/w2n{3 * BLOCKS[name] + elements}/f32/ef")
    values = drawn(problem)
    change(values, BLOCKS[name])
    buffers = {o.name: Buffer(o.role, values[o.name].ravel()) for o in problem.operands()}
    assert not faults(case_of(f"aggregate/cuda.{name}", problem), problem, values, buffers)
