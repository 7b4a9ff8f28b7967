"""What a command takes: seconds, processor time, peak memory."""

import compileall
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "kernelmark")


class Took(NamedTuple):
    """What a command took; where it took much longer than the processor worked for it, others were at work too."""

    wall_s: float
    cpu_s: float
    peak_bytes: float

    def __str__(self) -> str:
        return f"{self.wall_s:.1f} s ({self.cpu_s:.1f} s of processor time), {self.peak_bytes * 1e-6:.0f} MB"


@cache
def installed() -> None:
    """Compile what the command imports, as an installation does: the compiler takes longer than most commands."""
    for folder in ("bench", "kernels"):
        compileall.compile_dir(ROOT / folder, quiet=1)


def took(command: Sequence[str], silent: bool = False) -> Took:
    """Run a command as a process, its output thrown away, and what it complains of if `silent`.

    Raises CalledProcessError.

    The system counts what the calling process held when it started the command to the command's peak.
    """
    installed()
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if silent else None) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Took(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0)


def kernelmark(*words: str, silent: bool = False) -> Took:
    """Run `kernelmark WORDS` of this checkout as `took` runs a command."""
    return took([*COMMAND, *words], silent)
