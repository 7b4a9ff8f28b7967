"""The cuBLAS calls mean the problem, in both conventions: a stand-in computes what column-major BLAS defines."""

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelmark.kernels.gemm._cublas as module
from support.blas import Blas, HostOperands, blas_stand_in
from support.kernels import LAYOUTS, REGISTRY

EVERY = [kernel for kernel in REGISTRY.kernels.values() if kernel.module == "kernelmark.kernels.gemm.cublas"]
GROUPED = [kernel for kernel in EVERY if "none" not in kernel.domain["grouping"]]
KERNELS = [kernel for kernel in EVERY if kernel not in GROUPED]
OPTIONS = ("", "/beta1", "/alpha0.5/beta2/batch3", "/lda+3/ldb+1/ldc+5", "/batch2/lda+1")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_cublas_is_asked_for_the_problem(kernel: Any, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cublas", blas_stand_in(Blas()))
    for dtype in kernel.domain["dtype"]:
        for layout in LAYOUTS:
            problem = REGISTRY.problem(f"gemm/m5n7k4/{dtype}/{layout}{options}")
            if reason := kernel.refuses(problem):
                assert (kernel.order, "lda" in options) == ("F", True), reason
                continue
            operands = HostOperands(problem, kernel.order)
            kernel.setup(problem, operands)()
            assert operands.complaint(problem, kernel.numerics_for(problem)) is None, problem.id


@pytest.mark.parametrize(
    "options",
    [
        "groups1-equal",
        "beta0.5/alpha2/groups5-skewed",
        "lda+3/ldb+1/ldc+5/groups9-equal",
        "lda+8/ldb+16/ldc+8/groups9-equal",
    ],
)
@pytest.mark.parametrize("kernel", GROUPED, ids=lambda kernel: kernel.id)
def test_groups_are_multiplied_each_by_its_own_b(kernel: Any, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cublas", blas_stand_in(Blas()))
    for dtype, layout in itertools.product(("f64", "f32", "f16", "bf16"), kernel.domain["layout"]):
        problem = REGISTRY.problem(f"gemm/m7n8k16/{dtype}/{layout}/{options}")
        operands = HostOperands(problem)
        if kernel.refuses(problem):
            assert (dtype in ("f16", "bf16"), "lda+3" in options) == (True, True)
            continue
        kernel.setup(problem, operands)()
        assert operands.complaint(problem, kernel.numerics_for(problem)) is None, problem.id


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_nt_is_the_call_that_its_label_has(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cublas", blas_stand_in(Blas()))
    problem = REGISTRY.problem(f"gemm/m5n7k4/{kernel.domain['dtype'][0]}/NT")
    ops = kernel.setup(problem, HostOperands(problem, kernel.order)).args[1:3]
    names = {number: f"OP_{name}" for name, number in module.OP.items()}
    assert f"NT is the call ({', '.join(names[op] for op in ops)})" in kernel.label
    assert ops == ((module.OP["N"], module.OP["T"]) if kernel.order == "F" else (module.OP["T"], module.OP["N"]))


def test_an_nvmath_that_refuses_the_other_packages_leaves_cublas_to_ctypes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvmath").mkdir()
    (tmp_path / "nvmath" / "__init__.py").write_text("raise RuntimeError('cuda-core 0.3 is required')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("nvmath")]:
        monkeypatch.delitem(sys.modules, name)
    module._nvmath.cache_clear()
    try:
        assert module.binding() == "ctypes"
    finally:
        module._nvmath.cache_clear()
