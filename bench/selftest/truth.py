"""A plug-in of kernels whose duration is known: copies that spin until a clock shows that their time has passed.

The clock is not the harness's: on a CPU the processor's time-stamp counter, on a GPU its global timer.
"""

from typing import Any

import numpy as np

from kernelmark import KernelCall, Launch, Tile, cuda_kernel, kernel
from kernelmark.bench.selftest.known import DURATIONS_US, counter_missing, spin_name


def _register(duration_us: int) -> None:
    options: dict[str, Any] = {"name": spin_name(duration_us), "numerics": "exact", "dtypes": ("f32",)}

    @kernel(
        "copy",
        provider="selftest",
        device="cpu",
        modules=("numba",),
        supports=lambda problem: counter_missing(),
        **options,
    )
    def spin(problem: Any, x: Any) -> Launch:
        """Copies, and returns when the time-stamp counter shows that its time has passed."""
        from kernelmark.bench.selftest._spin import spinner

        return spinner(x.b.ctypes.data, x.a.ctypes.data, x.a.nbytes, duration_us * 1e-6)

    @cuda_kernel(
        "copy",
        source="selftest/spin.cu",
        entry="selftest_spin",
        emulated="the emulator has no clock",
        **options,
    )
    def spin_on_device(p: Any, t: Tile) -> list[KernelCall]:
        """Copies, and ends when the global timer shows that its time has passed."""
        return [KernelCall(1, 256, ("a", "b", p.m * p.n, np.int64(1000 * duration_us)))]


for _duration_us in DURATIONS_US:
    _register(_duration_us)
