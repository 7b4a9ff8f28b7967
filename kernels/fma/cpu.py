"""The ceiling of arithmetic on the CPU, compiled by Numba."""

from kernelmark import Launch, kernel
from kernelmark.kernels._host import registers
from kernelmark.kernels._launches import in_bands
from kernelmark.kernels.fma.problem import FmaOperands, FmaProblem


@kernel("fma", provider="numba", device="cpu", dtypes=("f32", "f64"), units=("fma",), modules=("numba",), threaded=True)
def fma(problem: FmaProblem, x: FmaOperands) -> Launch:
    """Vector multiply-adds on accumulators in registers."""
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels.fma import _numba as loops

    a, b = x.a.reshape(-1), x.b.reshape(-1)
    size = registers().group(x.d.itemsize)
    if problem.n < size:
        return bind(loops.few, x.d, x.x, a, b, problem.k)

    def band(start: int, stop: int) -> Launch:
        return bind(loops.groups, x.d, x.x, a, b, problem.k, size, start, stop)

    return in_bands(-(-problem.n // size), x.threads, band)
