"""ctypes bindings of cuDNN 9's legacy convolution: functions of cudnn_ops.h, cudnn_cnn.h and cudnn_graph.h.

NVIDIA has deprecated these functions in favour of the graph API, but only they can select an algorithm.
"""

import ctypes
import importlib.util
from collections.abc import Callable
from ctypes import POINTER, byref, c_float, c_int, c_size_t, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelmark import Unsupported

_LIBRARY = "libcudnn.so.9"
# Categories of statuses: the thousands of a cudnnStatus_t.
_CALLER_WRONG, _NOT_SUPPORTED = 2, 3
_NO_MEMORY = (4003, 4004)  # CUDNN_STATUS_INTERNAL_ERROR_{HOST,DEVICE}_ALLOCATION_FAILED

# Descriptors, handles, arrays and scalars are all pointers here; enumerations are C ints.
_P, _I, _OUT, _SIZE = c_void_p, c_int, POINTER(c_void_p), POINTER(c_size_t)
_RUN = (_P, _P, _P, _P, _P, _P, _P, _I, _P, c_size_t, _P, _P, _P)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (_OUT,),
    "cudnnSetStream": (_P, _P),
    "cudnnCreateTensorDescriptor": (_OUT,),
    "cudnnCreateFilterDescriptor": (_OUT,),
    "cudnnCreateConvolutionDescriptor": (_OUT,),
    # descriptor, format, data type, n, c, h, w
    "cudnnSetTensor4dDescriptor": (_P, _I, _I, _I, _I, _I, _I),
    # descriptor, data type, format, k, c, h, w: here the format follows the data type
    "cudnnSetFilter4dDescriptor": (_P, _I, _I, _I, _I, _I, _I),
    # descriptor, padding, stride and dilation each of height and width, mode, type of the accumulator
    "cudnnSetConvolution2dDescriptor": (_P, _I, _I, _I, _I, _I, _I, _I, _I),
    "cudnnSetConvolutionGroupCount": (_P, _I),
    "cudnnSetConvolutionMathType": (_P, _I),
    # handle, first input, second input, convolution, output, algorithm, bytes; the output of wgrad is the filter
    "cudnnGetConvolutionForwardWorkspaceSize": (_P, _P, _P, _P, _P, _I, _SIZE),
    "cudnnGetConvolutionBackwardDataWorkspaceSize": (_P, _P, _P, _P, _P, _I, _SIZE),
    "cudnnGetConvolutionBackwardFilterWorkspaceSize": (_P, _P, _P, _P, _P, _I, _SIZE),
    # handle, alpha, two inputs with their descriptors, convolution, algorithm, workspace, its bytes, beta, output
    "cudnnConvolutionForward": _RUN,
    "cudnnConvolutionBackwardData": _RUN,
    "cudnnConvolutionBackwardFilter": _RUN,
}
# Values of cudnnDataType_t, cudnnTensorFormat_t, cudnnConvolutionMode_t and cudnnMathType_t.
DATA_TYPE = {"f32": 0, "f16": 2, "bf16": 9}
FORMAT = {"nchw": 0, "nhwc": 1}
CROSS_CORRELATION = 1
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3


class Refused(Unsupported):
    """cuDNN refused a problem; the message is the status that it returned."""


class Cudnn:
    """The functions of cuDNN by name; they raise an exception if their status is not success."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.cudnnGetVersion.restype = c_size_t
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p
        for name, signature in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype, function.errcheck = signature, c_int, self._check

    def __getattr__(self, name: str) -> Callable[..., int]:
        return getattr(self._library, name)  # type: ignore[no-any-return]

    @property
    def version(self) -> str:
        """Return the version of the library: `9.28.0`."""
        number = self._library.cudnnGetVersion()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def status(self, number: int) -> str:
        """Return the name of a status: `CUDNN_STATUS_NOT_SUPPORTED`."""
        text: bytes = self._library.cudnnGetErrorString(number)
        return text.decode()

    def new(self, what: str) -> c_void_p:
        """Create an opaque object. what: empty for a handle, or the name of a kind of descriptor."""
        made = c_void_p()
        getattr(self, f"cudnnCreate{what}")(byref(made))
        return made

    def _check(self, number: int, function: Any, arguments: tuple[Any, ...]) -> int:
        if not number:
            return number
        text = f"{function.__name__} returned {self.status(number)}"
        if number in _NO_MEMORY:
            raise MemoryError(text)
        # The workspace size is requested first, so an error there means that the algorithm is not built in.
        is_size_query = function.__name__.endswith("WorkspaceSize")
        if number // 1000 == _NOT_SUPPORTED or (is_size_query and number // 1000 == _CALLER_WRONG):
            raise Refused(text)
        raise RuntimeError(text)


@lru_cache
def cudnn() -> Cudnn:
    """Return the library from NVIDIA's wheel, or otherwise the one that the loader finds. Raises Unsupported."""
    try:
        return Cudnn(library_path())
    except OSError:
        raise Unsupported(f"found no {_LIBRARY}; pip install nvidia-cudnn-cu13") from None


def library_path() -> str:
    """Return the path of the library in its wheel, or only its file name if the wheel is not installed.

    The wheel's files are in the namespace package `nvidia`.
    """
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder, "cudnn", "lib", _LIBRARY)).exists():
            return str(path)
    return _LIBRARY


@lru_cache
def handle() -> c_void_p:
    """Return the process's handle, on the device that was current at the first call."""
    return cudnn().new("")


#: Scalars of every storage type that is computed in FP32; launches hold their addresses.
ONE, ZERO = c_float(1.0), c_float(0.0)
