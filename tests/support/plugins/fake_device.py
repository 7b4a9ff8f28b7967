"""A plug-in with the device `fake`, whose times come from a trace. Nothing waits, and equal traces give equal rows.

The variable FAKE_TRACE names a JSON file with `calls`: the seconds of each timed call, by kernel name; a list is
repeated from its beginning. It may also have `empty_call_s` and `resolution_s`. Untimed calls take no time.
"""

import json
import os
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from kernelmark import kernel
from kernelmark.bench.measure import sample
from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.devices import DEVICES
from kernelmark.bench.measure.monitor import Unwatched
from kernelmark.bench.plan import declared

STICKY = "cudaErrorIllegalAddress: an illegal memory access was encountered"
NOOP_S = 0.125


class Fake(Cpu):
    """A device in host memory with its own clock, and a cache so small that a few operand sets make calls cold."""

    name = "fake"

    def __init__(self):
        super().__init__()
        self.device_name = "a fake"
        self.device_uuid = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self.llc_bytes = 64
        self.error = None
        self.release()

    def release(self):
        """Reset the clock to zero and the trace to its beginning, for the next job."""
        self.now_s = 0.0
        self.timed_s = None
        self._traces = {}

    def clock(self, hold):
        return FakeClock(self, trace())

    def monitor(self):
        """Return a monitor that reports nothing, since load on the machine does not disturb this device."""
        return Unwatched()

    def broken(self):
        """Return the error of the launch that corrupted the device, if any; the device does not recover."""
        return self.error

    def evict(self):
        """Do nothing, since there is no cache."""

    def synchronize(self):
        if self.error:
            raise RuntimeError(self.error)

    def spend(self, name):
        if self.timed_s is not None:
            if name not in self._traces:
                self._traces[name] = cycle(trace()["calls"].get(name, [NOOP_S]))
            self.timed_s += next(self._traces[name])


class FakeClock:
    """Reads the device's time, which passes only in timed calls."""

    max_batch = 100
    left_signals = traced = False

    def __init__(self, device, traits):
        self._device = device
        self._empty_call_s = traits.get("empty_call_s", 1e-7)
        self.resolution_s = traits.get("resolution_s", 1e-7)

    def now(self):
        return self._device.now_s

    def time(self, calls):
        """Return the seconds per call according to the trace, or the time of an empty call."""
        self._device.timed_s = 0.0
        for call in calls:
            call()
        span, self._device.timed_s = self._device.timed_s, None
        self._device.now_s += span
        return span / len(calls) or self._empty_call_s

    def time_apart(self, calls, between=None):
        return self.time(calls)


def trace():
    path = os.environ.get("FAKE_TRACE")
    return json.loads(Path(path).read_text()) if path else {"calls": {}}


FAKE = DEVICES["fake"]() if "fake" in DEVICES else Fake()  # one object per process
sample.secrets = SimpleNamespace(randbits=lambda bits: 0)  # so that the same stretches are drawn
sample.CHECKED_SHARE = 0.0  # checks take real time, which this device does not
DEVICES["fake"] = lambda: FAKE
declared.DEVICES.add("fake")


def declare(name, act=lambda: None):
    """Register a kernel that copies, calls `act`, and takes the time in the trace for its name."""

    def set_up(problem, x):
        def launch():
            np.copyto(x.b, x.a)
            act()
            FAKE.spend(name)

        return launch

    kernel("copy", provider="fake", device="fake", numerics="exact", name=name)(set_up)


def corrupt():
    if FAKE.timed_s is not None:
        FAKE.error = STICKY
        FAKE.synchronize()


for _name in ("noop", "base", "other"):
    declare(_name)
declare("sticky", corrupt)
