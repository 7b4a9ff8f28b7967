"""Pairs of siblings in two runs: their ratio is of samples taken in turn, and what slowed both is not in it."""

import pytest

from kernelmark.bench.compare.cases import Side
from kernelmark.bench.compare.runs import siblings
from kernelmark.bench.measure.measurement import ProcessPart
from support.compared import begin, compared
from support.rows import result

NT, NN = "gemm/m8n8k8/f32/NT", "gemm/m8n8k8/f32/NN"


def add(store, run_id, problem, times, job="j", kernel="gemm/a.b"):
    median = sorted(times)[len(times) // 2]
    ends = {"time_s_median": median, "time_s_ci95_low": min(times), "time_s_ci95_high": max(times)}
    row = result(run_id=run_id, problem=problem, layout=problem[-2:], job=job, kernel=kernel, **ends)
    store.add(row, {}, times, None, [ProcessPart(len(times), median)])


def drifting(factor, slope):
    """Samples of a machine that becomes slower, which both siblings of a round see alike."""
    return [factor * 1e-3 * (1 + slope * i) for i in range(12)]


@pytest.fixture
def runs(store):
    """In BASE NT takes as long as NN; NEW runs on a machine at half the speed, and there NT takes 1.2 times as long."""
    for run_id, machine, nt in (("base", 1.0, 1.0), ("new", 2.0, 1.2)):
        begin(store, run_id)
        add(store, run_id, NT, drifting(machine * nt, 0.05))
        add(store, run_id, NN, drifting(machine, 0.05))
    return store


def test_the_change_of_a_pair_is_free_of_what_slowed_both_siblings(runs):
    ((pair),) = siblings(Side(runs, "base"), Side(runs, "new"))
    assert (pair.one.problem, pair.other.problem) == (NN, NT)
    assert (pair.base.median, pair.new.median) == (pytest.approx(1.0), pytest.approx(1.2))
    assert pair.change.median == pytest.approx(1.2)
    assert pair.change.side == "faster"


def test_rows_of_different_jobs_are_no_pair(store):
    for run_id in ("base", "new"):
        begin(store, run_id)
        add(store, run_id, NT, drifting(1.0, 0.0), job="j1")
        add(store, run_id, NN, drifting(1.0, 0.0), job="j2")
    assert list(siblings(Side(store, "base"), Side(store, "new"))) == []


def test_two_kernels_of_a_job_on_one_problem_are_no_pair(runs):
    for run_id in ("base", "new"):
        add(runs, run_id, NT, drifting(1.0, 0.0), kernel="gemm/a.other")
    assert len(list(siblings(Side(runs, "base"), Side(runs, "new")))) == 1


def test_a_pair_that_one_run_alone_has_is_left_out(runs):
    add(runs, "new", NT, drifting(1.0, 0.0), kernel="gemm/a.other")
    add(runs, "new", NN, drifting(1.0, 0.0), kernel="gemm/a.other")
    assert len(list(siblings(Side(runs, "base"), Side(runs, "new")))) == 1


def test_compare_prints_the_pairs(runs):
    text, _ = compared(runs)
    line = next(line for line in text.splitlines() if line.startswith("a.b"))
    assert line.split()[:3] == ["a.b", NN, NT]
    assert "1.2x" in line
