"""Planted breaches of the stub driver's rules on streams and handles, and what looks like one and is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cuda.core as core
from cuda.bindings import driver

from stub.programs import Word, device, launch, new_stream, nothing, record, span


@contextmanager
def holding(stream: Any) -> Iterator[None]:
    """Hold the stream while the body runs."""
    flag = core.LegacyPinnedMemoryResource().allocate(4)
    word = Word(int(flag.handle))
    word.hold(stream)
    yield
    word.let_go()
    stream.sync()
    flag.close()


def launch_elsewhere() -> float:
    """Launch on another stream between two records; return the span, which misses it."""
    timed, other, kernel = new_stream(), new_stream(), nothing()
    return span(timed, lambda: launch(other, kernel))


def launch_elsewhere_and_join() -> float:
    """Launch on another stream that is forked from the timed one and joined to it again, which breaks no rule."""
    timed, other, kernel = new_stream(), new_stream(), nothing()
    return span(timed, lambda: other.wait(timed), lambda: launch(other, kernel), lambda: timed.wait(other))


def launch_elsewhere_without_joining() -> float:
    """Launch on a stream that is forked from the timed one and not joined to it."""
    timed, other, kernel = new_stream(), new_stream(), nothing()
    return span(timed, lambda: other.wait(timed), lambda: launch(other, kernel))


def synchronise_while_held() -> str:
    """Synchronise a held stream; return the status, which the driver would never give."""
    stream = new_stream()
    with holding(stream):
        (status,) = driver.cuStreamSynchronize(stream.handle)
    return str(status.name)


def synchronise_an_event_while_held() -> None:
    stream = new_stream()
    with holding(stream):
        event = record(stream)
        driver.cuEventSynchronize(event.handle)


def synchronise_all_while_held() -> None:
    with holding(new_stream()):
        driver.cuCtxSynchronize()


def allocate_while_held() -> None:
    with holding(new_stream()):
        _, address = driver.cuMemAlloc(16)
    driver.cuMemFree(address)


def free_while_held() -> None:
    _, address = driver.cuMemAlloc(device() and 16)
    with holding(new_stream()):
        driver.cuMemFree(address)


def load_while_held() -> None:
    stream, code = (
        new_stream(),
        core.Program('extern "C" __global__ void f() {}', "c++", core.ProgramOptions(arch="sm_90")).compile("cubin"),
    )
    with holding(stream):
        code.get_kernel("f")


def copy_while_held() -> None:
    stream, (_, address) = new_stream(), driver.cuMemAlloc(device() and 16)
    with holding(stream):
        driver.cuMemcpyHtoDAsync(address, bytes(16), 16, stream.handle)
    driver.cuMemFree(address)


def copy_pinned_while_held() -> None:
    """Copy between pinned memory and the device on a held stream, which breaks no rule."""
    stream, pinned = new_stream(), core.LegacyPinnedMemoryResource().allocate(16)
    _, address = driver.cuMemAlloc(16)
    with holding(stream):
        driver.cuMemcpyHtoDAsync(address, int(pinned.handle), 16, stream.handle)
    driver.cuMemFree(address)
    pinned.close()


def leave_everything() -> None:
    """Leave one handle of each kind to the end of the process."""
    stream = new_stream()
    driver.cuMemAlloc(16)
    driver.cuEventCreate(0)
    driver.cuStreamCreate(0)
    driver.cuStreamBeginCapture(stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    _, graph = driver.cuStreamEndCapture(stream.handle)
    driver.cuGraphInstantiate(graph, 0)


def synchronise_while_capturing() -> str:
    stream = new_stream()
    driver.cuStreamBeginCapture(stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    (status,) = driver.cuStreamSynchronize(stream.handle)
    _, graph = driver.cuStreamEndCapture(stream.handle)
    driver.cuGraphDestroy(graph)
    return str(status.name)


def capture_without_joining() -> str:
    """End a capture while another stream still has work of it."""
    first, second, kernel = new_stream(), new_stream(), nothing()
    _, event = driver.cuEventCreate(0)
    driver.cuStreamBeginCapture(first.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    driver.cuEventRecord(event, first.handle)
    driver.cuStreamWaitEvent(second.handle, event, 0)
    launch(second, kernel)
    status, _ = driver.cuStreamEndCapture(first.handle)
    driver.cuEventDestroy(event)
    return str(status.name)
