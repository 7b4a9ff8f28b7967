"""Ratios between variants: how they are worded and counted, and the size along the x axis of their figure."""

import pytest

from kernelmark.bench.report.contest import by_setting
from kernelmark.bench.report.figures.variants import ratio_places
from kernelmark.bench.report.findings import verdict
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.variants import variant_lines, variant_pairs
from support.rows import put

SMALL = "gemm/m4n6k8/f32/NT"


def compared(store, problem, against, ratio, low, high, kernel="some.a", **values):
    ends = {"ratio_ci95_low": low, "ratio_ci95_high": high}
    put(store, problem, f"{problem.partition('/')[0]}/{kernel}", against=against, ratio=ratio, **ends, **values)


def test_a_ratio_to_a_variant_is_named_with_its_interval(begun):
    compared(begun, SMALL, "gemm/m4n6k8/f32/NN", 1.01, 0.93, 1.12)
    compared(begun, SMALL, "gemm/m4n6k8/f32/NN", 9.0, 8.0, 9.5, "some.slow", median=1.0)
    compared(begun, "transpose/m4n6/f32/in", "transpose/m4n6/f32/out by transpose/some.b", 0.5, 0.4, 0.6)
    compared(begun, "conv/n1/f32/nchw", "conv/n1/f32/nchw by conv/some.b", 2.0, 1.9, 2.1)
    compared(begun, f"{SMALL}/zeros", SMALL, 1.3, 1.2, 1.4)
    assert variant_lines(RunData(begun, "r1").timed) == [
        "NT vs NN: no measurable difference (1.01x [0.93, 1.12]), some.a on gemm/m4n6k8/f32",
        "in vs out: slower, 0.5x [0.4, 0.6], some.a against some.b on transpose/m4n6/f32",
        "FFT vs direct: faster, 2x [1.9, 2.1], some.a against some.b on conv/n1/f32/nchw",
        "zeros vs uniform: faster, 1.3x [1.2, 1.4], some.a on gemm/m4n6k8/f32/NT",
    ]


def test_ratios_to_variants_of_several_problems_are_counted(begun):
    for n, ratio in ((2, 0.5), (3, 1.0), (4, 2.0)):
        compared(begun, f"gemm/m{n}n6k8/f32/NT", f"gemm/m{n}n6k8/f32/NN", ratio, 0.9 * ratio, 1.1 * ratio)
    line = "NT vs NN, 3 problems: slower on 1, faster on 1, no measurable difference on 1; 1.00x on average, 0.5x to 2x"
    assert variant_lines(RunData(begun, "r1").timed) == [line]
    assert line in verdict(RunData(begun, "r1"))


@pytest.mark.parametrize(
    ("sizes", "axis", "places"),
    [
        ([(8, 8, 8), (16, 16, 16)], "m = n = k", [8, 16]),
        ([(8, 8, 8), (16, 8, 8)], "m", [8, 16]),
        ([(8, 8, 8), (16, 4, 8)], "", [1e6, 1e6]),
    ],
)
def test_ratios_stand_over_the_size_that_is_swept(begun, sizes, axis, places):
    for m, n, k in sizes:
        problem, dims = f"gemm/m{m}n{n}k{k}/f32/NT", {"m": m, "n": n, "k": k}
        against = problem.replace("/NT", "/NN")
        compared(begun, problem, against, 0.9, 0.8, 1.0, dims=dims)
        compared(begun, problem, f"{against} by gemm/some.b", 0.9, 0.8, 1.0, "some.tnn", dims=dims)
    data = RunData(begun, "r1")
    pairs = variant_pairs(data.timed)
    sweep = ratio_places(data, by_setting(data.timed).popitem()[0], pairs)
    assert (sweep.axis, list(sweep.kernels)) == (axis, ["gemm/some.a"])
    assert [place for place, _ in sweep.kernels["gemm/some.a"]] == pytest.approx(places)
