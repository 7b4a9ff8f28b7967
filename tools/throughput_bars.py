"""What the project promises of a run of 100,000 cases, measured: rows of (promise, found, holds) for `make bars`.

A kernel that does nothing, on the device of `tests/fake_device.py` where no time passes, takes the way of every run: a
session, a worker process, a store. What is left is kernelmark's own cost.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

FAKE = str(Path(__file__).resolve().parents[1] / "tests" / "fake_device.py")
LEAST_PER_S = 500
LARGEST_GROWTH = 0.1
CASES = 100_000
#: Caches and pools are full by then.
SETTLED = 20_000
SUITE = """
title = "No-ops"
[[sweep]]
op = "copy"
kernels = ["copy/fake.noop"]
m = {{linear = [1, {m}, 1]}}
n = {{linear = [1, 25, 1]}}
dtype = ["f64", "f32", "f16", "bf16"]
"""


class Peaks(NamedTuple):
    """Bytes that the parent and its worker have held at most."""

    parent: float
    worker: float


class Found(NamedTuple):
    """Rows recorded, seconds by the clock and of CPU time, and memory once it should have settled and at the end."""

    rows: int
    seconds: float
    cpu_s: float
    settled: Peaks
    end: Peaks


def throughput_bars() -> Iterator[tuple[str, str, bool]]:
    """Cases a second, and memory."""
    found = measured(CASES, SETTLED)
    rate = found.rows / found.seconds
    text = f"{rate:.0f} a second, {found.rows} rows in {found.seconds:.0f} s, {found.cpu_s:.0f} s of CPU time"
    yield f"{CASES} cases of a no-op: {LEAST_PER_S} a second", text, rate >= LEAST_PER_S and found.rows == CASES
    for name, before, after in zip(Peaks._fields, found.settled, found.end, strict=True):
        growth = after / before - 1
        text = f"{before / 1e6:.0f} MB after {SETTLED} cases, {after / 1e6:.0f} MB at the end: {growth:+.1%}"
        yield f"{CASES} cases: memory of the {name} grows less than {LARGEST_GROWTH:.0%}", text, growth < LARGEST_GROWTH


def measured(cases: int, settled: int) -> Found:
    """Return what a run of `cases` cases took; memory is read after the first `settled` ones and at the end."""
    from kernelmark.bench.plan.case import Plan
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.plan.status import Status
    from kernelmark.bench.plan.suites import load_suite
    from kernelmark.bench.record.store import Store
    from kernelmark.bench.run.pool import Workers
    from kernelmark.bench.run.session import Session, run_suites

    registry, cpu_s = discover((FAKE,)), cpu_seconds()
    with tempfile.TemporaryDirectory() as folder, Workers() as workers:
        path = Path(folder, "noops.toml")
        path.write_text(SUITE.format(m=cases // 100))
        suite = load_suite(path, registry)
        plan = Plan(devices=("fake",), plugins=(FAKE,), ceilings=False)
        store = Store(Path(folder, "results.db"))
        session = Session(store, [suite], plan, workers.run)
        watch = Watch(settled)
        start = time.perf_counter()
        run_suites(session, [suite], registry, plan, watch.count)
        seconds = time.perf_counter() - start
        end = peaks()
        store.close()
    return Found(session.tally[Status.OK], seconds, cpu_seconds() - cpu_s, watch.settled or end, end)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the workers that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class Watch:
    """Reads the memory once `at` rows are there."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.settled: Peaks | None = None

    def count(self, row: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self.settled = peaks()


def peaks() -> Peaks:
    """Return the peak memory of this process and of its child, the worker, as the system recorded it."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (worker,) = (
        int(pid) for pid in children if b"kernelmark.bench.run.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return Peaks(peak(os.getpid()), peak(worker))


def peak(pid: int) -> float:
    """Bytes of its largest resident set so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main(bars: Callable[[], Iterator[tuple[str, str, bool]]] = throughput_bars) -> None:
    """Print these bars alone; the exit status is 1 if one is missed."""
    missed = 0
    for promise, text, holds in bars():
        print("holds " if holds else "MISSED", f"{promise}: {text}", flush=True)
        missed += not holds
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
