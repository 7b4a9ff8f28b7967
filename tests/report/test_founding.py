"""The answer to the founding question: whether op_T is slower, and what transposing B first costs or gains."""

import pytest

from kernelmark.bench.report import founding
from kernelmark.bench.report.run_data import RunData
from support.rows import in_turn, put

NT, NN = ("gemm/m1024n2048k26752/f32/NT", "gemm/m1024n2048k26752/f32/NN")
DIMS = {"m": 1024, "n": 2048, "k": 26752}


def product(store, problem=NT, **times):
    in_turn(store, problem, DIMS, "gemm/some.matmul", **times)


def answer(store):
    (found,) = founding.answers(RunData(store, "r1"))
    return found


def test_a_transposition_that_pays_is_advised_with_its_gain(begun):
    product(begun, matmul=4e-3, tnn=2.5e-3, inplace=8e-3)
    assert answer(begun).words == (
        "Whether OP_T is slower here is open: OP_N was not measured. "
        "Transpose B out of place first: it is 60 % faster than OP_T, 1.6x [1.6, 1.6]."
    )


def test_transpositions_that_cost_are_advised_against_with_their_cost(begun):
    product(begun, matmul=1e-3, tnn=1.05e-3, inplace=4e-3)
    assert answer(begun).words.endswith("Don't transpose first: it costs 5 % out of place and 300 % in place.")


@pytest.mark.parametrize(
    ("op_t", "op_n", "words"),
    [
        (1e-3, 1e-3, "OP_T is not slower here: 1.00x [1, 1] (tie)."),
        (1.25e-3, 1e-3, "OP_T is 25 % slower than OP_N here, 0.8x [0.8, 0.8]."),
        (1e-3, 1.5e-3, "OP_T is not slower here: it is 50 % faster than OP_N, 1.5x [1.5, 1.5]."),
    ],
    ids=["tie", "slower", "faster"],
)
def test_op_t_is_called_slower_than_op_n_only_where_it_certainly_is(begun, op_t, op_n, words):
    product(begun, matmul=op_t, tnn=2 * op_t)
    product(begun, NN, matmul=op_n)
    assert answer(begun).words == f"{words} Don't transpose first: it costs 100 % out of place."


def test_a_tie_with_a_wide_interval_leaves_the_question_open(begun):
    for problem in (NT, NN):
        put(begun, problem, "gemm/some.matmul", 1e-3, DIMS, time_s_ci95_low=0.9e-3, time_s_ci95_high=1.1e-3)
    put(begun, NT, "gemm/some.tnn", 2e-3, DIMS)
    assert answer(begun).words.startswith("Whether OP_T is slower here is open: it has ")
    assert "the speed of OP_N (not measured in turn, tie)." in answer(begun).words


def test_no_certain_gain_is_no_reason_to_transpose(begun):
    for name in ("matmul", "tnn"):
        put(begun, NT, f"gemm/some.{name}", 1e-3, DIMS, job=name)
    assert "Don't transpose first: no gain is certain, " in answer(begun).words
    assert answer(begun).words.endswith("out of place (not measured in turn, tie).")
    assert answer(begun).evidence[-1].endswith("a tie (the interval includes 1), not measured in turn.")


def test_evidence_names_the_command_that_measures_a_missing_op_n(begun):
    product(begun, matmul=2e-3, tnn=2e-3)
    assert answer(begun).evidence[1] == f"op_N on these sizes was not measured; `kernelmark run {NN}` does."


def test_a_column_major_kernel_does_not_stand_for_op_t(begun):
    product(begun, sgemm_colmajor=1e-3, sgemm=2e-3, tnn=3e-3)
    assert "op_T by some.sgemm:" in answer(begun).evidence[0]


def test_the_subject_names_the_product_and_the_setting(begun):
    product(begun, matmul=1e-3, tnn=2e-3)
    assert answer(begun).subject == "C = A x B^T, A 1024x26752, B 2048x26752, f32; Some CPU, 2 threads, cold, fp32"


def test_the_answer_of_all_threads_is_first(begun):
    for threads in (1, 2):
        for name in ("matmul", "tnn"):
            put(begun, NT, f"gemm/some.{name}", 1e-3, DIMS, threads=threads)
    assert [a.op_t.threads for a in founding.answers(RunData(begun, "r1"))] == [2, 1]


@pytest.mark.parametrize("problem", ["gemm/m4n6k8/f32/NT", NN])
def test_other_products_do_not_answer_the_question(begun, problem):
    dims = {"m": 4, "n": 6, "k": 8} if "m4" in problem else DIMS
    for name in ("matmul", "tnn"):
        put(begun, problem, f"gemm/some.{name}", 1e-3, dims)
    assert founding.answers(RunData(begun, "r1")) == []


def test_the_product_whose_op_n_was_measured_is_the_answer(begun):
    product(begun, matmul=1e-3, tnn=1.05e-3)
    for problem, kernel in ((NT, "matmul"), (NT, "tnn"), (NN, "matmul")):
        put(begun, problem, f"gemm/some.{kernel}", 1e-3, DIMS, mode="hot", job="hot")
    found = founding.answers(RunData(begun, "r1"))
    assert [(answer.contest.setting.mode, answer.op_n is None) for answer in found] == [("hot", False), ("cold", True)]
