"""The advice on op_T with which a report begins, and which speedups are certain."""

import re

from bench.report import findings
from bench.report.run_data import RunData
from report_rows import begin, put

NT = "gemm/m4n6k8/f32/NT"
DIMS = {"m": 4, "n": 6, "k": 8}


def test_a_transposition_that_pays_is_advised_with_its_ratio(store):
    begin(store)
    put(store, NT, "gemm/some.matmul", 4e-3, DIMS, baseline="gemm/some.matmul")
    put(store, NT, "gemm/some.tnn", 1e-3, DIMS)
    put(store, NT, "gemm/some.inplace", 8e-3, DIMS)
    (answer,) = findings.answers(RunData(store, "r1"))
    assert re.fullmatch(
        r"Transposing B out of place first pays: some.tnn has [34]\.\d+x \[.*\] the speed of op_T.", answer.advice
    )
    assert answer.subject.startswith("C = A x B^T, A 4x8, B 6x8, f32; Some CPU, 2 threads, cold")
    assert any("in place first (some.inplace)" in line and "slower" in line for line in answer.evidence)


def test_transpositions_that_cost_are_advised_against(store):
    begin(store)
    put(store, NT, "gemm/some.matmul", 1e-3, DIMS, baseline="gemm/some.matmul")
    put(store, NT, "gemm/some.tnn", 2e-3, DIMS)
    put(store, NT, "gemm/some.inplace", 4e-3, DIMS)
    (answer,) = findings.answers(RunData(store, "r1"))
    assert answer.advice.startswith("Leave op_T to the library (some.matmul)")
    assert "are both slower" in answer.advice


def test_a_tie_is_called_one_and_not_advised(store):
    begin(store)
    put(store, NT, "gemm/some.matmul", 1.006e-3, DIMS)
    put(store, NT, "gemm/some.tnn", 1e-3, DIMS)
    (answer,) = findings.answers(RunData(store, "r1"))
    assert answer.advice.endswith("no transposition first is certain to be faster.")
    assert any("the speed of op_T, a tie (the interval includes 1)." in text for text in answer.evidence)


def test_op_n_on_the_same_sizes_is_set_against_op_t(store):
    begin(store)
    put(store, NT, "gemm/some.matmul", 2e-3, DIMS)
    put(store, NT, "gemm/some.tnn", 2e-3, DIMS)
    (missing,) = findings.answers(RunData(store, "r1"))
    assert missing.advice.startswith("Leave op_T")
    assert missing.evidence[1] == "op_N on these sizes was not measured; `kernelmark run gemm/m4n6k8/f32/NN` does."
    put(store, NT.replace("NT", "NN"), "gemm/some.matmul", 1e-3, DIMS)
    assert findings.answers(RunData(store, "r1"))[0].advice.startswith("Yes: op_N has ")


def test_a_column_major_kernel_does_not_stand_for_op_t(store):
    begin(store)
    put(store, NT, "gemm/some.sgemm_colmajor", 1e-3, DIMS)
    put(store, NT, "gemm/some.sgemm", 2e-3, DIMS)
    put(store, NT, "gemm/some.tnn", 3e-3, DIMS)
    assert "op_T by some.sgemm:" in findings.answers(RunData(store, "r1"))[0].evidence[0]


def test_speedups_are_counted_as_certain_only_without_one_in_their_interval(store):
    begin(store)
    put(store, NT, "gemm/some.base", 1e-3, baseline="gemm/some.base")
    for name, low, high in (("up", 1.1, 1.3), ("down", 0.7, 0.9), ("open", 0.9, 1.1)):
        put(store, NT, f"gemm/some.{name}", speedup=(low + high) / 2, speedup_ci95_low=low, speedup_ci95_high=high)
    (sentence,) = findings.sentences(RunData(store, "r1"))
    assert "Of 3 speedups over the baseline 1 are certainly above 1 and 1 certainly below." in sentence
    assert "The largest: 1.2x [1.1, 1.3] by some.up" in sentence
