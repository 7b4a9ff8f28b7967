"""A stand-in for cuBLAS on host memory: what column-major BLAS defines, by NumPy, from the addresses it is given."""

import ctypes
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernelmark.bench.measure.draw import logical, poison, spread
from kernelmark.bench.plan.dtypes import numpy_dtype

STORED = {0: "f32", 1: "f64", 2: "f16", 14: "bf16", 28: "e4m3", 3: "s8", 10: "s32"}


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

    def sgeam(self, handle: int, trans_a: int, trans_b: int, m: int, n: int, alpha: int, *rest: int) -> None:
        """C = alpha op(A) + beta B, in place where B is C; B is not read where beta is 0."""
        a, lda, beta, b, ldb, c, ldc = rest
        factors = [ctypes.c_float.from_address(address).value for address in (alpha, beta)]
        assert (trans_b, b, ldb) == (0, c, ldc)
        A = matrix(a, "f32", lda, *((n, m) if trans_a else (m, n)))
        C = matrix(c, "f32", ldc, m, n)
        C[...] = factors[0] * (A.T if trans_a else A) + (factors[1] * C if factors[1] else 0)

    def gemm_grouped_batched_ex(self, handle: int, *rest: int) -> None:
        """A product for each group, from arrays; those of addresses would lie on the device."""
        *sizes, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, count, each, compute = rest
        kind = ctypes.c_double if compute == 70 else ctypes.c_float

        def values(address: int, kind: Any = ctypes.c_int) -> list[Any]:
            return list((kind * count).from_address(address))

        assert values(each) == [1] * count
        assert compute == (70 if type_c == 1 else 68)
        for i in range(count):
            operands = ((a, type_a, lda), (b, type_b, ldb), (c, type_c, ldc))
            x, y, z = ((values(at, ctypes.c_uint64)[i], dtype, values(ld)[i]) for at, dtype, ld in operands)
            scalars = [ctypes.addressof(kind.from_address(at + i * ctypes.sizeof(kind))) for at in (alpha, beta)]
            self.run(
                "dgemm_ex" if compute == 70 else "gemm_ex",
                [*(values(size)[i] for size in sizes), scalars[0], *x, *y, scalars[1], *z, 68, -1],
            )

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
    return SimpleNamespace(data=SimpleNamespace(ptr=host.ctypes.data), set=partial(np.copyto, host))


class HostOperands(SimpleNamespace):
    """A problem's operands in host memory, drawn and handed over as a GPU's would be.

    flat, views: their values, as stored and as the problem has them; before: what can be read, as it was.
    kept: the scratch that is taken, filled with NaN.
    """

    def __init__(self, problem: Any, order: str = "C") -> None:
        rng, self.flat, self.kept, self.chosen = np.random.default_rng(0), {}, [], {}
        for spec in problem.operands():
            self.flat[spec.name] = spread(rng.random(spec.elements), spec.dtype)
            if spec.role == "out":
                poison(self.flat[spec.name], spec.dtype)
        self.views = {spec.name: logical(self.flat[spec.name], spec, order) for spec in problem.operands()}
        self.before = {o.name: self.views[o.name].copy() for o in problem.operands() if o.role != "out"}
        (self.output,) = (spec.name for spec in problem.operands() if spec.role != "in")
        arrays = {name: array(values) for name, values in self.flat.items()}
        super().__init__(stream=SimpleNamespace(ptr=5), threads=1, **arrays)

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any:
        self.kept.append(np.full(shape, np.nan, numpy_dtype(dtype)))
        return array(self.kept[-1])

    def chose(self, **settings: Any) -> None:
        self.chosen |= settings

    def complaint(self, problem: Any, numerics: str) -> str | None:
        """What is wrong with the output, and with inputs that are no longer what they were."""
        for name, values in self.before.items():
            assert name == self.output or np.array_equal(self.views[name], values), name
        inputs = {name: values.copy() for name, values in self.before.items()}
        reference = problem.reference(inputs, np.random.default_rng(1))
        return problem.check({self.output: self.views[self.output]}, reference, numerics).reason


def blas_stand_in(stand_in: Any) -> Any:
    """What `_cublas._cublas` is replaced by: a binding that calls the stand-in."""
    from kernelmark.kernels.gemm import _cublas

    workspace = np.empty(1, np.uint8)
    return lambda: _cublas._CuBlas(stand_in, 7, array(workspace))
