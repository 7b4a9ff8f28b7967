"""A timer of the system that ends this process in one line, while code in C holds the interpreter too.

No Python runs then, in any thread. So the system's own functions print the line and exit, in threads of the system.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

_CLOCK_MONOTONIC, _SIGEV_THREAD = 1, 2
_USAGE = 2
#: By how much the exit follows the line.
_AFTER_S = 0.1
_NANO = 10**9


class _Event(ctypes.Structure):
    """What the C library calls a `sigevent`: the function that is called in a thread of its own, and its argument."""

    _fields_ = (
        ("argument", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("rest", ctypes.c_char * 40),
    )


@contextmanager
def ended(line: str, after_s: float) -> Iterator[None]:
    """End the process with status 2 and this line, after `kernelmark: `, unless what is done meanwhile ends in time.

    Where the system has no such timers nothing is watched.
    """
    if (system := _system()) is None:
        yield
        return
    text = ctypes.create_string_buffer(line.replace("%", "%%").encode(errors="backslashreplace"))
    timers = [
        _started(system, system.warnx, ctypes.addressof(text), after_s),
        _started(system, system._exit, _USAGE, after_s + _AFTER_S),
    ]
    try:
        yield
    finally:
        for timer in timers:
            system.timer_delete(timer)


def _started(system: Any, function: Any, argument: int, after_s: float) -> ctypes.c_void_p:
    """Let the system call a function of its own after so long."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    event, timer = _Event(argument, 0, _SIGEV_THREAD, address), ctypes.c_void_p()
    system.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
    whole_s = int(after_s)
    times = (ctypes.c_long * 4)(0, 0, whole_s, int((after_s - whole_s) * _NANO))
    system.timer_settime(timer, 0, times, None)
    return timer


@cache
def _system() -> Any:
    """Return the C library, which calls this program by its name from now on; None where it has no timers."""
    found = ctypes.CDLL(None)
    with suppress(AttributeError, ValueError):
        ctypes.c_char_p.in_dll(found, "program_invocation_short_name").value = b"kernelmark"
        for name in ("timer_create", "timer_settime", "timer_delete", "warnx", "_exit"):
            getattr(found, name)
        found.timer_delete.argtypes = [ctypes.c_void_p]
        found.timer_settime.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        return found
    return None
