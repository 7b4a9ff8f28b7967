"""Stands in for CuPy, which cannot start on a stub: the part that bench/measure uses, on cuda-core's objects.

A kernel that uses more fails with an AttributeError that names the missing part.
"""

import ctypes
import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import cuda.core as core
import numpy as np
from cuda.bindings import driver
from numpy import uint8  # noqa: F401


class OutOfMemoryError(MemoryError):
    """The error of this name that bench/measure turns into `oom`."""


class CUDARuntimeError(RuntimeError):
    """A call that the driver refuses. status: 704 if peer access was already enabled, else 0, as no other is read."""

    def __init__(self, name):
        super().__init__(name)
        self.status = 704 if name == "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" else 0


def _checked(result):
    status, *values = result
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemoryError(status.name)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CUDARuntimeError(status.name)
    return values[0] if values else None


class Memory:
    """A block of device memory, freed with the last array on it."""

    def __init__(self, nbytes):
        self.ptr, self.device = int(_checked(driver.cuMemAlloc(max(nbytes, 1)))), Device()

    def __del__(self):
        driver.cuMemFree(self.ptr)


class ndarray:  # noqa: N801
    """An array on the device: NumPy only computes shapes and strides, and every access goes through the driver."""

    def __init__(self, memory, shadow):
        self._memory, self._shadow = memory, shadow  # the shadow is never read or written
        self.shape, self.strides, self.dtype = shadow.shape, shadow.strides, shadow.dtype
        self.ndim, self.size, self.nbytes = shadow.ndim, shadow.size, shadow.nbytes
        self.data, self.device = SimpleNamespace(ptr=shadow.ctypes.data), memory.device

    def __len__(self):
        return int(self.shape[0])

    def view(self, dtype):
        return ndarray(self._memory, self._shadow.view(dtype))

    def reshape(self, *shape):
        return ndarray(self._memory, self._shadow.reshape(*shape))

    def swapaxes(self, first, second):
        return ndarray(self._memory, self._shadow.swapaxes(first, second))

    def __getitem__(self, index):
        return ndarray(self._memory, self._shadow[index])

    def fill(self, value):
        fill = {1: driver.cuMemsetD8Async, 2: driver.cuMemsetD16Async, 4: driver.cuMemsetD32Async}
        if self.dtype.itemsize in fill:
            _checked(fill[self.dtype.itemsize](self.data.ptr, int(value), self.size, _Streams.now()))
        else:
            self.set(np.full(self.shape, value, self.dtype))

    def set(self, source, stream=None):
        host = np.ascontiguousarray(source, self.dtype)
        _checked(driver.cuMemcpyHtoDAsync(self.data.ptr, host.ctypes.data, host.nbytes, _pointer(stream)))

    def get(self, stream=None, out=None):
        host = np.empty(self.shape, self.dtype) if out is None else out
        _checked(driver.cuMemcpyDtoHAsync(host.ctypes.data, self.data.ptr, host.nbytes, _pointer(stream)))
        _checked(driver.cuStreamSynchronize(_pointer(stream)))
        return host


class _Streams:
    """The handle of each device's current stream, 0 if it has none.

    Leaving a `with` makes the stream below it on the stack current. `use()` pushes no stream, so the end of the next
    `with` does not restore the stream that `use()` made current (cupy/cupy issue 8377).
    """

    current: ClassVar[dict[int, int]] = {}
    stack: ClassVar[list[int]] = [0]

    @classmethod
    def now(cls):
        return cls.current.get(Device().id, 0)


def _pointer(stream):
    return _Streams.now() if stream is None else int(stream.ptr)


class Stream:
    """A stream; `with` and `use` make it current."""

    def __init__(self, non_blocking=False):
        self._stream = Device().core.create_stream(options=core.StreamOptions(nonblocking=non_blocking))
        self.ptr = int(self._stream.handle)

    @classmethod
    def from_external(cls, other):
        """Take over a stream that another library owns."""
        stream = cls.__new__(cls)
        version, stream.ptr = other.__cuda_stream__()
        assert version == 0
        stream._stream = other
        return stream

    def use(self):
        _Streams.current[Device().id] = self.ptr
        return self

    def __enter__(self):
        _Streams.stack.append(self.ptr)
        return self.use()

    def __exit__(self, *_):
        _Streams.stack.pop()
        _Streams.current[Device().id] = _Streams.stack[-1]

    def wait_event(self, event):
        _checked(driver.cuStreamWaitEvent(self.ptr, event.handle, 0))

    def synchronize(self):
        _checked(driver.cuStreamSynchronize(self.ptr))

    def begin_capture(self):
        _checked(driver.cuStreamBeginCapture(self.ptr, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))

    def end_capture(self):
        return Graph(_checked(driver.cuStreamEndCapture(self.ptr)))


class Graph:
    """An executable graph of the calls that a stream has captured."""

    def __init__(self, graph):
        self._executable = _checked(driver.cuGraphInstantiate(graph, 0))
        _checked(driver.cuGraphDestroy(graph))

    def launch(self, stream):
        _checked(driver.cuGraphLaunch(self._executable, stream.ptr))

    def __del__(self):
        driver.cuGraphExecDestroy(self._executable)


