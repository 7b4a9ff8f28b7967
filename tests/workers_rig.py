"""A small problem, the options of a quick run with the faulty kernels, and what measures them in workers."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from kernelmark.bench.measure.measurement import Measurement
from small_runs import FAULTS

FAKE = str(Path(__file__).with_name("fake_device.py"))
SMALL = "copy/m3n5/f32"
QUICK = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings", "--threads", "1", "--plugin", FAULTS)
#: Ample for a call of 3 ms.
TIMEOUT_S = 0.5
Measure = Callable[..., list[Measurement]]
#: Begins the command in a folder, not waiting for its end.
Start = Callable[..., subprocess.Popen[str]]
