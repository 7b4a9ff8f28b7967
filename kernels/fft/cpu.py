"""Fourier transforms on the CPU: FFTW (the baseline), and pocketfft in SciPy and in NumPy."""

from functools import partial
from typing import Any

import numpy as np

from kernelmark import Array, Launch, kernel
from kernelmark.kernels._fftw import as_complex
from kernelmark.kernels._fftw import plan as fftw_plan
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.fft.problem import FftOperands, FftProblem

#: With norm `forward`, only the forward transform divides by N, so this inverse does not.
_INVERSE = partial(np.fft.ifft, norm="forward")


def _arrays(problem: FftProblem, x: FftOperands) -> tuple[Array, Array]:
    """Return source and target; an array that holds complex numbers is viewed as complex."""
    source = x.x if problem.kind == "r2c" else as_complex(x.x)
    return source, x.y if problem.kind == "c2r" else as_complex(x.y)


@kernel("fft", provider="pyfftw", device="cpu", modules=("pyfftw",), threaded=True)
def plan(problem: FftProblem, x: FftOperands) -> Launch:
    """FFTW, planned by pyFFTW; two-dimensional c2r works on a copy of its input, which FFTW destroys."""
    source, target = _arrays(problem, x)
    copied = problem.kind == "c2r" and problem.h > 1
    planned = as_complex(x.scratch(x.x.shape, problem.dtype)) if copied else source
    execute, facts = fftw_plan(
        planned,
        target,
        problem.axes_transformed,
        threads=x.threads,
        inverse=problem.direction == "inverse",
        destroy=copied,
    )
    x.chose(**facts)
    return in_turn(lambda: np.copyto(planned, source), execute) if copied else execute


def _pocketfft_bytes(problem: FftProblem) -> int:
    """Return the bytes that SciPy allocates in a call: its result, and for two-dimensional c2r the transform over h."""
    x, y = problem.operands()
    return y.nbytes + (x.nbytes if problem.kind == "c2r" and problem.h > 1 else 0)


@kernel("fft", provider="scipy", device="cpu", modules=("scipy",), threaded=True, library_scratch=_pocketfft_bytes)
def pocketfft(problem: FftProblem, x: FftOperands) -> Launch:
    """SciPy's pocketfft, with its result copied to the output."""
    from scipy import fft

    source, target = _arrays(problem, x)
    options: dict[str, Any] = {"axes": problem.axes_transformed, "workers": x.threads}
    if problem.direction == "inverse":
        options["norm"] = "forward"
    if problem.kind == "c2r":
        options["s"] = target.shape[problem.axes_transformed[0] :]
    run = {"r2c": fft.rfftn, "c2r": fft.irfftn}.get(
        problem.kind, fft.fftn if problem.direction == "forward" else fft.ifftn
    )
    return lambda: np.copyto(target, run(source, **options))


@kernel("fft", provider="numpy", name="fft", device="cpu", modules=("numpy",))
def numpy_fft(problem: FftProblem, x: FftOperands) -> Launch:
    """NumPy's pocketfft, one axis after the other, on one thread."""
    source, target = _arrays(problem, x)
    if problem.kind == "c2r":
        return _numpy_c2r(problem, x, source, target)
    across = np.fft.fft if problem.direction == "forward" else _INVERSE
    along = partial(np.fft.rfft if problem.kind == "r2c" else across, source, axis=2, out=target)
    return in_turn(along, partial(across, target, axis=1, out=target)) if problem.h > 1 else along


def _numpy_c2r(problem: FftProblem, x: FftOperands, source: Array, target: Array) -> Launch:
    along = partial(np.fft.irfft, n=problem.w, axis=2, norm="forward", out=target)
    if problem.h == 1:
        return partial(along, source)
    columns = as_complex(x.scratch(x.x.shape, problem.dtype))
    return in_turn(partial(_INVERSE, source, axis=1, out=columns), partial(along, columns))