class Event:
    def __init__(self, block=False, disable_timing=False):
        self.handle = _checked(driver.cuEventCreate(block + 2 * disable_timing))

    def record(self, stream):
        _checked(driver.cuEventRecord(self.handle, stream.ptr))

    def synchronize(self):
        _checked(driver.cuEventSynchronize(self.handle))

    def __del__(self):
        driver.cuEventDestroy(self.handle)


def alloc_pinned_memory(nbytes):
    """Return pinned memory that NumPy can read."""
    pointer = int(_checked(driver.cuMemHostAlloc(nbytes, 0)))
    kind = type("Pinned", (ctypes.c_ubyte * nbytes,), {"__del__": lambda self: driver.cuMemFreeHost(self.ptr)})
    address = kind.from_address(pointer)
    address.ptr = pointer
    return address


class Device:
    """A device. cuda-core looks it up only when needed, so that a lost device can still be named and waited for."""

    pci_bus_id = "0000:00:00.0"

    _before: ClassVar[list[int]] = []
    _now = 0

    def __init__(self, number=None):
        self.id = Device._now if number is None else number

    @property
    def core(self):
        device = core.Device(self.id)
        device.set_current()
        return device

    def use(self):
        self.core.set_current()
        Device._now = self.id

    def __enter__(self):
        Device._before.append(Device._now)
        self.use()
        return self

    def __exit__(self, *_):
        Device(Device._before.pop()).use()

    def synchronize(self):
        with self if self.id != Device._now else nullcontext():  # a lost device cannot be made current
            _checked(driver.cuCtxSynchronize())


def empty(count, dtype):
    memory = Memory(count * np.dtype(dtype).itemsize)
    return ndarray(memory, np.frombuffer((ctypes.c_ubyte * count).from_address(memory.ptr), dtype))


def array_equal(a, b):
    return np.array_equal(a.get(), b.get())


def get_default_memory_pool():
    return SimpleNamespace(free_all_blocks=lambda: None)


def _properties(number):
    device = core.Device(number)
    major, minor = device.compute_capability
    return {
        "name": device.name.encode(),
        "totalGlobalMem": _checked(driver.cuDeviceTotalMem(number)),
        "l2CacheSize": device.properties.l2_cache_size,
        "multiProcessorCount": device.properties.multiprocessor_count,
        "major": major,
        "minor": minor,
    }


def _copy(target, source, nbytes, kind, stream):
    copies = {1: driver.cuMemcpyHtoDAsync, 2: driver.cuMemcpyDtoHAsync, 3: driver.cuMemcpyDtoDAsync}
    _checked(copies[kind](target, source, nbytes, stream))


def _copy_between(target, to, source, at, nbytes, stream):
    _checked(driver.cuMemcpyPeerAsync(target, _contexts(to), source, _contexts(at), nbytes, stream))


def _contexts(number):
    """Return the primary context of a device, which cuda-core keeps."""
    context = _checked(driver.cuDevicePrimaryCtxRetain(number))
    driver.cuDevicePrimaryCtxRelease(number)
    return context


runtime = SimpleNamespace(
    getDeviceCount=lambda: int(_checked(driver.cuDeviceGetCount())),
    getDeviceProperties=_properties,
    memGetInfo=lambda: driver.cuMemGetInfo()[1:],
    driverGetVersion=lambda: _checked(driver.cuDriverGetVersion()),
    memcpyAsync=_copy,
    memcpyPeerAsync=_copy_between,
    deviceCanAccessPeer=lambda device, peer: int(_checked(driver.cuDeviceCanAccessPeer(device, peer))),
    deviceEnablePeerAccess=lambda peer: _checked(driver.cuCtxEnablePeerAccess(_contexts(peer), 0)),
    memcpyHostToDevice=1,
    memcpyDeviceToHost=2,
    memcpyDeviceToDevice=3,
    CUDARuntimeError=CUDARuntimeError,
)
cuda = SimpleNamespace(
    Device=Device,
    Stream=Stream,
    get_current_stream=lambda: SimpleNamespace(ptr=_Streams.now()),
    Event=Event,
    alloc_pinned_memory=alloc_pinned_memory,
    get_elapsed_time=lambda start, stop: float(_checked(driver.cuEventElapsedTime(start.handle, stop.handle))),
    runtime=runtime,
    set_allocator=lambda allocator: None,  # each array has its own allocation
    nccl=SimpleNamespace(available=False),
)
sys.modules["cupy.cuda"] = cuda
if os.environ.get("KM_STUB_NCCL"):
    import nccl_stand_in
    from nccl_stand_in import ElementwiseKernel  # noqa: F401  # for the update after a sum

    cuda.nccl = nccl_stand_in

if os.environ.get("KM_STUB_EMULATES"):
    import stub.rehearsed  # noqa: F401  # every process that has a device also has an emulator to run its launches
