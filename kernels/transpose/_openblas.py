"""OpenBLAS's transposition extensions, called through ctypes in the library that NumPy has already loaded."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from kernelmark import DTYPES, Launch, Unsupported
from kernelmark.kernels._launches import in_bands

ROW_MAJOR, TRANS = 101, 112  # CBLAS_ORDER and CBLAS_TRANSPOSE
_NAMES = (("scipy_cblas_", "64_", ctypes.c_int64), ("cblas_", "64_", ctypes.c_int64), ("cblas_", "", ctypes.c_int))


@lru_cache
def _library() -> ctypes.CDLL:
    """Return the OpenBLAS that NumPy uses. Raises Unsupported if NumPy uses another BLAS."""
    import numpy as np  # noqa: F401  threadpoolctl sees loaded libraries only
    import threadpoolctl

    blas = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
    paths = [lib["filepath"] for lib in blas if lib["internal_api"] == "openblas"]
    # SciPy brings its own OpenBLAS; NumPy's wheel keeps its library in numpy.libs (numpy/.dylibs on macOS).
    ours = [path for path in paths if "numpy" in path] or paths
    if not ours:
        libraries = ", ".join(lib["internal_api"] for lib in blas) or "none"
        raise Unsupported(f"needs NumPy on OpenBLAS, found {libraries}; pip install numpy brings OpenBLAS")
    return ctypes.CDLL(ours[0])


@lru_cache
def _function(name: str, dtype: str) -> Callable[..., None]:
    library, letter = _library(), {"f32": "s", "f64": "d"}[dtype]
    real = {"f32": ctypes.c_float, "f64": ctypes.c_double}[dtype]
    for prefix, suffix, integer in _NAMES:
        function: Any = getattr(library, f"{prefix}{letter}{name}{suffix}", None)
        if function is not None:
            out_of_place = (ctypes.c_void_p,) if name == "omatcopy" else ()
            head = (ctypes.c_int, ctypes.c_int, integer, integer, real, ctypes.c_void_p, integer)
            function.argtypes, function.restype = (*head, *out_of_place, integer), None
            return cast(Callable[..., None], function)
    raise Unsupported(f"OpenBLAS at {library._name} has no {name}")


def omatcopy(a: Any, b: Any, dtype: str, threads: int = 1) -> Launch:
    """Return a launch that writes a^T (n x m) into b for a (m x n), in bands of b's rows, one per thread."""
    function, (m, n), size = _function("omatcopy", dtype), a.shape, a.itemsize

    def band(start: int, stop: int) -> Launch:
        source, target = a.ctypes.data + start * size, b.ctypes.data + start * m * size
        return lambda: function(ROW_MAJOR, TRANS, m, stop - start, 1.0, source, n, target, m)

    return in_bands(n, threads, band)


def imatcopy_scratch(m: int, n: int, dtype: str) -> int:
    """Return the bytes that imatcopy allocates (0 for a square matrix). It touches only m n elements of this memory."""
    return 0 if m == n else m * max(m, n) * DTYPES[dtype].itemsize


def imatcopy(address: int, m: int, n: int, dtype: str) -> Launch:
    """Return a launch that transposes the m x n matrix at `address` in place, though with internal scratch.

    Raises MemoryError if the system cannot provide the memory that imatcopy allocates; imatcopy would end the process.
    """
    function, nbytes = _function("imatcopy", dtype), imatcopy_scratch(m, n, dtype)
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    if (pointer := libc.malloc(ctypes.c_size_t(nbytes))) is None and nbytes:
        raise MemoryError(f"imatcopy allocates {nbytes / 1e9:.3g} GB internally, which the system cannot provide")
    libc.free(ctypes.c_void_p(pointer))
    return lambda: function(ROW_MAJOR, TRANS, m, n, 1.0, address, n, m)
