"""FFTW's transforms of batches of tiles, as addresses that Numba functions call on many threads.

pyFFTW holds the GIL while a one-thread plan runs. So the transform is planned again here, by pyFFTW's copy of FFTW with
pyFFTW's wisdom, and executed by FFTW's function for arrays other than those it was planned for.
"""

import ctypes
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kernelmark.kernels._fftw import plan

#: FFTW's flags. FFTW finds pyFFTW's plan only if it is called with the flags that pyFFTW used.
_FLAGS = {"FFTW_MEASURE": 0, "FFTW_ESTIMATE": 1 << 6}
_DESTROY_INPUT = 1


class Transform(NamedTuple):
    """The addresses of FFTW's execute function and plan, and facts about how the plan was made."""

    execute: int
    plan: int
    facts: dict[str, str]


class _Dim(ctypes.Structure):
    """FFTW's `fftwf_iodim64`: length and strides in elements."""

    _fields_ = (("n", ctypes.c_ssize_t), ("source", ctypes.c_ssize_t), ("target", ctypes.c_ssize_t))


@lru_cache
def _library() -> ctypes.CDLL:
    import pyfftw  # type: ignore[import-untyped]

    library = ctypes.CDLL(pyfftw.pyfftw.__file__)  # its symbols include those of the FFTW it is linked with
    for planner in (library.fftwf_plan_guru64_dft_r2c, library.fftwf_plan_guru64_dft_c2r):
        dims, array = ctypes.POINTER(_Dim), ctypes.c_void_p
        planner.argtypes = (ctypes.c_int, dims, ctypes.c_int, dims, array, array, ctypes.c_uint)
        planner.restype = ctypes.c_void_p
    return library


@lru_cache
def transform(batch: int, height: int, width: int, inverse: bool) -> Transform:
    """Return a plan from float32 tiles (batch, height, width) to complex64 spectra, or back.

    Spectra are (height, width // 2 + 1, batch). Both are contiguous and aligned to 32 bytes; going back overwrites the
    spectra. A plan lives as long as the process.
    """
    from pyfftw import empty_aligned

    tiles = empty_aligned((batch, height, width), np.float32)
    planes = np.moveaxis(empty_aligned((height, width // 2 + 1, batch), np.complex64), 2, 0)
    source, target = (planes, tiles) if inverse else (tiles, planes)
    facts = plan(source, target, (1, 2), destroy=inverse).facts
    name, flags = ("c2r", _DESTROY_INPUT) if inverse else ("r2c", 0)
    strides = [[stride // array.itemsize for stride in array.strides] for array in (source, target)]
    dims = [_Dim(*dim) for dim in zip(tiles.shape, *strides, strict=True)]
    address = getattr(_library(), f"fftwf_plan_guru64_dft_{name}")(
        2, (_Dim * 2)(*dims[1:]), 1, dims[0], source.ctypes, target.ctypes, flags | _FLAGS[facts["rigour"]]
    )
    execute = ctypes.cast(getattr(_library(), f"fftwf_execute_dft_{name}"), ctypes.c_void_p).value
    assert execute
    return Transform(execute, address, facts)
