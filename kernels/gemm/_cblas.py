"""Make any CBLAS library a contender, given the path of its file, for the option `--blas`."""

import ctypes
import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import threadpoolctl

from kernelmark import Launch, Unsupported, kernel
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem

_ROW_MAJOR, _OPS = 101, {"N": 111, "T": 112}
_REALS: dict[str, tuple[str, Any]] = {"f32": ("cblas_sgemm", ctypes.c_float), "f64": ("cblas_dgemm", ctypes.c_double)}
#: Prefixes and suffixes that builds of OpenBLAS add to the names of functions.
_PREFIXES, _SUFFIXES = ("", "scipy_"), ("", "64_", "_64", "64", "_")
_VERSIONS = ("openblas_get_config", "bli_info_get_version_str", "armplversion_string")


def declare(path: str) -> None:
    """Register the kernel `gemm/blas.NAME` for a library, whose file is loaded only when the kernel is set up."""
    file = Path(path)
    name = re.sub(r"\W", "_", re.sub(r"\.(so|dylib|dll)\b.*$", "", file.name))

    @kernel(
        "gemm",
        provider="blas",
        name=name,
        label=f"cblas_sgemm and cblas_dgemm of {file.name}, with alpha, beta and padding; batches in a loop.",
        device="cpu",
        dtypes=("f32", "f64"),
        modules=("numpy",),
        threaded=True,
        library_version=lambda p: _version(path),
    )
    def gemm(problem: GemmProblem, x: GemmOperands) -> Launch:
        return _launch(path, problem, x)


@lru_cache
def _library(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise Unsupported(f"{path}: cannot be loaded: {error}") from None


def _symbol(path: str, name: str) -> Callable[..., Any] | None:
    library = _library(path)
    names = (f"{prefix}{name}{suffix}" for prefix, suffix in product(_PREFIXES, _SUFFIXES))
    return next((getattr(library, each) for each in names if hasattr(library, each)), None)


def _version(path: str) -> str:
    """Return the file's name with the version that the library reports, else with the first digits of its SHA-256."""
    for name in _VERSIONS:
        if function := _symbol(path, name):
            function.restype = ctypes.c_char_p  # type: ignore[attr-defined]
            said = " ".join(function().decode(errors="replace").split())
            return f"{Path(path).name} {said}".replace(",", ";")
    return f"{Path(path).name} sha256 {hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]}"


@lru_cache
def _limit(path: str, threads: int) -> object:
    """Limit the library's threads if it supports that; otherwise the row records how many threads the library used."""
    if function := _symbol(path, "openblas_set_num_threads"):
        function(threads)
    loaded = threadpoolctl.ThreadpoolController().select(filepath=str(Path(path).resolve()))
    return loaded.limit(limits=threads)


def _launch(path: str, problem: GemmProblem, x: GemmOperands) -> Launch:
    name, real = _REALS[problem.dtype]
    function = _symbol(path, name)
    if function is None:
        raise Unsupported(f"{Path(path).name} has no {name} with any of the usual prefixes and suffixes")
    function.restype = None  # type: ignore[attr-defined]
    _limit(path, x.threads)
    calls = []
    matrices = [a if a.ndim == 3 else a[None] for a in (x.a, x.b, x.c)]
    for a, b, c in zip(*matrices, strict=True):
        # A library with 32-bit integers reads the lower half of each 64-bit number.
        sizes = [ctypes.c_int64(size) for size in (problem.m, problem.n, problem.k)]
        (at_a, at_b, at_c), (lda, ldb, ldc) = _places(a, b, c)
        calls.append(
            _bound(
                function,
                ctypes.c_int(_ROW_MAJOR),
                ctypes.c_int(_OPS[problem.op_a]),
                ctypes.c_int(_OPS[problem.op_b]),
                *sizes,
                *(real(problem.alpha), at_a, lda, at_b, ldb, real(problem.beta), at_c, ldc),
            )
        )
    return in_turn(*calls)


def _places(*matrices: Any) -> tuple[list[ctypes.c_void_p], list[ctypes.c_int64]]:
    addresses = [ctypes.c_void_p(matrix.ctypes.data) for matrix in matrices]
    return addresses, [ctypes.c_int64(matrix.strides[0] // matrix.itemsize) for matrix in matrices]


def _bound(function: Callable[..., Any], *arguments: Any) -> Launch:
    return lambda: function(*arguments)
