"""Every registered CUDA kernel, run on the CPU: no reports, and right under every order of threads."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from bench.plan.discovery import discover
from bench.plan.registry import CudaKernel
from emulator.build import CompileError, source_folder
from emulator.sweep import Case, cases, complaints, entries

KERNELS = [kernel for kernel in discover().kernels.values() if isinstance(kernel, CudaKernel)]
SHOWN = 12


@functools.cache
def _names(kernel_id: str) -> tuple[str, ...]:
    registry = discover()
    kernel = registry.kernels[kernel_id]
    assert isinstance(kernel, CudaKernel)
    return entries(cases(registry, kernel))


def _items(kernels: Iterable[CudaKernel]) -> Iterator[ParameterSet]:
    """A test for each case; one skip, with the declared reason, for a kernel that cannot be emulated."""
    for kernel in kernels:
        if kernel.emulated:
            mark = pytest.mark.skip(reason=f"{kernel.id} is not emulated: {kernel.emulated}")
            yield pytest.param(None, id=f"{Path(kernel.source).name}/not-emulated", marks=mark)
        else:
            yield from (pytest.param(case, id=case.id) for case in cases(discover(), kernel))


@pytest.mark.parametrize("case", list(_items(KERNELS)))
def test_emulated_kernel_is_right_and_without_reports(case: Case) -> None:
    found = list(islice(complaints(case, _names(case.kernel.id)), SHOWN))
    assert not found, "\n" + "\n".join(found)


def test_kernel_that_cannot_be_emulated_is_reported_with_its_reason() -> None:
    kernel = replace(KERNELS[0], source="gemm/wgmma.cu", emulated="wgmma has no twin")
    (item,) = _items([kernel])
    assert item.id == "wgmma.cu/not-emulated"
    assert [mark.kwargs["reason"] for mark in item.marks] == [f"{kernel.id} is not emulated: wgmma has no twin"]


def test_source_that_does_not_compile_is_named_with_its_kernel() -> None:
    folder = source_folder({"broken.cu": "__global__ void f() { nonsense; }"})
    case = replace(cases(discover(), KERNELS[0])[0], kernel=replace(KERNELS[0], source="broken.cu"))
    with pytest.raises(CompileError, match=r"broken\.cu does not compile for the emulator(.|\n)*nonsense") as refused:
        list(complaints(case, ("f",), folder))
    assert str(refused.value).startswith(f"{KERNELS[0].id}: ")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{Path(k.source).name}/{k.id}")
def test_sweep_takes_every_kernel_through_some_shape(kernel: CudaKernel) -> None:
    assert kernel.emulated or cases(discover(), kernel), f"{kernel.id} takes none of the shapes in emulator/shapes.py"
