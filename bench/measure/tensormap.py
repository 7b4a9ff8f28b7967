"""Tensor maps, the descriptors that Hopper's copy engine (TMA) reads, and launches with structs as arguments.

cuda-core 1.2 cannot encode TF32, has its swizzles in a private module, and launches only descriptors that it made.
Launches therefore use the driver's public bindings. These bindings allocate descriptors at any address, but cuda.h
requires an alignment of 128 bytes, so descriptors are encoded through ctypes into memory allocated here.
"""

import ctypes
import math
from collections.abc import Sequence
from ctypes import POINTER, c_int, c_int32, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

import numpy as np

from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import Im2colMap, KernelCall, Launch, TensorMap

ALIGNMENT = 16  # bytes, of a tensor's address and of its pitches
NBYTES = 128  # of a descriptor, and the alignment of its address: CUtensorMap of cuda.h
_SIZES, _STEPS, _CORNERS = POINTER(c_uint64), POINTER(c_uint32), POINTER(c_int32)
#: Arguments of cuTensorMapEncodeTiled: descriptor, type, dimensions, address, sizes, pitches, box, steps, four enums.
SIGNATURE = (c_void_p, c_int, c_uint32, c_void_p, _SIZES, _SIZES, _STEPS, _STEPS, c_int, c_int, c_int, c_int)
#: Arguments of cuTensorMapEncodeIm2col, with two corners and the channels and pixels of a copy instead of a box.
IM2COL_SIGNATURE = (*SIGNATURE[:6], _CORNERS, _CORNERS, c_uint32, c_uint32, _STEPS, *SIGNATURE[8:])
#: Element types by the dtype of the device's arrays: bfloat16 is stored as 16-bit integers, FP8 as bytes.
_ELEMENTS = {
    "u1": "UINT8",
    "i1": "UINT8",
    "i4": "INT32",
    "f2": "FLOAT16",
    "u2": "BFLOAT16",
    "f4": "FLOAT32",
    "f8": "FLOAT64",
}


@lru_cache
def encode_tiled() -> Any:
    """Return the driver's function cuTensorMapEncodeTiled."""
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    function.argtypes, function.restype = SIGNATURE, c_int
    return function


@lru_cache
def encode_im2col() -> Any:
    """Return the driver's function cuTensorMapEncodeIm2col."""
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeIm2col
    function.argtypes, function.restype = IM2COL_SIGNATURE, c_int
    return function


def aligned(nbytes: int = NBYTES) -> "np.ndarray[Any, Any]":
    """Return bytes at an address that is aligned for a descriptor."""
    memory = np.empty(nbytes + NBYTES, np.uint8)
    start = -memory.ctypes.data % NBYTES
    return memory[start : start + nbytes]


