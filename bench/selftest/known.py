"""Known facts, such as durations, that the self-test's plug-ins and its checks share."""

import ctypes
import mmap
from pathlib import Path
from typing import Any

#: The durations for which compiled kernels spin; 0 shows the cost of a call that does nothing.
DURATIONS_US = (0, 20, 50, 100, 200, 500, 2000, 20000)
#: The duration of the kernel by which each way of launching is checked, in seconds.
WAY_S = 2e-3
#: The time of the artificially slowed product relative to the plain product.
SLOWED = 1.05
#: MAP_FIXED, which the module mmap does not define.
_MAP_FIXED = 0x10


def plugin(name: str) -> str:
    """Return the path of one of this folder's plug-ins; workers load them by path, as they load users' plug-ins."""
    return str(Path(__file__).with_name(f"{name}.py"))


def spin_name(duration_us: int) -> str:
    """Return the name of the kernel that spins for a duration."""
    return f"spin_{duration_us}us"


def counter_missing() -> str | None:
    """Return why there is no readable time-stamp counter with a constant rate, or None."""
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return "the system does not report whether the time-stamp counter ticks at a constant rate (/proc/cpuinfo)"
    if {"tsc", "constant_tsc"} <= set(words):
        return None
    return "the processor has no time-stamp counter that ticks at a constant rate (constant_tsc in /proc/cpuinfo)"


def map_at(array: Any, flags: int, file: int) -> None:
    """Map the pages of a file at an array's address."""
    call = ctypes.CDLL(None).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    address = call(array.ctypes.data, array.nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags | _MAP_FIXED, file, 0)
    if address != array.ctypes.data:
        raise OSError("mmap failed")
