"""Every registered CUDA kernel, run on the CPU: no reports, and right under every order of threads."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from emulator.proof import all_cases
from emulator.short import is_kept
from kernelmark.bench.emulator.build import HostCompileError, source_folder
from kernelmark.bench.emulator.shapes import LEAST_SIZES, sizes_by_variant
from kernelmark.bench.emulator.sweep import EmulatedCase, cases, complaints
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from support.emulated import program_entries

SHOWN = 12
KERNELS = [kernel for kernel in discover().kernels.values() if isinstance(kernel, CudaKernel)]


def _items(kernels: Iterable[CudaKernel]) -> Iterator[ParameterSet]:
    """A test for each case; one skip, with the declared reason, for a kernel that cannot be emulated."""
    for kernel in kernels:
        if kernel.emulated:
            mark = pytest.mark.skip(reason=f"{kernel.id} is not emulated: {kernel.emulated}")
            yield pytest.param(None, id=f"{Path(kernel.source).name}/not-emulated", marks=mark)
        else:
            for case in all_cases()[kernel.id]:
                marks = () if is_kept(case) else pytest.mark.long
                yield pytest.param(case, id=case.id, marks=marks)


@pytest.mark.parametrize("case", list(_items(KERNELS)))
def test_emulated_kernel_is_right_and_without_reports(case: EmulatedCase) -> None:
    found = list(islice(complaints(case, program_entries([case])), SHOWN))
    assert not found, "\n" + "\n".join(found)


def test_kernel_that_cannot_be_emulated_is_reported_with_its_reason() -> None:
    kernel = replace(KERNELS[0], source="gemm/wgmma.cu", emulated="wgmma has no twin")
    (item,) = _items([kernel])
    assert item.id == "wgmma.cu/not-emulated"
    assert [mark.kwargs["reason"] for mark in item.marks] == [f"{kernel.id} is not emulated: wgmma has no twin"]


def test_source_that_does_not_compile_is_named_with_its_kernel() -> None:
    folder = source_folder({"broken.cu": "__global__ void f() { nonsense; }"})
    case = replace(cases(discover(), KERNELS[0])[0], kernel=replace(KERNELS[0], source="broken.cu"))
    with pytest.raises(
        HostCompileError, match=r"broken\.cu does not compile for the emulator(.|\n)*nonsense"
    ) as refused:
        list(complaints(case, ("f",), folder))
    assert str(refused.value).startswith(f"{KERNELS[0].id}: ")


EMULATED = [kernel for kernel in KERNELS if not kernel.emulated]


@pytest.mark.parametrize("kernel", EMULATED, ids=lambda k: f"{Path(k.source).name}/{k.id}")
def test_sweep_takes_every_kernel_through_enough_sizes_in_each_variant(kernel: CudaKernel) -> None:
    found = sizes_by_variant(kernel, discover().operations[kernel.op])
    few = {variant: len(sizes) for variant, sizes in found.items() if 0 < len(sizes) < LEAST_SIZES}
    assert any(found.values()), f"{kernel.id} takes none of the sizes in emulator/shapes.py"
    assert not few, f"{kernel.id} takes too few of the sizes in emulator/shapes.py, expected {LEAST_SIZES}: {few}"


def test_kernel_that_takes_too_few_sizes_is_named_with_the_variant() -> None:
    convolution = next(kernel for kernel in EMULATED if kernel.op == "conv")
    kernel = replace(convolution, supports=lambda p: None if p.footprint_bytes < 1000 else "is too large")
    with pytest.raises(AssertionError, match=rf"{kernel.id} takes too few of the sizes .*, expected 8: \{{'f"):
        test_sweep_takes_every_kernel_through_enough_sizes_in_each_variant(kernel)
