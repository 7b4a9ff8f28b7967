"""cuFFT, through CuPy's plans."""

from functools import lru_cache
from typing import Any

from kernelmark import Launch, kernel
from kernelmark.kernels._cuda import INT_LIMIT
from kernelmark.kernels.fft._cufft import SIGNS, TYPES, described
from kernelmark.kernels.fft.problem import FftOperands, FftProblem

#: i counts the elements of y: half spectra, `columns` wide, of transforms with h rows of w elements.
_HERMITIAN = """
    long long column = i % columns, row = i / columns % h;
    T value = x[i];
    if (column == 0 || 2 * column == w) {
        T mirrored = x[i + ((h - row) % h - row) * columns];
        value = T((value.real() + mirrored.real()) / 2, (value.imag() - mirrored.imag()) / 2);
    }
    y = value;
"""


def _fits_ints(problem: FftProblem) -> str | None:
    largest = max(problem.b, problem.h, problem.w)
    return None if largest <= INT_LIMIT else f"{largest} does not fit cuFFT's int, expected at most {INT_LIMIT}"


@lru_cache(maxsize=1)  # a cached plan keeps its work area
def _plan(problem: FftProblem) -> Any:
    """Return a plan for all operands of the problem, on the current stream."""
    from cupy.cuda import cufft

    shape, nothing = (problem.h, problem.w)[-len(problem.axes_transformed) :], None
    dense = (nothing, 1, 0, nothing, 1, 0)  # strides and distances are ignored without an embedding
    return cufft.PlanNd(shape, *dense, TYPES[problem.dtype, problem.kind], problem.b, "C", len(shape), None)


def _work_bytes(problem: FftProblem) -> int:
    return int(_plan(problem).work_area.mem.size)


@lru_cache
def _hermitian_part() -> Any:
    import cupy

    return cupy.ElementwiseKernel("raw T x, int64 h, int64 columns, int64 w", "T y", _HERMITIAN, "hermitian_part")


@kernel(
    "fft",
    provider="cufft",
    device="cuda",
    modules=("cupy",),
    supports=_fits_ints,
    library_scratch=_work_bytes,
    library_version=described,
)
def plan(problem: FftProblem, x: FftOperands) -> Launch:
    """cuFFT; c2r works on a Hermitian copy of its input: cuFFT assumes a Hermitian spectrum and may overwrite it."""
    planned, sign = _plan(problem), SIGNS[problem.direction]
    source, target = x.x, x.y
    if problem.kind != "c2r":
        return lambda: planned.fft(source, target, sign)
    copied = x.scratch(source.shape, problem.dtype)
    kind = {"f32": "complex64", "f64": "complex128"}[problem.dtype]
    spectrum, spoiled, make = source.view(kind)[..., 0], copied.view(kind)[..., 0], _hermitian_part()

    def launch() -> None:
        make(spectrum, problem.h, problem.half, problem.w, spoiled)
        planned.fft(copied, target, sign)

    return launch
