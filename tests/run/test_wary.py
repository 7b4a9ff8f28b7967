"""A kernel that took two workers along is not called again, and its rows give the reason."""

from collections.abc import Callable

import msgspec
import pytest

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.pool import Wary

KEY = WorkerKey("cuda", 1)
Answer = Callable[[str], Measurement]


class Pool:
    """Stands for the workers: answers by the test's own rule, and records which kernels were called."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.called: list[tuple[str, ...]] = []

    def __call__(self, job: Job, key: WorkerKey) -> list[Measurement]:
        self.called.append(job.kernels)
        rows = [self._answer(kernel) for kernel in job.kernels]
        return [msgspec.structs.replace(row, problem=job.problems[0]) for row in rows]


def job(problem: str, *kernels: str) -> Job:
    return Job((problem,), kernels, Mode.HOT, (), 0, Budget(), 1)


def hangs(kernel: str) -> Measurement:
    if kernel == "b":
        return Measurement(kernel=kernel, status="timeout", reason="sampling took more than 5 s")
    return Measurement(kernel=kernel)


def test_a_kernel_that_hangs_on_two_problems_is_left_out_of_the_third() -> None:
    pool = Pool(hangs)
    wary = Wary(pool)
    for problem in ("p", "q"):
        wary(job(problem, "a", "b", "c"), KEY)
    assert [row.status for row in wary(job("r", "a", "b", "c"), KEY)] == ["ok", "timeout", "ok"]
    assert pool.called[-1] == ("a", "c")
    (row,) = wary(job("s", "b"), KEY)
    assert row.reason == "left out after 2 lost workers: timeout on q: sampling took more than 5 s"
    assert len(pool.called) == 3
    assert wary.left_out == {"b": "timeout on q: sampling took more than 5 s"}


@pytest.mark.parametrize(("attempt", "calls"), [(1, 2), (2, 1)])
def test_a_crash_that_was_tried_again_has_cost_two_workers(attempt: int, calls: int) -> None:
    pool = Pool(lambda kernel: Measurement(kernel=kernel, status="crashed", reason="SIGSEGV", attempt=attempt))
    wary = Wary(pool)
    for problem in "pqr":
        wary(job(problem, "a"), KEY)
    assert len(pool.called) == calls


def test_a_kernel_that_is_wrong_or_raises_is_called_again() -> None:
    pool = Pool(lambda kernel: Measurement(kernel=kernel, status={"a": "wrong", "b": "failed"}[kernel], reason="off"))
    wary = Wary(pool)
    for problem in "pqr":
        wary(job(problem, "a", "b"), KEY)
    assert len(pool.called) == 3
    assert wary.left_out == {}


def test_a_kernel_that_an_earlier_run_left_out_is_not_called() -> None:
    pool = Pool(hangs)
    (row,) = Wary(pool, {"a": "crashed on p: SIGSEGV"})(job("q", "a"), KEY)
    assert pool.called == []
    assert (row.status, row.reason) == ("crashed", "left out after 2 lost workers: crashed on p: SIGSEGV")