def spanned(rows: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return a tiled map's sizes along x, y and z in elements, and pitches along y and z in the unit of `strides`.

    rows: the axes of the array that y runs over, as in `TensorMap.rows`.
    """
    columns, counted = len(shape) - 1, sorted(axis % len(shape) for axis in rows)
    others = [axis for axis in range(columns) if axis not in counted]
    high, deep = (math.prod(shape[axis] for axis in axes) for axes in (counted, others))
    pitch = strides[counted[-1]]
    return [shape[columns], high, deep], [pitch, strides[others[-1]] if others else high * pitch]


def encode(wanted: TensorMap | Im2colMap, array: Any, subject: str) -> "np.ndarray[Any, Any]":
    """Return the descriptor of a device array, as aligned bytes.

    Raises Unsupported if the address or a pitch is not aligned, UsageError if the driver refuses the map.
    """
    from cuda.bindings import driver

    pitch = array.strides[-2]
    if array.data.ptr % ALIGNMENT or pitch % ALIGNMENT:
        raise Unsupported(
            f"{subject}: rows of {wanted.operand} begin at address {array.data.ptr}, {pitch} bytes apart, "
            f"expected multiples of {ALIGNMENT} for a tensor map"
        )
    descriptor = aligned()
    if isinstance(wanted, Im2colMap):
        if refusal := wanted.refusal(array.dtype.itemsize):
            raise UsageError(f"{subject}: {refusal}")
        status = _im2col(descriptor, wanted, array)
    else:
        status = _tiled(descriptor, wanted, array)
    if status != driver.CUresult.CUDA_SUCCESS:
        refused = driver.CUresult(status).name
        raise UsageError(f"{subject}: the driver refuses to encode {wanted} over {array.shape}: {refused}")
    return descriptor


def _tiled(descriptor: "np.ndarray[Any, Any]", wanted: TensorMap, array: Any) -> Any:
    sizes, pitches = spanned(wanted.rows, array.shape, array.strides)
    interleave, swizzle, promotion, fill = _enumerations(wanted.swizzle)
    return encode_tiled()(
        descriptor.ctypes.data,
        _data_type(array, wanted.tf32),
        3,
        array.data.ptr,
        (c_uint64 * 3)(*sizes),
        (c_uint64 * 2)(*pitches),
        (c_uint32 * 3)(wanted.box[1], wanted.box[0], 1),
        (c_uint32 * 3)(1, 1, 1),
        interleave,
        swizzle,
        promotion,
        fill,
    )


def _im2col(descriptor: "np.ndarray[Any, Any]", wanted: Im2colMap, array: Any) -> Any:
    """Encode an im2col map into `descriptor`; return the driver's status. The driver takes the innermost axis first."""
    interleave, swizzle, promotion, fill = _enumerations(wanted.swizzle)
    return encode_im2col()(
        descriptor.ctypes.data,
        _data_type(array),
        4,
        array.data.ptr,
        (c_uint64 * 4)(*array.shape[::-1]),
        (c_uint64 * 3)(*array.strides[-2::-1]),
        (c_int32 * 2)(*wanted.lower[::-1]),
        (c_int32 * 2)(*wanted.upper[::-1]),
        wanted.box[1],
        wanted.box[0],
        (c_uint32 * 4)(1, *wanted.stride[::-1], 1),
        interleave,
        swizzle,
        promotion,
        fill,
    )


def _data_type(array: Any, tf32: bool = False) -> Any:
    from cuda.bindings import driver

    element = "TFLOAT32" if tf32 else _ELEMENTS[f"{array.dtype.kind}{array.dtype.itemsize}"]
    return getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{element}")


def _enumerations(swizzle: str) -> tuple[Any, Any, Any, Any]:
    """Return the driver's enumerators for interleaving, swizzle, L2 promotion and the fill outside the tensor."""
    from cuda.bindings import driver

    return (
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle.upper()}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def packed(arguments: list[Any]) -> list["np.ndarray[Any, Any]"]:
    """Return the bytes that the kernel takes for each argument: a descriptor, an address (int) or a NumPy scalar."""
    scalars = [np.uint64(argument) if isinstance(argument, int) else argument for argument in arguments]
    return [
        scalar if isinstance(scalar, np.ndarray) else np.frombuffer(bytearray(scalar.tobytes()), np.uint8)
        for scalar in scalars
    ]


def extents(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the size of a grid or a block along x, y and z."""
    sizes = size if isinstance(size, tuple) else (size,)
    return (*sizes, 1, 1)[:3]


def launch_with_structs(function: int, call: KernelCall, arguments: list[Any], stream: int) -> Launch:
    """Pack the kernel's parameters, and return a function that launches the kernel on this stream."""
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = extents(call.grid)
    config.blockDimX, config.blockDimY, config.blockDimZ = extents(call.block)
    config.sharedMemBytes = call.shared_bytes
    config.hStream = driver.CUstream(stream)
    if call.cluster > 1:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape = attribute.value.clusterDim
        shape.x, shape.y, shape.z = call.cluster, 1, 1
        config.attrs, config.numAttrs = [attribute], 1
    values = packed(arguments)
    addresses = np.array([value.ctypes.data for value in values], np.uint64)
    kernel = driver.CUfunction(function)

    def launch() -> None:
        (status,) = driver.cuLaunchKernelEx(config, kernel, int(addresses.ctypes.data), 0)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuLaunchKernelEx: {status.name}, with {len(values)} arguments")

    return launch
