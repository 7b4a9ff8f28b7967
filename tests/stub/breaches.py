"""Planted breaches of the stub driver's rules, calls that it refuses, faults of the device, and permitted calls."""

import os
from ctypes import c_uint32, c_uint64
from types import SimpleNamespace

import cuda.core as core
from cuda.bindings import driver

from kernelmark.bench.measure.tensormap import NBYTES, aligned, encode_tiled
from stub.programs import code, device, error_of, holding, launch, new_stream, nothing, record, span


def launch_elsewhere(is_forked=False, is_joined=False):
    """Launch on another stream between two event records, forked from the timed stream and joined to it if wanted.

    Return the span between the events, which does not include launches that are not joined.
    """
    timed, other, kernel = new_stream(), new_stream(), nothing()
    fork, join = [lambda: other.wait(timed)] * is_forked, [lambda: timed.wait(other)] * is_joined
    return span(timed, *fork, lambda: launch(other, kernel), *join)


#: Calls that a held stream would keep from returning.
BLOCKING = {
    "cuStreamSynchronize": lambda on: driver.cuStreamSynchronize(on.stream.handle),
    "cuEventSynchronize": lambda on: driver.cuEventSynchronize(on.event.handle),
    "cuCtxSynchronize": lambda on: driver.cuCtxSynchronize(),
    "cuMemAlloc_v2": lambda on: driver.cuMemAlloc(16),
    "cuMemFree_v2": lambda on: driver.cuMemFree(on.address),
    "cuLibraryLoadData": lambda on: driver.cuLibraryLoadData(code("late"), [], [], 0, [], [], 0),
    "cuMemcpyHtoDAsync_v2": lambda on: driver.cuMemcpyHtoDAsync(on.address, bytes(16), 16, on.stream.handle),
}


def call_while_held(function):
    """Make a call while a stream is held; return the stub's status. The real driver would not return."""
    stream, (_, address) = new_stream(), driver.cuMemAlloc(device() and 16)
    with holding(stream):
        status, *_ = BLOCKING[function](SimpleNamespace(stream=stream, event=record(stream), address=address))
    return str(status.name)


def copy_pinned_while_held():
    stream, pinned = new_stream(), core.LegacyPinnedMemoryResource().allocate(16)
    _, address = driver.cuMemAlloc(16)
    with holding(stream):
        driver.cuMemcpyHtoDAsync(address, int(pinned.handle), 16, stream.handle)
    driver.cuMemFree(address)
    pinned.close()


def leave_everything():
    stream = new_stream()
    driver.cuMemAlloc(16)
    driver.cuEventCreate(0)
    driver.cuStreamCreate(0)
    driver.cuStreamBeginCapture(stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    _, graph = driver.cuStreamEndCapture(stream.handle)
    driver.cuGraphInstantiate(graph, 0)


def capture_without_joining():
    """End a capture while another stream still has captured work that is not joined."""
    first, second, kernel = new_stream(), new_stream(), nothing()
    _, event = driver.cuEventCreate(0)
    driver.cuStreamBeginCapture(first.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    driver.cuEventRecord(event, first.handle)
    driver.cuStreamWaitEvent(second.handle, event, 0)
    launch(second, kernel)
    status, _ = driver.cuStreamEndCapture(first.handle)
    driver.cuEventDestroy(event)
    return str(status.name)


def launched(shape, attribute="", value=0):
    stream, kernel = new_stream(), nothing()
    if attribute:
        named = driver.CUfunction_attribute[f"CU_FUNC_ATTRIBUTE_{attribute}"]
        (status,) = driver.cuKernelSetAttribute(named, value, kernel.handle, driver.CUdevice(0))
        if status != driver.CUresult.CUDA_SUCCESS:
            return str(status.name)
    return error_of(lambda: launch(stream, kernel, **shape)).split(":")[0]


def too_many_cooperating_blocks():
    stream, kernel = new_stream(), nothing()
    function = driver.CUfunction(int(kernel.handle))
    (status,) = driver.cuLaunchCooperativeKernel(function, 132 * 32 + 1, 1, 1, 32, 1, 1, 0, stream.handle, 0)
    return str(status.name)


def copy_beyond_the_end():
    _, address = driver.cuMemAlloc(device() and 16)
    (status,) = driver.cuMemcpyHtoD(address, bytes(17), 17)
    driver.cuMemFree(address)
    return str(status.name)


def free_twice():
    _, address = driver.cuMemAlloc(device() and 16)
    driver.cuMemFree(address)
    (status,) = driver.cuMemFree(address)
    return str(status.name)


def encoded_map(address=0, box=32, offset=0):
    device()
    d = driver
    status = encode_tiled()(
        aligned(2 * NBYTES).ctypes.data + offset,
        d.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        2,
        (1 << 20) + address,
        (c_uint64 * 2)(64, 64),
        (c_uint64 * 1)(256),
        (c_uint32 * 2)(box, 8),
        (c_uint32 * 2)(1, 1),
        d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        d.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        0,
        0,
    )
    return str(d.CUresult(status).name)


def memory_that_runs_out():
    device()
    os.environ.update(KM_STUB_FAULT="oom", KM_STUB_FAULT_AT="2")
    results = [driver.cuMemAlloc(16) for _ in range(3)]
    driver.cuMemFree(results[0][1])
    return [str(status.name) for status, _ in results]


def clock_that_jumps():
    """Return the spans in milliseconds of three launches of 1 us: a sound kernel, then two at which time jumps."""
    stream, sound, struck = new_stream(), nothing(), nothing("struck")
    os.environ.update(KM_STUB_FAULT="clock", KM_STUB_FAULT_AT="truc")
    return [span(stream, lambda kernel=kernel: launch(stream, kernel)) for kernel in (sound, struck, struck)]


def illegal_address():
    stream, sound, struck = new_stream(), nothing(), nothing("struck")
    os.environ.update(KM_STUB_FAULT="illegal", KM_STUB_FAULT_AT="truc")
    launch(stream, sound)
    statuses = [driver.cuCtxSynchronize()[0]]
    launch(stream, struck)  # the driver reports the error later
    statuses += [driver.cuCtxSynchronize()[0], driver.cuMemAlloc(16)[0], driver.cuStreamQuery(stream.handle)[0]]
    return [str(status.name) for status in statuses]
