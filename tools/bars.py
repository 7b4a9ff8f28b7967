"""The figures that the project promises, measured on this machine: `make bars`. Exit status 1 where one is missed."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tabulate import tabulate

from aggregate_bars import aggregate_bars
from clock_bars import clock_bars
from cluster_bars import cluster_bars
from conv_bars import conv_bars
from emulator_bars import emulator_bars
from first_call_bars import first_call_bars
from many_bars import many_bars
from report_bars import report_bars
from scale_bars import scale_bars
from select_bars import select_bars
from shard_bars import shard_bars
from thread_bars import thread_bars
from throughput_bars import throughput_bars
from took import took
from transpose_bars import transpose_bars
from tuning_bars import tuning_bars

MILLION = """
import resource, time
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.suites import load_suite
from pathlib import Path
registry = discover()
start = time.perf_counter()
suite = load_suite(Path("million.toml"), registry)
cases = (entrant for job in jobs([suite], registry, Plan(devices=("cpu",))) for entrant in job.job.entrants)
next(cases)
first = time.perf_counter() - start
print(first, 1 + sum(1 for _ in cases), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
MILLION_SUITE = """
title = "A million cases"
[[sweep]]
op = "copy"
dtype = ["f32"]
kernels = ["copy/numpy.copyto"]
m = {linear = [1, 1000, 1]}
n = {linear = [1, 1000, 1]}
"""


class Bar(NamedTuple):
    """A promise, what was found, and whether it holds."""

    promise: str
    found: str
    holds: bool


def bars() -> Iterator[Bar]:
    """Every bar, quick ones first."""
    yield list_answers()
    yield million_cases()
    measured = (
        clock_bars,
        transpose_bars,
        conv_bars,
        first_call_bars,
        thread_bars,
        emulator_bars,
        aggregate_bars,
        throughput_bars,
        scale_bars,
        many_bars,
        shard_bars,
        cluster_bars,
        report_bars,
        select_bars,
        tuning_bars,
    )
    for others in measured:
        yield from (Bar(*found) for found in others())


def list_answers() -> Bar:
    """`kernelmark list` as a process, start to end."""
    command = [str(Path(sys.executable).parent / "kernelmark"), "list"]
    times = [took(command).wall_s for _ in range(9)]
    return Bar("kernelmark list in at most 0.3 s", f"median of 9: {median(times):.3f} s", median(times) <= 0.3)


def million_cases() -> Bar:
    """Time to the first case from loading the suite, and peak memory over all of them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "million.toml").write_text(MILLION_SUITE)
        out = subprocess.run([sys.executable, "-c", MILLION], cwd=folder, check=True, capture_output=True, text=True)
    first, count, peak = (float(word) for word in out.stdout.split())
    found = f"{count:.0f} cases: first after {first * 1e3:.1f} ms, peak {peak / 1e6:.0f} MB"
    holds = first <= 0.1 and peak < 100e6 and count == 1e6
    return Bar("1,000,000 cases: the first in 0.1 s, under 100 MB", found, holds)


def main() -> None:
    """Print the table; it is also the exit status."""
    found = list(bars())
    print(tabulate([("holds" if bar.holds else "MISSED", bar.promise, bar.found) for bar in found], tablefmt="plain"))
    sys.exit(0 if all(bar.holds for bar in found) else 1)


if __name__ == "__main__":
    main()
