"""Epilogues on the CPU, on kernelmark's threads: over all of C after the product, or over a few rows while cached."""

from collections.abc import Iterator
from typing import Any

from kernelmark import Launch, kernel
from kernelmark.kernels._host import alone
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.gemm._epilogue import EPILOGUES
from kernelmark.kernels.gemm._steps import Rows, finish
from kernelmark.kernels.gemm.cpu import multiply, plain
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem

#: The number of rows of C that one call computes before their epilogue; BLAS packs B once per call.
ROWS = 128
_NUMPY: dict[str, Any] = {
    "provider": "numpy",
    "device": "cpu",
    "modules": ("numpy", "threadpoolctl"),
    "threaded": True,
    "dtypes": ("f32", "f64"),
    "betas": (0.0,),
    "epilogues": EPILOGUES,
    "supports": plain,
}


def _multiplied(problem: GemmProblem, x: GemmOperands, rows: slice, product: Any) -> Launch:
    """Return a launch that writes these rows of the scaled product to `product`."""
    a, b = x.a.T if problem.op_a == "T" else x.a, x.b.T if problem.op_b == "T" else x.b
    return multiply(a[rows], b, problem, x, product)


def _rows(problem: GemmProblem, x: GemmOperands, rows: slice, scratch: Any) -> Rows:
    """Return these rows of the operands. scratch: arrays for an update's x and `room`, since C holds the weights."""
    c = x.c[rows]
    if problem.epilogue == "update":
        return Rows(scratch[0], c, v=x.v[rows], room=scratch[1])
    return Rows(c, c, bias=x.bias if problem.epilogue == "bias-relu" else None)


def _scratch(problem: GemmProblem, x: GemmOperands, rows: int) -> Any:
    return x.scratch((2, rows, problem.n), problem.dtype) if problem.epilogue == "update" else None


@kernel("gemm", **_NUMPY)
@threads_that_pay(compiled=False)
def two_step(problem: GemmProblem, x: GemmOperands) -> Launch:
    """NumPy matmul, then the epilogue's steps over all of C, a band of rows for each thread."""
    scratch = _scratch(problem, x, problem.m)
    product = x.c if scratch is None else scratch[0]

    def band(start: int, stop: int) -> Launch:
        rows = slice(start, stop)
        return finish(problem.epilogue, _rows(problem, x, rows, None if scratch is None else scratch[:, rows]))

    return in_turn(_multiplied(problem, x, slice(None), product), in_bands(problem.m, x.threads, band))


@kernel("gemm", **_NUMPY)
@threads_that_pay(compiled=False)
def fused(problem: GemmProblem, x: GemmOperands) -> Launch:
    """A band of rows for each thread; a few rows at a time are multiplied by NumPy and finished while cached."""

    def band(start: int, stop: int) -> Launch:
        scratch = _scratch(problem, x, min(ROWS, stop - start))

        def steps() -> Iterator[Launch]:
            for first in range(start, stop, ROWS):
                rows = slice(first, min(first + ROWS, stop))
                part = _rows(problem, x, rows, None if scratch is None else scratch[:, : rows.stop - first])
                yield from (_multiplied(problem, x, rows, part.x), finish(problem.epilogue, part))

        return in_turn(*steps())

    return alone(in_bands(problem.m, x.threads, band))
