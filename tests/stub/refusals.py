"""Planted calls that the driver refuses: launches, copies and tensor maps beyond what the device takes."""

from ctypes import c_uint32, c_uint64
from typing import Any

from cuda.bindings import driver

from kernelmark.bench.measure.tensormap import NBYTES, aligned, encode_tiled
from stub import control
from stub.programs import device, launch, new_stream, nothing


def _status(call: Any) -> str:
    """Return the name of the error that a call of cuda-core raises."""
    try:
        call()
    except Exception as error:
        return str(error).split(":")[0]
    return "CUDA_SUCCESS"


def too_much_shared_memory() -> str:
    stream, kernel = new_stream(), nothing()
    return _status(lambda: launch(stream, kernel, shmem_size=49153))


def shared_memory_that_was_asked_for() -> str:
    """Launch with as much once the attribute is set, which breaks no rule."""
    stream, kernel = new_stream(), nothing()
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.cuKernelSetAttribute(attribute, 49153, kernel.handle, driver.CUdevice(0))
    return _status(lambda: launch(stream, kernel, shmem_size=49153))


def more_shared_memory_than_there_is() -> str:
    kernel = nothing()
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, 232449, kernel.handle, driver.CUdevice(0))
    return str(status.name)


def wide_cluster() -> str:
    stream, kernel = new_stream(), nothing()
    return _status(lambda: launch(stream, kernel, grid=1, cluster=16))


def wide_cluster_that_was_asked_for() -> str:
    """Launch a cluster of 16 once the attribute is set, which breaks no rule."""
    stream, kernel = new_stream(), nothing()
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    driver.cuKernelSetAttribute(attribute, 1, kernel.handle, driver.CUdevice(0))
    return _status(lambda: launch(stream, kernel, grid=1, cluster=16))


def too_many_cooperating_blocks() -> str:
    stream, kernel, config = new_stream(), nothing(), driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 132 * 32 + 1, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
    config.hStream = stream.handle
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    config.attrs, config.numAttrs = [attribute], 1
    (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(int(kernel.handle)), 0, 0)
    return str(status.name)


def threads_beyond_the_bound() -> str:
    stream, kernel = new_stream(), nothing()
    return _status(lambda: launch(stream, kernel, block=1025))


def copy_beyond_the_end() -> str:
    _, address = driver.cuMemAlloc(device() and 16)
    (status,) = driver.cuMemcpyHtoD(address, bytes(17), 17)
    driver.cuMemFree(address)
    return str(status.name)


def free_twice() -> str:
    _, address = driver.cuMemAlloc(device() and 16)
    driver.cuMemFree(address)
    (status,) = driver.cuMemFree(address)
    return str(status.name)


def failing_launch() -> list[str]:
    """Return the status of calls after a launch that failed: the context answers nothing any more."""
    stream, kernel = new_stream(), nothing()
    control.run_launches_with(lambda launched: driver.CUresult.CUDA_ERROR_LAUNCH_FAILED)
    first = _status(lambda: launch(stream, kernel))
    return [first, *(str(result[0].name) for result in (driver.cuCtxSynchronize(), driver.cuMemAlloc(16)))]


def misaligned_map() -> str:
    return _encode(address=8)


def misaligned_descriptor() -> str:
    return _encode(aside=64)


def box_wider_than_its_swizzle() -> str:
    return _encode(box=64)


def aligned_map() -> str:
    """Encode a map that breaks no rule."""
    return _encode()


def _encode(address: int = 0, box: int = 32, aside: int = 0) -> str:
    device()
    d = driver
    status = encode_tiled()(
        aligned(2 * NBYTES).ctypes.data + aside,
        d.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        2,
        (1 << 20) + address,
        (c_uint64 * 2)(64, 64),
        (c_uint64 * 1)(256),
        (c_uint32 * 2)(box, 8),
        (c_uint32 * 2)(1, 1),
        d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        d.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return str(d.CUresult(status).name)
