"""The C functions that bench and kernels call by ctypes, with the parameters that they declare for them."""

import ctypes
from collections.abc import Iterable, Mapping
from ctypes import c_void_p
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kernelmark.bench.measure import tensormap
from kernelmark.kernels.conv.vendor import _cudnn
from kernelmark.kernels.gemm import _cublas

_WIDTHS = {ctypes.c_int: "i32", ctypes.c_uint32: "u32", ctypes.c_longlong: "i64", ctypes.c_size_t: "u64"}


class _Library:
    """Stands for a library: its functions take attributes and have their names."""

    def __getattr__(self, name: str) -> Any:
        function = SimpleNamespace(__name__=name)
        setattr(self, name, function)
        return function


def declared() -> Mapping[str, str]:
    """Return the parameters of each function as gpu_signatures.prototype writes them."""
    library, found = _Library(), {"libcuda.cuTensorMapEncodeTiled": _text(tensormap.SIGNATURE)}
    found |= {"libcuda.cuTensorMapEncodeIm2col": _text(tensormap.IM2COL_SIGNATURE)}
    with patch("cuda.pathfinder.load_nvidia_dynamic_lib"), patch("ctypes.CDLL", lambda path: library):
        _cublas._Ctypes()
    found |= {f"libcublas.{name}": _text(function.argtypes) for name, function in vars(library).items()}
    found |= {f"libcudnn.{name}": _text(signature) for name, signature in _cudnn._SIGNATURES.items()}
    return found | {"libcublas.cublasGetVersion_v2": "(pointer, pointer)", "libcublas.cublasCreate_v2": "(pointer)"}


def _text(types: Iterable[Any]) -> str:
    return f"({', '.join(map(_width, types))})"


def _width(kind: Any) -> str:
    return "pointer" if kind is c_void_p or issubclass(kind, ctypes._Pointer) else _WIDTHS[kind]
