"""What kernelmark's own measuring adds to a time, measured: rows of (promise, found, holds) for `make bars`."""

import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

FOUNDING = "gemm/m1024n2048k26752/f32/NT"
BARE_LOOP = """
import time
import numpy as np
rng = np.random.default_rng(0)
a = rng.random((1024, 26752), dtype=np.float32) * 2 - 1
b = rng.random((2048, 26752), dtype=np.float32) * 2 - 1
c = np.empty((1024, 2048), np.float32)
np.matmul(a, b.T, out=c)
for _ in range(7):
    start = time.perf_counter()
    np.matmul(a, b.T, out=c)
    print(time.perf_counter() - start)
"""
SPIN = '''
import time
from kernelmark import kernel

@kernel("copy", provider="spin", device="cpu", numerics="exact")
def wait(problem, x):
    """Copies, and returns 2.000 ms after it was called."""
    def launch():
        stop = time.perf_counter() + 2e-3
        x.b[...] = x.a
        while time.perf_counter() < stop:
            pass
    return launch
'''
SUITE = """
title = "Small copies"
[[sweep]]
op = "copy"
dtype = ["f32"]
kernels = ["copy/numpy.copyto"]
m = {linear = [1, 12, 1]}
n = {linear = [1, 12, 1]}
"""


def clock_bars() -> Iterator[tuple[str, str, bool]]:
    """A known duration, the harness's own time, and a bare loop."""
    yield known_duration()
    yield overhead()
    yield bare_loop()


def known_duration() -> tuple[str, str, bool]:
    """A plug-in that waits exactly 2.000 ms."""
    from kernelmark.bench.plan.case import Budget, Job
    from kernelmark.bench.plan.modes import Mode
    from kernelmark.bench.run.job import run_job

    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder, "spin.py")
        plugin.write_text(SPIN)
        job = Job(("copy/m64n64/f32",), ("copy/spin.wait",), Mode.HOT, (str(plugin),), 0, Budget(), threads=1)
        (measured,) = run_job(job)
    assert measured.interval is not None, measured.reason
    error = measured.interval.median / 2e-3 - 1
    return "a 2.000 ms wait within 0.5 %", f"{error:+.3%}", abs(error) <= 0.005


class Spent:
    """Counts the seconds that functions take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return call


def overhead() -> tuple[str, str, bool]:
    """Wall time of a warm run less set-up, drawing, verifying and measuring, a case."""
    from kernelmark.bench.measure.contender import Contender
    from kernelmark.bench.plan.case import Plan
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.plan.modes import Mode
    from kernelmark.bench.plan.suites import load_suite
    from kernelmark.bench.record.store import Store
    from kernelmark.bench.run import job
    from kernelmark.bench.run.session import Session, run_suites

    registry, spent = discover(), Spent()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        path = Path(folder, "overhead.toml")
        path.write_text(SUITE)
        suite = load_suite(path, registry)
        plan = Plan(devices=("cpu",), mode=Mode.HOT, max_time_s=0.005)
        store = patches.enter_context(closing(Store(Path(folder, "results.db"))))

        def run() -> Session:
            session = Session(store, [suite], plan, lambda asked, key: job.run_job(asked))
            run_suites(session, [suite], registry, plan, lambda result: None)
            return session

        run()  # warm
        for owner, name in ((job, "Stock"), (job, "judge"), (job, "_time"), (Contender, "set_up")):
            patches.enter_context(patch.object(owner, name, spent.on(getattr(owner, name))))
        start = time.perf_counter()
        cases = sum(run().tally.values())
        each = (time.perf_counter() - start - spent.seconds) / cases
    return "overhead of at most 5 ms a case", f"{each * 1e3:.2f} ms over {cases} cases", each <= 5e-3


def bare_loop() -> tuple[str, str, bool]:
    """NumPy NT's hot median against bare loops in a process of their own, just before and after; best of three."""
    from kernelmark.bench.measure.cpu import cpu_count
    from kernelmark.bench.plan.case import Budget, Job
    from kernelmark.bench.plan.modes import Mode
    from kernelmark.bench.run.job import run_job

    job = Job((FOUNDING,), ("gemm/numpy.matmul",), Mode.HOT, (), 0, Budget(max_time_s=5.0), threads=cpu_count())
    tries = []
    for _ in range(3):
        before = _bare()
        (measured,) = run_job(job)
        bare = median(before + _bare())
        assert measured.interval is not None, measured.reason
        tries.append(measured.interval.median / bare - 1)
        if abs(tries[-1]) <= 0.03:
            break
    found = ", ".join(f"{error:+.1%}" for error in tries)
    holds = min(abs(error) for error in tries) <= 0.03
    return "founding shape, NumPy NT hot, within 3 % of a bare loop", found, holds


def _bare() -> list[float]:
    code = textwrap.dedent(BARE_LOOP)
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [float(line) for line in out.stdout.split()]
