"""Imported in a process with the stub driver, this module runs the process's launches in the emulator."""

import time

from kernelmark.bench.measure import timing
from stub import control
from stub.emulated import Emulator


class Rehearsed(Emulator):
    """Runs the launches whose kernels this process has compiled; launches of other kernels do nothing."""

    def _safely(self, launched):
        return super()._safely(launched) if launched.entry.decode() in self._known else 0


class UnemulatedTime:
    """Python's `time` minus the time that emulation took, as the paced stub driver counts time."""

    sleep, process_time = staticmethod(time.sleep), staticmethod(time.process_time)

    def perf_counter(self):
        return time.perf_counter() - control.emulating_s()


REHEARSED = Rehearsed()
timing.time = UnemulatedTime()
