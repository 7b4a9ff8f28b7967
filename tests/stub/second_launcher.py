"""Functions that tests call with the project's launchers and the real PyCUDA on the stub driver."""

from unittest.mock import patch

import cupy
import numpy as np

from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.launch import _LAUNCHERS
from kernelmark.bench.measure.launch_pycuda import CubinFunction, pycuda_stream, take_stream
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import KernelCall
from stub import control
from stub.programs import NOTHING, code, error_of

MANY = """struct S {{ unsigned small; unsigned long long large; }};
extern "C" __global__ void {name}(int *, int, S, float, long long) {{}}"""
STRUCT = np.void((7, 2**40), np.dtype([("small", "u4"), ("large", "u8")], align=True))


def prepared(*arguments, source=NOTHING, launcher="pycuda"):
    kernel, stream = discover().kernels["gemm/cuda.naive"], get_device("cuda").stream
    function, call = CubinFunction(code("nothing", source), "nothing", {}), KernelCall(1, 32, ())
    return _LAUNCHERS[launcher](kernel, function, call, list(arguments or (0, np.int32(7))), stream)


def parameters(launcher):
    """Return the parameters' values that the kernel gets: an address, an int, a struct, a float, a long long."""
    device, got = get_device("cuda"), []
    if launcher == "pycuda":
        take_stream(device)
    control.run_launches_with(lambda launched: got.extend(launched.parameters()) or 0)
    scalars = (np.int32(-2), STRUCT, np.float32(1.5), np.int64(-3))
    prepared(2**40 + 1, *scalars, source=MANY, launcher=launcher)()
    device.stream.synchronize()
    control.run_launches_with(lambda launched: 0)
    kinds = ("u8", *(scalar.dtype for scalar in scalars))
    return [np.frombuffer(raw, kind)[0].tolist() for raw, kind in zip(got, kinds, strict=True)]


def refused_stream():
    """Set up a launch while the device's stream is not PyCUDA's stream; return the error."""
    device = get_device("cuda")
    take_stream(device)
    device.run_on(cupy.cuda.Stream(non_blocking=True))
    error = error_of(prepared)
    take_stream(device)
    return error.partition(" 0x")[0]


def refused_by_the_driver():
    """Ask for PyCUDA's stream when the driver creates no stream; return the error. The process must then end."""
    import pycuda.driver as driver

    with patch.object(driver, "Stream", side_effect=driver.Error("no stream")):
        return error_of(lambda: pycuda_stream(0))


def too_few_parameters():
    take_stream(get_device("cuda"))
    return error_of(prepared(0))


def absent_function():
    import pycuda.driver as driver

    take_stream(get_device("cuda"))
    return error_of(lambda: driver.mem_alloc_pitch(4, 4, 4))
