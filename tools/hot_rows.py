"""Rows of kernels measured in turn in one run of the worker, hot, on two threads."""

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.job import run_job


def hot(problem: str, *kernels: str, max_time_s: float = 3.0) -> list[Measurement]:
    """The rows, in the order of the kernels, with ratios to the first. Raises AssertionError where one is not ok."""
    rows = run_job(Job((problem,), kernels, Mode.HOT, (), 0, Budget(max_time_s), threads=2, baseline=kernels[0]))
    for row in rows:
        assert row.status == Status.OK, f"{row.kernel}: {row.reason}"
    return rows


def median_s(row: Measurement) -> float:
    """The median of a row that is ok, in seconds."""
    assert row.interval is not None
    return row.interval.median


def ratio(row: Measurement) -> float:
    """How many times as fast as the first kernel a row that is ok is, and not that first one."""
    assert row.ratio is not None
    return row.ratio.median
