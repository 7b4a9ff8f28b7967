"""Seconds a batch of a network."""

import pytest

from kernelmark.bench.record.store import Layer
from kernelmark.bench.report.networks import network_table
from support.rows import result

CONV, BACK, DENSE = "conv/a/f32/nchw/fprop", "conv/a/f32/nchw/wgrad", "gemm/b/f32/NT"
LAYERS = [Layer("net", CONV, "forward", 2), Layer("net", DENSE, "forward", 1), Layer("net", BACK, "backward", 3)]


def row(kernel, problem, time_s, **values):
    own = {"op": kernel.partition("/")[0], "kernel": kernel, "problem": problem, "device_name": "d", "threads": 2}
    ends = {"time_s_ci95_low": 0.9 * time_s, "time_s_ci95_high": 1.2 * time_s} if time_s else {}
    return result(**{**own, "time_s_median": time_s, **ends, **values})


ROWS = [
    row("conv/a.x", CONV, 1.0),
    row("conv/a.y", CONV, 2.0),
    row("conv/a.x", BACK, 5.0),
    row("conv/a.y", BACK, 4.0),
    row("gemm/a.z", DENSE, 10.0),
    row("gemm/a.w", DENSE, 20.0),
]


def cells(layers, rows):
    """Forward, and forward and backward, by who ran the layers."""
    lines = [line.split("  ") for line in network_table(layers, rows).splitlines()[3:]]
    found = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {by: rest for _, by, *rest in found}


def test_layers_are_summed_as_often_as_the_network_has_them():
    found = cells(LAYERS, ROWS)
    assert found["the fastest of each layer"] == ["12.0 s [10.8 s, 14.4 s]", "24.0 s [21.6 s, 28.8 s]", "3 of 3"]


def test_a_kernel_is_joined_by_the_fastest_of_the_other_operations():
    found = cells(LAYERS, ROWS)
    assert found["conv/a.x, the fastest of each layer for the rest"][:2] == [
        "12.0 s [10.8 s, 14.4 s]",
        "27.0 s [24.3 s, 32.4 s]",
    ]
    assert found["gemm/a.w, the fastest of each layer for the rest"][0] == "22.0 s [19.8 s, 26.4 s]"


def test_a_layer_without_a_time_leaves_no_sum():
    found = cells(LAYERS, [r for r in ROWS if r.problem != BACK])
    assert found["the fastest of each layer"] == ["12.0 s [10.8 s, 14.4 s]", "2 of 3"]
    assert found["conv/a.x, the fastest of each layer for the rest"] == ["12.0 s [10.8 s, 14.4 s]", "2 of 3"]


def test_a_kernel_that_lacks_a_layer_has_no_sum_with_it():
    found = cells(LAYERS, [r for r in ROWS if (r.kernel, r.problem) != ("conv/a.x", CONV)])
    assert not any("conv/a.x" in by for by in found)


def test_an_interval_that_is_unknown_makes_that_of_the_sum_unknown():
    bare = [row("conv/a.x", CONV, 1.0, time_s_ci95_low=None), *ROWS[1:]]
    assert cells(LAYERS, bare)["the fastest of each layer"][0] == "12.0 s"


def test_one_thread_stands_beside_two_and_precisions_stay_apart():
    rows = [row("conv/a.x", CONV, 1.0, threads=1), *ROWS[4:], row("conv/a.h", CONV, 0.5, numerics="tf32")]
    found = network_table(LAYERS[:2], rows)
    assert "d, 2 threads, cold, fp32" in found
    assert "d, 2 threads, cold, tf32" in found
    assert "12.0 s" in found


def test_instruction_sets_stay_apart():
    rows = [row("conv/a.x", CONV, 1.0, isa="avx2"), row("gemm/a.z", DENSE, 5.0, isa="avx2"), *ROWS]
    tables = network_table(LAYERS[:2], rows).split("\n\n")
    assert [(table.splitlines()[0], "7.00 s" in table) for table in tables] == [
        ("d, avx2, 2 threads, cold, fp32", True),
        ("d, 2 threads, cold, fp32", False),
    ]


@pytest.mark.parametrize(("layers", "said"), [([], "no network: "), (LAYERS, "no times: ")])
def test_what_is_missing_is_said(layers, said):
    assert network_table(layers, [row("conv/a.x", CONV, None)]).startswith(said)
