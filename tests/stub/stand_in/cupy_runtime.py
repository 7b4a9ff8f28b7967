"""What the stand-in for CuPy has of the CUDA runtime: errors, properties, copies, and access to other GPUs."""

from types import SimpleNamespace
from typing import Any

import cuda.core as core
from cuda.bindings import driver

#: The runtime's numbers of what the driver answers.
NUMBERS = {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": 704}


class OutOfMemoryError(MemoryError):
    """The error of this name that bench/measure turns into `oom`."""


class CUDARuntimeError(RuntimeError):
    """What a call of CuPy raises where the driver refuses; status: the runtime's number, where it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.status = NUMBERS.get(name, 0)


def asked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemoryError(status.name)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CUDARuntimeError(status.name)
    return values[0] if values else None


def _properties(number: int) -> dict[str, Any]:
    device = core.Device(number)
    major, minor = device.compute_capability
    return {
        "name": device.name.encode(),
        "totalGlobalMem": asked(driver.cuDeviceTotalMem(number)),
        "l2CacheSize": device.properties.l2_cache_size,
        "multiProcessorCount": device.properties.multiprocessor_count,
        "major": major,
        "minor": minor,
    }


def _copy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
    copies = {1: driver.cuMemcpyHtoDAsync, 2: driver.cuMemcpyDtoHAsync, 3: driver.cuMemcpyDtoDAsync}
    asked(copies[kind](target, source, nbytes, stream))


def _copy_between(target: int, to: int, source: int, at: int, nbytes: int, stream: int) -> None:
    asked(driver.cuMemcpyPeerAsync(target, _contexts(to), source, _contexts(at), nbytes, stream))


def _enable_peer(peer: int) -> None:
    asked(driver.cuCtxEnablePeerAccess(_contexts(peer), 0))


def _contexts(number: int) -> Any:
    """Return the primary context of a device, which cuda-core keeps."""
    found = asked(driver.cuDevicePrimaryCtxRetain(number))
    driver.cuDevicePrimaryCtxRelease(number)
    return found


runtime = SimpleNamespace(
    getDeviceCount=lambda: int(asked(driver.cuDeviceGetCount())),
    getDeviceProperties=_properties,
    memGetInfo=lambda: driver.cuMemGetInfo()[1:],
    driverGetVersion=lambda: asked(driver.cuDriverGetVersion()),
    memcpyAsync=_copy,
    memcpyPeerAsync=_copy_between,
    deviceCanAccessPeer=lambda device, peer: int(asked(driver.cuDeviceCanAccessPeer(device, peer))),
    deviceEnablePeerAccess=_enable_peer,
    memcpyHostToDevice=1,
    memcpyDeviceToHost=2,
    memcpyDeviceToDevice=3,
    CUDARuntimeError=CUDARuntimeError,
)
