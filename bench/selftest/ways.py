"""A plug-in of kernels that last a known time on a GPU, each launched in a way of its own."""

from typing import Any

import numpy as np

from kernelmark import DeviceLimits, KernelCall, Launch, Tile, cuda_kernel, kernel
from kernelmark.bench.measure.compilers import cuda_sources
from kernelmark.bench.measure.tensormap import launch_with_structs
from kernelmark.bench.selftest.known import WAY_S

_DURATION_NS = round(WAY_S * 1e9)
_SHARED: dict[str, Any] = {"numerics": "exact", "dtypes": ("f32",)}
_CUPY: dict[str, Any] = {**_SHARED, "provider": "selftest", "device": "cuda", "modules": ("cupy",)}


@cuda_kernel(
    "copy",
    source="selftest/spin.cu",
    entry="selftest_spin",
    emulated="the emulator has no clock",
    name="way",
    **_SHARED,
)
def launched(p: Any, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Spins; launched by cuda-core or PyCUDA, as the job asks."""
    return [KernelCall(1, 256, ("a", "b", p.m * p.n, np.int64(_DURATION_NS)))]


def _options() -> tuple[str, ...]:
    return ("-std=c++17", f"-I{cuda_sources()}")


def _raw(x: Any) -> tuple[Any, tuple[Any, ...]]:
    """CuPy's function of the kernel, and its arguments."""
    import cupy

    module = cupy.RawModule(code='#include "selftest/spin.cu"\n', options=_options())
    arguments = (int(x.a.data.ptr), int(x.b.data.ptr), np.int32(x.a.size), np.int64(_DURATION_NS))
    return module.get_function("selftest_spin"), arguments


@kernel("copy", name="way_raw_kernel", **_CUPY)
def raw_kernel(problem: Any, x: Any) -> Launch:
    """Spins; launched by CuPy's RawKernel."""
    function, arguments = _raw(x)
    return lambda: function((1,), (256,), (x.a, x.b, *arguments[2:]))


@kernel("copy", name="way_launch_ex", **_CUPY)
def launch_ex(problem: Any, x: Any) -> Launch:
    """Spins; launched by cuLaunchKernelEx."""
    function, arguments = _raw(x)
    return launch_with_structs(int(function.kernel.ptr), KernelCall(1, 256, ()), list(arguments), x.stream.ptr)


@kernel("copy", name="way_elementwise_kernel", **_CUPY)
def elementwise_kernel(problem: Any, x: Any) -> Launch:
    """Spins; launched by CuPy's ElementwiseKernel."""
    import cupy

    body = "y = x; const unsigned long long stop = ptx::globaltimer() + ns; while (ptx::globaltimer() < stop) { }"
    function = cupy.ElementwiseKernel(
        "float32 x, int64 ns",
        "float32 y",
        body,
        "selftest_spin_elementwise",
        preamble='#include "selftest/ptx_globaltimer.cuh"',
        options=_options(),
    )
    return lambda: function(x.a, _DURATION_NS, x.b)
