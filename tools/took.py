"""Measure the time, CPU time and peak memory of commands, and the times of calls that are made in turn."""

import compileall
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "kernelmark")
#: A sweep of copies of different sizes by one kernel.
COPIES = """
max_time = 0.001
[[sweep]]
op = "copy"
kernels = ["{kernel}"]
m = {{linear = [1, {rows}, 1]}}
n = {{linear = [1, {columns}, 1]}}
dtype = ["f64"]
"""
#: The results of a measurement: the name of a promise, the number to compare with its limit, and a text with details.
Found = Iterator[tuple[str, float, str]]


class Took(NamedTuple):
    """The time and memory of a command. If `wall_s` is much longer than `cpu_s`, other processes were active."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def __str__(self) -> str:
        return f"{self.wall_s:.1f} s ({self.cpu_s:.1f} s of processor time), {self.peak_mb:.0f} MB"


@cache
def installed() -> None:
    """Compile the modules to bytecode, as an installation does, since compiling takes longer than most commands."""
    for folder in ("bench", "kernels"):
        compileall.compile_dir(ROOT / folder, quiet=1)


def took(command: Sequence[str], silent: bool = False) -> Took:
    """Run a command, and return its time and memory. Raises CalledProcessError.

    Its standard output is discarded, and, if `silent`, also its standard error. The peak includes the memory of this
    process at the start of the command.
    """
    installed()
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if silent else None) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Took(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024e-6)


def kernelmark(*words: str | Path, silent: bool = False) -> Took:
    return took([*COMMAND, *map(str, words)], silent)


def copies(folder: Path, kernel: str, rows: int, columns: int = 1) -> str:
    """Write a suite with this many copies by a kernel, each of a different size; return its path."""
    path = folder / "copies.toml"
    path.write_text(COPIES.format(kernel=kernel, rows=rows, columns=columns))
    return str(path)


def slowest_and_largest(name: str, usages: dict[str, Took]) -> Found:
    """Yield the longest time and the largest memory of several commands, with the time and memory of each."""
    text = "; ".join(f"{words} {each}" for words, each in usages.items())
    yield f"{name}.seconds", max(each.wall_s for each in usages.values()), text
    yield f"{name}.memory", max(each.peak_mb for each in usages.values()), text


def in_turn(rounds: int, *calls: Callable[[], Any]) -> list[list[float]]:
    """Return the times in seconds of calls in alternating forward and backward order, after an untimed call of each."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    order = list(enumerate(calls))
    for turn in range(rounds):
        for i, call in order[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            call()
            times[i].append(time.perf_counter() - start)
    return times
