"""What tests do with the real PyCUDA on the stub driver, by the project's own launcher where that can be."""

import ctypes
from unittest.mock import patch

import cuda.core as core
import cupy
import numpy as np

from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.launch_pycuda import CubinFunction, pycuda_stream, take_stream, with_pycuda
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import KernelCall
from stub import control
from stub.programs import NOTHING, code, error_of, holding, new_stream, span

MANY = """struct S {{ unsigned small; unsigned long long large; }};
extern "C" __global__ void {name}(int *, int, S, float, long long) {{}}"""
STRUCT = np.void((7, 2**40), np.dtype([("small", "u4"), ("large", "u8")], align=True))


def own_stream():
    device = get_device("cuda")
    take_stream(device)
    return core.Stream.from_handle(device.stream.ptr)


def prepared(*arguments, source=NOTHING):
    kernel, stream = discover().kernels["gemm/cuda.naive"], get_device("cuda").stream
    function = CubinFunction(code("nothing", source), "nothing", {})
    return with_pycuda(kernel, function, KernelCall(1, 32, ()), list(arguments or (0, np.int32(7))), stream)


def parameters():
    stream, got = own_stream(), []
    control.run_launches_with(lambda launched: got.extend(launched.parameters()) or 0)
    scalars = (np.int32(-2), STRUCT, np.float32(1.5), np.int64(-3))
    prepared(2**40 + 1, *scalars, source=MANY)()
    stream.sync()
    control.run_launches_with(lambda launched: 0)
    return [raw.hex() for raw in got]


def refused_stream():
    """Set up a launch where the device's stream is not PyCUDA's; return why that is refused."""
    device = get_device("cuda")
    take_stream(device)
    device.run_on(cupy.cuda.Stream(non_blocking=True))
    error = error_of(prepared)
    take_stream(device)
    return error.partition(" 0x")[0]


def refused_by_the_driver():
    """Ask for PyCUDA's stream where the driver creates none; return the error, after which the process must end."""
    import pycuda.driver as driver

    with patch.object(driver, "Stream", side_effect=driver.Error("no stream")):
        return error_of(lambda: pycuda_stream(0))


def launch_elsewhere():
    own_stream()
    return span(new_stream(), prepared())


def load_while_held():
    import pycuda.driver as driver

    loaded, modules = code("loaded_late"), []
    with holding(own_stream()):  # what is loaded is released when the stream runs again
        return error_of(lambda: modules.append(driver.module_from_buffer(loaded)))


def too_few_parameters():
    own_stream()
    return error_of(prepared(0))


def absent_function():
    import pycuda.driver as driver

    own_stream()
    return error_of(lambda: driver.mem_alloc_pitch(4, 4, 4))


def leave_a_stream():
    import pycuda.driver as driver

    own_stream()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(driver.Stream()))
