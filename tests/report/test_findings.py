"""The verdict with which a report begins and a run ends, and which speedups are certain."""

from kernelmark.bench.report import findings
from kernelmark.bench.report.run_data import RunData
from support.rows import fail, in_turn, put

NT = "gemm/m4n6k8/f32/NT"


def verdict(store):
    return findings.verdict(RunData(store, "r1"))


def test_founding_problems_are_answered(begun):
    dims = {"m": 1024, "n": 2048, "k": 26752}
    for name, median in (("matmul", 1e-3), ("tnn", 2e-3)):
        put(begun, "gemm/m1024n2048k26752/f32/NT", f"gemm/some.{name}", median, dims)
    assert "Don't transpose first: it costs " in verdict(begun)


def test_the_verdict_on_one_problem_names_the_fastest_and_its_lead(begun):
    in_turn(begun, NT, base=1.25e-3, fast=1e-3)
    assert verdict(begun) == "Fastest: some.fast, 25 % faster than some.base: 1.25x [1.25, 1.25]."


def test_a_tie_for_the_first_place_is_called_one(begun):
    in_turn(begun, NT, base=1e-3, same=1e-3)
    assert verdict(begun).endswith(" (the interval includes 1).")
    assert ", in a tie with some." in verdict(begun)


def test_the_verdict_on_an_operation_counts_wins_and_those_that_are_certain(begun):
    for n, other in ((1, 2e-3), (2, 2e-3), (3, 1e-3)):
        in_turn(begun, f"copy/m{n}n8/f32", a=1e-3, b=other)
    assert verdict(begun) == (
        "Fastest: some.a, on 3 of 3 problems. The winner is certain on 2 of 3 problems; the median lead over the next "
        "is 2x."
    )


def test_the_verdict_on_several_operations_names_the_fastest_of_each(begun):
    in_turn(begun, "copy/m1n8/f32", a=1e-3, b=2e-3)
    for n, times in ((1, (1e-3, 2e-3)), (2, (2e-3, 1e-3))):
        in_turn(begun, f"transpose/m{n}n8/f32/out", a=times[0], b=times[1])
    assert verdict(begun).startswith(
        "Fastest: some.a for copy (1 of 1), no single kernel for transpose (at most 1 of 2). "
    )


def test_operations_beyond_the_first_four_are_counted(begun):
    for op in ("a", "b", "c", "d", "e", "f"):
        in_turn(begun, f"{op}/m1n8/f32", one=1e-3, two=2e-3)
    assert "; 2 more operations below. " in verdict(begun)


def test_without_contenders_there_is_no_verdict(begun):
    assert verdict(begun).startswith("There is no verdict")
    put(begun, NT, "gemm/some.alone")
    fail(begun, NT, "gemm/some.bad")
    assert verdict(begun).startswith("There is no verdict")


def test_speedups_are_counted_as_certain_only_without_one_in_their_interval(begun):
    put(begun, NT, "gemm/some.base", 1e-3, baseline="gemm/some.base")
    for name, low, high in (("up", 1.1, 1.3), ("down", 0.7, 0.9), ("open", 0.9, 1.1)):
        put(begun, NT, f"gemm/some.{name}", speedup=(low + high) / 2, speedup_ci95_low=low, speedup_ci95_high=high)
    (sentence,) = findings.sentences(RunData(begun, "r1"))
    assert "Against the baseline: 1 faster, 1 slower, 1 inconclusive." in sentence
    assert "The largest: 1.2x [1.1, 1.3] by some.up" in sentence
