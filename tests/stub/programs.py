"""Functions that tests call in processes with the stub driver and the real cuda-core."""

import ctypes
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import SimpleNamespace

import cuda.core as core
from cuda.bindings import driver

from kernelmark.bench.measure.launch import launched
from stub import control

NOTHING = 'extern "C" __global__ void {name}(int *, int) {{}}'


def device():
    present = core.Device(0)
    present.set_current()
    return present


def new_stream():
    return device().create_stream(options=core.StreamOptions(nonblocking=True))


def nothing(name="nothing"):
    """Load a kernel with two parameters, an address and an int, that does nothing; return it."""
    return core.ObjectCode.from_cubin(code(name)).get_kernel(name)


@lru_cache
def code(name, source=NOTHING):
    program = core.Program(source.format(name=name), "c++", core.ProgramOptions(arch="sm_90"))
    return bytes(program.compile("cubin").code)


def launch(stream, kernel, **shape):
    config = core.LaunchConfig(**{"grid": 1, "block": 32, **shape})
    core.launch(stream, config, kernel, 0, 7)


def record(stream):
    return stream.record(options=core.EventOptions(timing_enabled=True))


def properties():
    gpu = device()
    (_, count), names = driver.cuDeviceGetCount(), (gpu.name, f"sm_{gpu.arch}")
    return [count, *names, gpu.properties.multiprocessor_count, gpu.properties.cluster_launch]


def span(stream, *calls):
    start = record(stream)
    for call in calls:
        call()
    stop = record(stream)
    stop.sync()
    return float(stop - start)


def spans():
    stream, kernel, spans_s = new_stream(), nothing(), []
    for count, nanoseconds in ((0, 1), (1, 1), (3, 333_333), (5, 123_456_789)):
        control.launches_take(nanoseconds)
        spans_s.append(span(stream, *[lambda: launch(stream, kernel)] * count))
    return spans_s


def error_of(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


@contextmanager
def holding(stream):
    """Hold the stream, which waits for a word in pinned memory, while the context lasts."""
    flag = core.LegacyPinnedMemoryResource().allocate(4)
    word, geq = ctypes.c_uint32.from_address(int(flag.handle)), driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
    word.value = 0
    (status,) = driver.cuStreamWaitValue32(stream.handle, int(flag.handle), 1, geq)
    assert status == driver.CUresult.CUDA_SUCCESS
    yield
    word.value = 1
    stream.sync()
    flag.close()


def held_span():
    """Return the span of ten launches that cost the host more than the device, with and without a held stream."""
    control.launches_take(1_000)
    control.host_takes(5_000)
    stream, kernel, spans = new_stream(), nothing(), {}
    for how, hold in (("free", nullcontext()), ("held", holding(stream))):
        with hold:
            start = record(stream)
            for _ in range(10):
                launch(stream, kernel)
            stop = record(stream)
            assert stop.is_done == (how == "free")
        stop.sync()
        spans[how] = stop - start
    control.host_takes(0)
    return spans


def launches_read():
    """Return what `launched` reports for each call, and how many launches had run before and after a real call."""
    stream, ran = new_stream(), []
    at = int(stream.handle)
    control.run_launches_with(lambda launched: ran.append(launched.entry) or 0)
    of_library, long = nothing("scaled"), nothing("longer_" * 30)
    _, module = driver.cuModuleLoadData(code("scaled"))
    _, of_module = driver.cuModuleGetFunction(module, b"scaled")

    def both():
        launch(stream, of_library, grid=(3, 2, 1), block=(8, 4, 2))
        driver.cuMemsetD8Async(flag, 0, 4, at)
        driver.cuLaunchKernel(of_module, 5, 1, 7, 64, 1, 1, 0, at, ((0, 7), (ctypes.c_void_p, ctypes.c_int)), 0)

    def waits():
        launch(stream, of_library)
        stream.sync()

    _, flag = driver.cuMemAlloc(4)
    calls = {
        "both": both,
        "none": lambda: None,
        "long": lambda: launch(stream, long),
        "eight": lambda: [launch(stream, of_library) for _ in range(8)],
        "eleven": lambda: [launch(stream, of_library) for _ in range(11)],
        "waits": waits,
        "raises": lambda: 1 // 0,
    }
    reports = {how: launched(call, SimpleNamespace(ptr=at)) for how, call in calls.items()}
    before = len(ran)
    both()
    stream.sync()
    driver.cuMemFree(flag)
    driver.cuModuleUnload(module)
    control.run_launches_with(lambda launched: 0)
    return reports | {"before": before, "after": len(ran)}
