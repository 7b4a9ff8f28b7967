"""A plug-in of kernels whose duration is known: copies that spin until a clock says that their time has passed."""

from typing import Any

from bench.selftest.known import DURATIONS_US, counter_missing, spin_name
from kernelmark import Launch, kernel


def _register(duration_us: int) -> None:
    @kernel(
        "copy",
        provider="selftest",
        device="cpu",
        name=spin_name(duration_us),
        numerics="exact",
        modules=("numba",),
        supports=lambda problem: counter_missing(),
    )
    def spin(problem: Any, x: Any) -> Launch:
        """Copies, and returns when the time-stamp counter says that its time has passed."""
        from bench.selftest._spin import spinner

        return spinner(x.b.ctypes.data, x.a.ctypes.data, x.a.nbytes, duration_us * 1e-6)


for _duration_us in DURATIONS_US:
    _register(_duration_us)
