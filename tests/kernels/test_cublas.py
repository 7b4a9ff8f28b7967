"""The cuBLAS calls mean the problem, in both conventions: a stand-in computes what column-major BLAS defines."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.measure.operands import logical
from bench.plan.discovery import discover
from bench.plan.dtypes import numpy_dtype

REGISTRY = discover()
KERNELS = [kernel for kernel in REGISTRY.kernels.values() if kernel.provider == "cublas"]
STORED = {0: "f32", 1: "f64", 2: "f16", 14: "bf16"}
OPTIONS = ("", "/beta1", "/alpha0.5/beta2/batch3", "/lda+3/ldb+1/ldc+5", "/batch2/lda+1")


def matrix(pointer: int, dtype: str, ld: int, rows: int, cols: int) -> Any:
    kind = numpy_dtype(dtype)
    raw = (ctypes.c_char * ((ld * (cols - 1) + rows) * kind.itemsize)).from_address(pointer)
    strides = (kind.itemsize, ld * kind.itemsize)
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, kind), (rows, cols), strides)


class Blas:
    """cublas<T>gemm and cublasGemmEx, plain and strided batched, from their arguments as documented."""

    def set_stream(self, handle: int, stream: int) -> None: ...
    def set_workspace(self, handle: int, pointer: int, nbytes: int) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda handle, *arguments: self.run(name, list(arguments))

    def run(self, name: str, rest: list[Any]) -> None:
        typed, batched, fixed = "_ex" in name, "batched" in name, "f64" if name.startswith("d") else "f32"
        take = lambda: rest.pop(0)  # noqa: E731
        trans_a, trans_b, m, n, k, alpha = (take() for _ in range(6))

        def operand() -> tuple[int, str, int, int]:
            pointer, dtype = take(), STORED[take()] if typed else fixed
            return pointer, dtype, take(), take() if batched else 0

        a, b = operand(), operand()
        beta, c = take(), operand()
        batch = take() if batched else 1
        if typed:
            assert take() in (68, 77)
            assert take() == -1
        assert rest == []
        scalar = ctypes.c_double if fixed == "f64" else ctypes.c_float
        alpha, beta = scalar.from_address(alpha).value, scalar.from_address(beta).value
        for i in range(batch):
            A, B, C = (
                matrix(pointer + i * stride * numpy_dtype(dtype).itemsize, dtype, ld, *shape)
                for (pointer, dtype, ld, stride), shape in (
                    (a, (k, m) if trans_a else (m, k)),
                    (b, (n, k) if trans_b else (k, n)),
                    (c, (m, n)),
                )
            )
            A, B = A.T if trans_a else A, B.T if trans_b else B
            product = alpha * (A.astype(np.float64) @ B.astype(np.float64))
            C[...] = (product + beta * C.astype(np.float64) if beta else product).astype(C.dtype)


def array(host: Any) -> Any:
    return SimpleNamespace(data=SimpleNamespace(ptr=host.ctypes.data))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_cublas_is_asked_for_the_problem(kernel: Any, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernels.gemm.cublas as module

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
