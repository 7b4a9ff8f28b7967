"""A plug-in of kernels with known durations: copies that spin until a clock reaches a time, and a slowed product.

The kernels read the processor's time-stamp counter on a CPU and the global timer on a GPU, not the harness's clock.
"""

from time import perf_counter
from typing import Any

import numpy as np

from kernelmark import DeviceLimits, KernelCall, Launch, Tile, cuda_kernel, kernel
from kernelmark.bench.measure.compile import cuda_sources
from kernelmark.bench.measure.tensormap import launch_with_structs
from kernelmark.bench.selftest.known import DURATIONS_US, SLOWED, WAY_S, counter_missing, spin_name

COPY: dict[str, Any] = {"numerics": "exact", "dtypes": ("f32",)}
_CUPY: dict[str, Any] = {**COPY, "provider": "selftest", "device": "cuda", "modules": ("cupy",)}
_WAY_NS = round(WAY_S * 1e9)


def _spin_on_device(name: str, duration_ns: int) -> None:
    @cuda_kernel(
        "copy",
        source="selftest/spin.cu",
        entry="selftest_spin",
        emulated="the emulator has no clock",
        name=name,
        **COPY,
    )
    def spin_on_device(p: Any, t: Tile, device: DeviceLimits) -> list[KernelCall]:
        """Copies, and ends when the global timer shows that its duration has passed."""
        return [KernelCall(1, 256, ("a", "b", p.m * p.n, np.int64(duration_ns)))]


def _spin(duration_us: int) -> None:
    @kernel(
        "copy",
        provider="selftest",
        device="cpu",
        modules=("numba",),
        name=spin_name(duration_us),
        supports=lambda problem: counter_missing(),
        **COPY,
    )
    def spin(problem: Any, x: Any) -> Launch:
        """Copies, and returns when the time-stamp counter shows that its duration has passed."""
        from kernelmark.bench.selftest._spin import spinner

        return spinner(x.b.ctypes.data, x.a.ctypes.data, x.a.nbytes, duration_us * 1e-6)


for _duration_us in DURATIONS_US:
    _spin(_duration_us)
    _spin_on_device(spin_name(_duration_us), 1000 * _duration_us)
_spin_on_device("way", _WAY_NS)


def _options() -> tuple[str, ...]:
    return ("-std=c++17", f"-I{cuda_sources()}")


def _raw() -> Any:
    import cupy

    return cupy.RawModule(code='#include "selftest/spin.cu"\n', options=_options()).get_function("selftest_spin")


@kernel("copy", name="way_raw_kernel", **_CUPY)
def raw_kernel(problem: Any, x: Any) -> Launch:
    """Spins; launched by CuPy's RawKernel."""
    function = _raw()
    return lambda: function((1,), (256,), (x.a, x.b, np.int32(x.a.size), np.int64(_WAY_NS)))


@kernel("copy", name="way_launch_ex", **_CUPY)
def launch_ex(problem: Any, x: Any) -> Launch:
    """Spins; launched by cuLaunchKernelEx."""
    arguments = [int(x.a.data.ptr), int(x.b.data.ptr), np.int32(x.a.size), np.int64(_WAY_NS)]
    return launch_with_structs(int(_raw().kernel.ptr), KernelCall(1, 256, ()), arguments, x.stream.ptr)


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
    return lambda: function(x.a, _WAY_NS, x.b)


@kernel("gemm", provider="selftest", device="cpu", dtypes=("f32",), layouts=("NN",), modules=("numpy",), threaded=True)
def slowed(problem: Any, x: Any) -> Launch:
    """NumPy matmul, followed by a pause of 5 % of the time that it took."""
    a, b, c = x.a, x.b, x.c

    def launch() -> None:
        start = perf_counter()
        np.matmul(a, b, out=c)
        stop = start + SLOWED * (perf_counter() - start)
        while perf_counter() < stop:
            pass

    return launch
