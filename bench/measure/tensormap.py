"""Tensor maps, the descriptors that Hopper's copy engine (TMA) reads, and launching with structs as arguments.

cuda-core 1.2 encodes no TF32 and takes its swizzles from a private module, and its `launch` takes no other descriptor
than its own, so launches go through the driver's public bindings. These in turn keep a descriptor at any address, while
cuda.h aligns it to 128 bytes, so the driver encodes by ctypes into memory that is ours.
"""

import ctypes
import math
from ctypes import POINTER, c_int, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

import numpy as np

from bench.plan.errors import Unsupported, UsageError
from bench.plan.kernel import KernelCall, Launch, TensorMap

ALIGNMENT = 16  # bytes, of a tensor's address and of its pitches
NBYTES = 128  # of a descriptor, and the alignment of its address: CUtensorMap of cuda.h
_SIZES, _STEPS = POINTER(c_uint64), POINTER(c_uint32)
#: Descriptor, type, dimensions, address, sizes, pitches, box, steps and four enumerations: cuTensorMapEncodeTiled's.
SIGNATURE = (c_void_p, c_int, c_uint32, c_void_p, _SIZES, _SIZES, _STEPS, _STEPS, c_int, c_int, c_int, c_int)
#: By the device's own dtype: bfloat16 stands in arrays of 16-bit integers, and FP8, which has no type of its own, in
#: bytes.
_ELEMENTS = {"u1": "UINT8", "f2": "FLOAT16", "u2": "BFLOAT16", "f4": "FLOAT32", "f8": "FLOAT64"}


@lru_cache
def encode_tiled() -> Any:
    """Return the driver's function of this name."""
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    function.argtypes, function.restype = SIGNATURE, c_int
    return function


def aligned(nbytes: int = NBYTES) -> "np.ndarray[Any, Any]":
    """Return bytes at an address that a descriptor may have."""
    memory = np.empty(nbytes + NBYTES, np.uint8)
    start = -memory.ctypes.data % NBYTES
    return memory[start : start + nbytes]


def encode(wanted: TensorMap, array: Any, subject: str) -> "np.ndarray[Any, Any]":
    """The descriptor of a device array, as aligned bytes: columns, rows, and whatever is before them.

    Raises Unsupported where address or pitch are not aligned, UsageError where the driver refuses.
    """
    from cuda.bindings import driver

    pitch = array.strides[-2]
    if array.data.ptr % ALIGNMENT or pitch % ALIGNMENT:
        raise Unsupported(
            f"{subject}: rows of {wanted.operand} begin at address {array.data.ptr} every {pitch} bytes, "
            f"expected multiples of {ALIGNMENT} for a tensor map"
        )
    rows, columns = array.shape[-2:]
    layers = math.prod(array.shape[:-2])
    layer_pitch = array.strides[-3] if array.ndim > 2 else rows * pitch
    element = "TFLOAT32" if wanted.tf32 else _ELEMENTS[f"{array.dtype.kind}{array.dtype.itemsize}"]
    descriptor = aligned()
    status = encode_tiled()(
        descriptor.ctypes.data,
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{element}"),
        3,
        array.data.ptr,
        (c_uint64 * 3)(columns, rows, layers),
        (c_uint64 * 2)(pitch, layer_pitch),
        (c_uint32 * 3)(wanted.box[1], wanted.box[0], 1),
        (c_uint32 * 3)(1, 1, 1),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{wanted.swizzle.upper()}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        refused = driver.CUresult(status).name
        raise UsageError(f"{subject}: the driver encodes no {wanted} over {array.shape}: {refused}")
    return descriptor


def is_struct(argument: Any) -> bool:
    """Return whether a resolved argument is passed by value as a struct, which cuda-core's `launch` does not take."""
    return is_descriptor(argument) or isinstance(argument, np.void)


def is_descriptor(argument: Any) -> bool:
    """Return whether a resolved argument is what `encode` returned."""
    return isinstance(argument, np.ndarray)


def packed(arguments: list[Any]) -> list["np.ndarray[Any, Any]"]:
    """Each argument's bytes as the kernel's parameter holds them: descriptors, addresses (int), NumPy scalars."""
    return [argument if is_descriptor(argument) else _bytes(argument) for argument in arguments]


def _bytes(argument: Any) -> "np.ndarray[Any, Any]":
    scalar = np.uint64(argument) if isinstance(argument, int) else argument
    return np.frombuffer(bytearray(scalar.tobytes()), np.uint8)


def extents(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """A grid or a block along x, y and z."""
    sizes = size if isinstance(size, tuple) else (size,)
    return (*sizes, 1, 1)[:3]


def launch_with_structs(function: int, call: KernelCall, arguments: list[Any], stream: int) -> Launch:
    """Return what launches the kernel of this handle on this stream; the parameters are packed once, here."""
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
            raise RuntimeError(f"cuLaunchKernelEx: {status.name}, of {len(values)} arguments")

    return launch
