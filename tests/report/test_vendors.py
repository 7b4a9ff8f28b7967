"""On a GPU kernels are held against the vendor's, measured in turn; on a CPU against the run's own baseline."""

from collections.abc import Callable
from typing import Any

import pytest

from kernelmark.bench.record.store import Store
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.several import SeveralRuns
from support.rows import begin, put

PROBLEM, OTHER = "gemm/m64n64k64/f32/NN", "gemm/m96n96k96/f32/NN"
#: A row: its kernel and its time.
Times = dict[str, float]


@pytest.fixture
def measured(begun: Store) -> Callable[..., dict[str, tuple[str, float | None]]]:
    """Put rows of a GPU and of NumPy, the baseline of the run; return the baseline and speedup of each of the GPU's."""

    def of(times: Times, problem: str = PROBLEM, **more: Any) -> dict[str, tuple[str, float | None]]:
        ran(begun, "r1", times, problem, **more)
        found = RunData(begun, "r1").contests
        return {r.kernel: (r.baseline, r.speedup) for c in found for r in c.ranked if c.problem == problem}

    return of


def ran(store: Store, run: str, times: Times, problem: str = PROBLEM, device: str = "cuda", **more: Any) -> None:
    for kernel, median in times.items():
        provider = kernel.partition("/")[2].partition(".")[0]
        how = {"provider": provider, "job": "one", "device": "cpu" if provider == "numpy" else device}
        how |= {"run_id": run, "baseline": "gemm/numpy.matmul", **more.get(kernel, {})}
        put(store, problem, kernel, taken=[median] * 20, **how)


def test_numpy_is_no_baseline_on_a_gpu_where_the_vendor_has_a_kernel(measured: Any) -> None:
    found = measured({"gemm/numpy.matmul": 1.0, "gemm/cublas.sgemm": 2e-3, "gemm/cuda.a": 4e-3})
    assert found["gemm/cuda.a"] == ("gemm/cublas.sgemm", pytest.approx(0.5))
    assert found["gemm/cublas.sgemm"] == ("gemm/cublas.sgemm", None)
    assert found["gemm/numpy.matmul"] == ("gemm/numpy.matmul", None)


def test_the_baseline_is_the_vendors_fastest_that_is_one_call(measured: Any) -> None:
    times = {"gemm/cublas.tnn": 1e-3, "gemm/cublaslt.a": 2e-3, "gemm/cublas.slow": 4e-3, "gemm/cuda.a": 1e-3}
    assert measured(times)["gemm/cuda.a"] == ("gemm/cublaslt.a", pytest.approx(2.0))


def test_of_two_that_are_as_fast_cublas_is_the_baseline(measured: Any) -> None:
    times = {"gemm/cublaslt.a": 1e-3, "gemm/cublas.b": 1.001e-3, "gemm/cuda.a": 1e-3}
    assert measured(times)["gemm/cuda.a"][0] == "gemm/cublas.b"


def test_a_kernel_that_was_measured_in_another_job_has_no_speedup(measured: Any) -> None:
    found = measured({"gemm/cublas.sgemm": 2e-3, "gemm/cuda.a": 4e-3}, **{"gemm/cuda.a": {"job": "two"}})
    assert found["gemm/cuda.a"] == ("", None)


def test_without_a_vendors_kernel_and_on_a_cpu_the_baseline_is_that_of_the_run(measured: Any) -> None:
    own = {"gemm/cuda.a": {"speedup": 7.0}}
    assert measured({"gemm/cuda.a": 1e-3}, **own)["gemm/cuda.a"] == ("gemm/numpy.matmul", 7.0)
    on_cpu = measured({"gemm/cublas.b": 1e-3, "gemm/cuda.a": 1e-3}, OTHER, device="cpu", **own)
    assert on_cpu["gemm/cuda.a"] == ("gemm/numpy.matmul", 7.0)


def test_of_several_runs_a_contest_is_that_with_the_most_kernels_then_the_newest(store: Store) -> None:
    two, one = {"gemm/cublas.sgemm": 2e-3, "gemm/cuda.a": 4e-3}, {"gemm/cublas.sgemm": 9e-3}
    runs = {"r1": two, "r2": {name: 2 * median for name, median in two.items()}, "r3": one}
    for run, times in runs.items():
        begin(store, run)
        ran(store, run, {**times, "gemm/numpy.matmul": 1.0})
    ran(store, "r3", one, OTHER)
    data = SeveralRuns(store, list(runs))
    (contest,) = data.contests
    assert {r.run_id for r in contest.ranked} == {"r2"}
    assert {r.device for r in data.timed} == {"cuda"}
    assert data.samples(contest.fastest) == [4e-3] * 20


def test_problems_that_were_measured_in_turn_stay_together(store: Store) -> None:
    """A later run has one of them alone, with as many kernels and a tile of one."""
    two = {"gemm/cublas.sgemm": 1e-3, "gemm/cuda.async": 2e-3}
    for run in ("r1", "r2"):
        begin(store, run)
    for problem in (PROBLEM, OTHER):
        ran(store, "r1", two, problem)
    ran(store, "r2", {**two, "gemm/cuda.async@BK=16": 3e-3}, PROBLEM)
    assert {c.ranked[0].run_id for c in SeveralRuns(store, ["r1", "r2"]).contests} == {"r1"}
