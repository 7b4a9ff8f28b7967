"""Runs the launches of the process that imports this module in the emulator, on the stub driver.

The emulator has the kernels that the launchers compile, except one that waits until a clock has moved: it has no clock,
and the driver gives each launch its length. Launches of other kernels do nothing.
"""

import time
from typing import Any

from kernelmark.bench.measure import launch, timing
from stub import control
from stub.emulated import Emulator, Known


class Rehearsed(Emulator):
    """Runs the launches whose kernels this process has compiled."""

    def __init__(self) -> None:
        super().__init__()
        self._compile, launch.compile_cubin = launch.compile_cubin, self.compiled

    def compiled(self, source: str, entries: Any, arch: str, *more: Any) -> Any:
        """Compile as asked, and take the kernels."""
        cubin = self._compile(source, entries, arch, *more)
        if source != "selftest/spin.cu":
            known = {symbol: Known(source, tuple(entries), entry) for entry, symbol in cubin.symbols.items()}
            self._known |= known
        return cubin

    def _safely(self, launched: control.Launch) -> int:
        return super()._safely(launched) if launched.entry.decode() in self._known else 0


class UnemulatedTime:
    """Python's `time` without what launches took to be emulated, as the paced driver counts it too."""

    sleep = staticmethod(time.sleep)

    def perf_counter(self) -> float:
        return time.perf_counter() - control.emulating_s()


REHEARSED = Rehearsed()
timing.time = UnemulatedTime()  # type: ignore[assignment]
