"""The cuBLAS calls mean the problem, in both conventions: a stand-in computes what column-major BLAS defines."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.measure.draw import logical
from bench.plan.discovery import discover
from bench.plan.dtypes import numpy_dtype
from column_major import Blas, array

REGISTRY = discover()
KERNELS = [kernel for kernel in REGISTRY.kernels.values() if kernel.module == "kernels.gemm.cublas"]
OPTIONS = ("", "/beta1", "/alpha0.5/beta2/batch3", "/lda+3/ldb+1/ldc+5", "/batch2/lda+1")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_cublas_is_asked_for_the_problem(kernel: Any, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernels.gemm._cublas as module

    workspace = np.empty(1, np.uint8)
    monkeypatch.setattr(module, "_cublas", lambda: module._CuBlas(Blas(), 7, array(workspace)))
    rng = np.random.default_rng(0)
    for dtype in kernel.domain["dtype"]:
        for layout in ("NN", "NT", "TN", "TT"):
            problem = REGISTRY.problem(f"gemm/m5n7k4/{dtype}/{layout}{options}")
            if reason := kernel.refuses(problem):
                assert (kernel.order, "lda" in options) == ("F", True), reason
                continue
            specs = problem.operands()
            flat = {spec.name: rng.uniform(-1, 1, spec.elements).astype(numpy_dtype(spec.dtype)) for spec in specs}
            views = {spec.name: logical(flat[spec.name], spec, kernel.order) for spec in specs}
            reference = problem.reference({name: view.copy() for name, view in views.items()}, rng)
            arrays = {name: array(values) for name, values in flat.items()}
            kernel.setup(problem, SimpleNamespace(stream=SimpleNamespace(ptr=5), **arrays))()
            verdict = problem.check({"c": views["c"]}, reference, kernel.numerics_for(problem))
            assert verdict.reason is None, problem.id


def test_an_nvmath_that_refuses_the_other_packages_leaves_cublas_to_ctypes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels.gemm._cublas as module

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
