"""Convolution on the CPU by FFTW: whole images, and tiles of them."""

from typing import Any

from kernelmark import Launch, kernel
from kernels.conv.problem import ConvOperands, ConvProblem

_FFTW: dict[str, Any] = {
    "provider": "pyfftw",
    "device": "cpu",
    "dtypes": ("f32",),
    "numerics": "fft",
    "modules": ("numpy", "numba", "pyfftw", "scipy", "threadpoolctl"),
    "threaded": True,
}


def _executed(problem: ConvProblem, tiling: str) -> int:
    from kernels.conv.fft import _tiling

    return _tiling.executed(problem, getattr(_tiling, tiling)(problem))


@kernel("conv", executed=lambda p: _executed(p, "whole"), **_FFTW)
def full(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of whole images and of filters as large, CGEMM for each frequency."""
    from kernels.conv.fft._spectra import spectral
    from kernels.conv.fft._tiling import whole

    return spectral(problem, x, whole(problem))


@kernel("conv", executed=lambda p: _executed(p, "cheapest"), **_FFTW)
def tiled(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of overlapping tiles, CGEMM for each frequency; the tile's side chosen by a model of cost."""
    from kernels.conv.fft._spectra import spectral
    from kernels.conv.fft._tiling import cheapest

    return spectral(problem, x, cheapest(problem))
