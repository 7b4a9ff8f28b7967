"""Our own transpositions on the CPU, compiled by Numba: out of place, and in place with little scratch."""

from typing import Any

from kernelmark import Launch, kernel
from kernels._host import in_bands, in_turn
from kernels.transpose.problem import TransposeOperands, TransposeProblem

_NUMBA: dict[str, Any] = {
    "provider": "numba",
    "device": "cpu",
    "numerics": "exact",
    "modules": ("numba",),
    "threaded": True,
}


def _bits(array: Any) -> Any:
    """The elements as unsigned integers in one row: what moves is bits, and Numba has no bfloat16."""
    return array.reshape(-1).view(f"u{array.itemsize}")


@kernel("transpose", places=("out",), **_NUMBA)
def blocked(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """Blocks of a cache line a side transposed in registers, written past the caches where rows are aligned."""
    from kernels._numba import bind
    from kernels.transpose import _numba as moves
    from kernels.transpose._blocks import width

    a, b, m, n = _bits(x.a), _bits(x.b), problem.m, problem.n
    side, size = width(a.itemsize), a.itemsize
    # Rows whose length is a multiple of the block's all reach the alignment after the same number of elements.
    streaming = m % side == 0 and m > side and b.ctypes.data % size == 0
    skip = -b.ctypes.data % (side * size) // size if streaming else 0

    def band(start: int, stop: int) -> Launch:
        return bind(moves.transpose, b, a, m, n, side, skip, streaming, start, stop)

    return in_bands(n, x.threads, band)


@kernel("transpose", places=("in",), **_NUMBA)
def tiles(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """In place: chunks along the cycles of their grid, then strips in cache; squares by swapping blocks."""
    from kernels.transpose._tiles import rectangle, square

    if 1 in (problem.m, problem.n):
        return lambda: None
    return in_turn(*(square if problem.m == problem.n else rectangle)(_bits(x.a), problem, x))
