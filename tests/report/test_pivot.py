"""Pivots: which problems and kernels share a table, how problems are named there, and what a cell shows."""

import pytest

from kernelmark.bench.report.pivot import MOST_PROBLEMS, all_pivots, labelled, markdown
from support.rows import DISTURBED, fail, put


@pytest.fixture
def pivots_of(begun):
    return lambda: list(all_pivots(begun, "r1"))


def test_problems_are_named_by_what_they_do_not_share():
    assert labelled(["gemm/m8n9k7/f32/NT", "gemm/m8n16k7/f32/NN"]) == ("m8k7 f32", ["n9 NT", "n16 NN"])
    assert labelled(["conv/n1c3h9w9k4r3s3pad0-1x2/f32/nchw/fprop", "conv/n1c3h9w9k4r1s1/f32/nchw/fprop"]) == (
        "n1c3h9w9k4 f32 nchw fprop",
        ["r3s3pad0-1x2", "r1s1"],
    )


def test_problems_of_which_one_would_have_no_name_are_named_whole():
    assert labelled(["gemm/m8n9k7/f32/NT", "gemm/m8n9k7/f32/NT/beta1"]) == (
        "",
        ["m8n9k7 f32 NT", "m8n9k7 f32 NT beta1"],
    )


def test_one_problem_is_no_pivot(store, pivots_of):
    put(store, "gemm/m8n8k8/f32/NN", "gemm/a.b")
    assert pivots_of() == []


def test_problems_without_a_kernel_in_common_are_pivots_of_their_own(store, pivots_of):
    for m in (8, 16):
        put(store, f"transpose/m{m}n8/f32/out", "transpose/a.out")
        put(store, f"transpose/m{m}n8/f32/in", "transpose/a.in")
    assert [(p.shared, p.kernels) for p in pivots_of()] == [
        ("n8 f32 out", ["transpose/a.out"]),
        ("n8 f32 in", ["transpose/a.in"]),
    ]


def test_thread_counts_are_pivots_of_their_own(store, pivots_of):
    for m in (8, 16):
        for threads in (1, 2):
            put(store, f"gemm/m{m}n8k8/f32/NN", "gemm/a.b", threads=threads)
    assert [p.setting.threads for p in pivots_of()] == [1, 2]


def test_a_failure_stands_in_its_cell_and_a_missing_row_is_an_empty_one(store, pivots_of):
    put(store, "gemm/m8n8k8/f32/NN", "gemm/a.b")
    put(store, "gemm/m9n8k8/f32/NN", "gemm/a.b")
    fail(store, "gemm/m8n8k8/f32/NN", "gemm/a.bad", threads=2)
    (pivot,) = pivots_of()
    assert pivot.kernels == ["gemm/a.b", "gemm/a.bad"]
    assert [[cell and cell.text for cell in line.cells][1] for line in pivot.lines] == ["wrong", None]


def test_a_problem_that_no_kernel_solved_has_its_line(store, pivots_of):
    put(store, "gemm/m8n8k8/f32/NN", "gemm/a.b")
    put(store, "gemm/m9n8k8/f32/NN", "gemm/a.b")
    fail(store, "gemm/m7n8k8/f32/NN", "gemm/a.b", threads=2)
    (pivot,) = pivots_of()
    assert [line.label for line in pivot.lines] == ["m8", "m9", "m7"]


def test_markdown_marks_the_fastest_and_what_was_disturbed(store, pivots_of):
    for m in (8, 16):
        put(store, f"gemm/m{m}n8k8/f32/NN", "gemm/a.slow", taken=[2e-3] * 20, disturbed=DISTURBED)
        put(store, f"gemm/m{m}n8k8/f32/NN", "gemm/a.fast", taken=[1e-3] * 20)
    text = markdown(pivots_of()[0])
    assert "| m16 | ms | **1.00** | ~2.00 |" in text
    assert text.endswith("~ disturbed while it was measured")


def test_a_long_run_is_read_some_problems_at_a_time(store, pivots_of):
    for m in range(1, MOST_PROBLEMS + 3):
        put(store, f"gemm/m{m}n8k8/f32/NN", "gemm/a.b", taken=[1e-3] * 6)
    assert [len(p.lines) for p in pivots_of()] == [MOST_PROBLEMS, 2]
