"""Whether a step hangs: it has used a processor for its time, or outlasts it on a machine that is not to blame."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Where /proc/PID/stat has the time in user code and in the system, after the name of the program.
_USER, _SYSTEM = 11, 12
#: What the machine is measured with. It reads as many files as the start of a command does, and computes for a moment.
CONTROL = ("-c", "import kernelmark.bench.cli.commands; sum(range(10**7))")
#: No more of the time between two looks counts: in the rest this program was stopped, and its steps with it.
MOST_APART_S = 1.0
now = time.monotonic


class Watch:
    """How long a step may take: limit_s of a processor, and of a clock as many times that as the machine is slow."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self._pid, self._limit_s, self._seen = pid, limit_s, now()
        self._slowdown, self.elapsed_s = 1.0, 0.0

    def look(self) -> float:
        """Return the seconds since the step began in which it could run."""
        self._seen, before = now(), self._seen
        self.elapsed_s += min(self._seen - before, MOST_APART_S)
        return self.elapsed_s

    def is_over(self) -> bool:
        """Return whether the step hangs. Where only the clock accuses it, a control is measured beside it first."""
        if self.look() <= self._limit_s * self._slowdown:
            return False
        if processor_s(self._pid) > self._limit_s:
            return True
        self._slowdown = max(self._slowdown, slowdown())
        return self.look() > self._limit_s * self._slowdown


def processor_s(pid: int) -> float:
    """Return the seconds for which the threads of a process have used a processor; 0 for one that has ended."""
    with suppress(OSError, IndexError):
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return (int(words[_USER]) + int(words[_SYSTEM])) / _TICKS_PER_S
    return 0.0


def slowdown() -> float:
    """Return how many times as long as it uses a processor a command takes now."""
    begun = now()
    control = subprocess.Popen([sys.executable, *CONTROL], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(control.pid, 0)
    control.returncode = os.waitstatus_to_exitcode(status)
    return (now() - begun) / (used.ru_utime + used.ru_stime)
