"""Thread scaling over size: which rows are compared, and what the ceilings allow them."""

import msgspec
import pytest

from kernelmark.bench.report.figures import style
from kernelmark.bench.report.figures.threads import gains_over_size
from kernelmark.bench.report.run_data import RunData
from support.rows import ceilings, put

pytest.importorskip("matplotlib")


def found(store):
    data = RunData(store, "r1")
    return gains_over_size(data, style.looks(r.kernel for r in data.timed))


def gains(store):
    """The gains that the only figure shows, by their problems."""
    (figure,) = found(store).figures
    return {gain.row.problem: gain for gain in figure.draw.args[0]}


def pair(store, n: int, one: float, two: float, flop: float = 1e6, nbytes: float = 1e3):
    problem = f"gemm/m{n}n{n}k{n}/f32/NN"
    for threads, seconds in ((1, one), (2, two)):
        rates = {"gflop_per_s": flop * 1e-9 / seconds, "gbyte_per_s": nbytes * 1e-9 / seconds}
        put(store, problem, "gemm/some.base", taken=[seconds] * 12, threads=threads, **rates)
    return problem


def test_a_ratio_is_the_time_on_one_thread_over_that_on_most_and_not_measured_in_turn(begun):
    slower, faster = pair(begun, 8, 1e-5, 2e-5), pair(begun, 64, 3e-3, 2e-3)
    ratios = {problem: gain.ratio for problem, gain in gains(begun).items()}
    assert {problem: ratio.median for problem, ratio in ratios.items()} == pytest.approx({slower: 0.5, faster: 1.5})
    assert not any(ratio.in_turn for ratio in ratios.values())


def test_ceilings_allow_the_ratio_of_the_times_that_they_leave_where_both_are_known(begun):
    computes, moves = pair(begun, 64, 3e-3, 2e-3, flop=1e9), pair(begun, 8, 1e-5, 1e-5, flop=1, nbytes=1e9)
    assert {gain.allowed for gain in gains(begun).values()} == {None}
    ceilings(begun, 2)
    assert {gain.allowed for gain in gains(begun).values()} == {None}
    for ceiling, _ in RunData(begun, "r1").all_ceilings:
        share = {"fp32": 0.5, "memory": 0.8}[ceiling.kind]
        begun.add_ceiling("r1", msgspec.structs.replace(ceiling, threads=1, rate=share * ceiling.rate))
    allowed = {problem: gain.allowed for problem, gain in gains(begun).items()}
    assert allowed == pytest.approx({computes: 2, moves: 1.25})


def test_one_problem_or_one_thread_count_makes_no_figure_and_says_why(begun):
    pair(begun, 8, 1e-5, 2e-5)
    put(begun, "gemm/m9n9k9/f32/NN", "gemm/some.base", threads=2)
    assert found(begun).figures == []
    assert "--threads 1,2" in found(begun).omitted
