"""The verdict with which a report begins and a run ends, the founding question, the title and three numbers."""

import pytest

from kernelmark.bench.measure.disturbance import beyond, more_threads
from kernelmark.bench.report import findings, founding
from kernelmark.bench.report.run_data import RunData
from support.rows import BEYOND, begin, fail, in_turn, put

SMALL = "gemm/m4n6k8/f32/NT"


def verdict(store):
    return findings.verdict(RunData(store, "r1"))


def test_a_tie_for_the_first_place_is_called_one(begun):
    in_turn(begun, SMALL, base=1e-3, same=1e-3)
    assert verdict(begun).endswith(" (the interval includes 1).")
    assert ", in a tie with some." in verdict(begun)


COLUMNS = "which reads column-major operands, so computes a different product."


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("first_colmajor", {}, COLUMNS),
        ("first", {"disturbed": beyond("2, 3")}, "which used more CPUs or threads than it was given."),
        ("first", {"disturbed": more_threads(2, 1)}, "which used more CPUs or threads than it was given."),
        ("first", {"numerics": "tf32"}, "which has no rival with the same device, threads and precision."),
    ],
)
def test_a_kernel_that_heads_a_table_without_a_rank_is_named_with_the_reason(begun, name, values, why):
    in_turn(begun, SMALL, base=1.25e-3, fast=1e-3)
    put(begun, SMALL, f"gemm/some.{name}", 0.5e-3, job="one", **values)
    assert verdict(begun) == (
        f"Fastest: some.fast, 25 % faster than some.base: 1.25x [1.25, 1.25]. First in the table, but not ranked: "
        f"some.{name}, {why}"
    )


def test_kernels_without_a_rank_are_named_once_for_all_tables_that_they_head(begun):
    for n in (2, 3, 4):
        in_turn(begun, f"gemm/m{n}n6k8/f32/NT", base=1e-3, slow=2e-3, a_colmajor=0.25e-3 * n, b_colmajor=0.6e-3)
    put(begun, "gemm/m9n9k9/f32/NT", "gemm/some.alone")
    in_turn(begun, "gemm/m4n6k8/f32/NT", best=0.1e-3)
    names = "some.a_colmajor, some.b_colmajor"
    assert verdict(begun).endswith(f". First in 2 of 3 tables, but not ranked: {names}, each of {COLUMNS}")


def test_the_founding_question_is_answered_beside_what_heads_its_table(begun):
    product(begun, matmul=2e-3, tnn=3e-3, sgemm_colmajor=1e-3)
    in_turn(begun, SMALL, base=1e-3, small_colmajor=0.5e-3)
    assert verdict(begun).endswith(f"First in the table, but not ranked: some.sgemm_colmajor, {COLUMNS}")
    assert "small" not in verdict(begun)


def test_kernels_on_column_major_operands_contend_where_no_others_were_measured(begun):
    in_turn(begun, SMALL, a_colmajor=1e-3, b_colmajor=2e-3)
    assert verdict(begun) == "Fastest: some.a_colmajor, 2x [2, 2] as fast as some.b_colmajor."


def test_rounds_in_turn_decide_where_medians_have_another_order(begun):
    put(begun, SMALL, "gemm/some.a", taken=[1.0] * 40, time_s_median=0.9, job="one")
    put(begun, SMALL, "gemm/some.b", taken=[0.5] * 40, time_s_median=1.0, job="one")
    why = "round by round, although its median is longer"
    assert verdict(begun) == f"Fastest: some.b, 2x [2, 2] as fast as some.a ({why})."
    assert [row.kernel for row in findings.fastest(RunData(begun, "r1"))[0]] == ["some.b"]


def test_the_verdict_and_the_numbers_of_an_operation_count_wins_and_those_that_are_certain(begun):
    for n, other in ((1, 2e-3), (2, 3e-3), (3, 1e-3)):
        in_turn(begun, f"copy/m{n}n8/f32", a=1e-3, b=other)
    assert verdict(begun) == (
        "Fastest: some.a, on 3 of 3 problems. The winner is certain on 2 of 3 problems; the median lead over the next "
        "kernel is 2x."
    )
    assert numbers(begun) == [
        ("3 of 3", "problems won by some.a"),
        ("2 of 3", "winners are certain"),
        ("2x", "median lead of the winner over the next"),
    ]


def test_the_verdict_names_the_fastest_of_each_operation_or_on_how_many_one_leads_and_counts_those_beyond_four(begun):
    for n, times in ((1, (1e-3, 2e-3)), (2, (2e-3, 1e-3))):
        in_turn(begun, f"transpose/m{n}n8/f32/out", a=times[0], b=times[1])
    assert verdict(begun).startswith("No overall winner: none leads on more than 1 of 2 problems. The winner is ")
    in_turn(begun, "copy/m1n8/f32", a=1e-3, b=2e-3)
    words = "Fastest: some.a for copy (1 of 1), no overall winner for transpose (at most 1 of 2). "
    assert verdict(begun).startswith(words)
    for op in ("c", "d", "e", "f"):
        in_turn(begun, f"{op}/m1n8/f32", one=1e-3, two=2e-3)
    assert "; 2 more operations below. " in verdict(begun)


def test_without_contenders_there_is_no_verdict_and_without_times_there_are_no_numbers(begun):
    assert verdict(begun).startswith("There is no verdict")
    assert numbers(begun) == []
    put(begun, SMALL, "gemm/some.alone")
    fail(begun, SMALL, "gemm/some.bad")
    assert verdict(begun).startswith("There is no verdict")


def test_a_kernel_that_used_other_cpus_is_neither_the_fastest_nor_best_of_the_roofline(begun):
    put(begun, SMALL, "gemm/some.beyond", 0.5e-3, disturbed=BEYOND, roofline_pct=99.0)
    assert numbers(begun) == []
    put(begun, SMALL, "gemm/some.alone", roofline_pct=87.0)
    assert numbers(begun) == [("1.02 ms", "fastest: some.alone")]
    for op in ("copy", "transpose"):
        in_turn(begun, f"{op}/m1n8/f32", a=1e-3, b=2e-3)
    assert numbers(begun)[2:] == [("87.0 %", "of the roofline at best")]


def test_speedups_are_counted_as_certain_only_without_one_in_their_interval(begun):
    put(begun, SMALL, "gemm/some.base", 1e-3, baseline="gemm/some.base")
    for name, low, high in (("up", 1.1, 1.3), ("down", 0.7, 0.9), ("open", 0.9, 1.1)):
        put(begun, SMALL, f"gemm/some.{name}", speedup=(low + high) / 2, speedup_ci95_low=low, speedup_ci95_high=high)
    (sentence,) = findings.sentences(RunData(begun, "r1"))
    assert "Against the baseline: 1 faster, 1 slower, 1 inconclusive." in sentence
    assert "The largest: 1.2x [1.1, 1.3] by some.up" in sentence


NT, NN = ("gemm/m1024n2048k26752/f32/NT", "gemm/m1024n2048k26752/f32/NN")
DIMS = {"m": 1024, "n": 2048, "k": 26752}


def product(store, problem=NT, **times):
    in_turn(store, problem, DIMS, "gemm/some.matmul", **times)


def answer(store):
    (finding,) = founding.answers(RunData(store, "r1"))
    return finding


@pytest.mark.parametrize(
    ("tnn", "advice"),
    [
        (0.625e-3, "Transpose B out of place first: it is 60 % faster than OP_T, 1.6x [1.6, 1.6]."),
        (1.05e-3, "Don't transpose first: it costs 5 % out of place and 300 % in place."),
    ],
)
def test_a_transposition_is_advised_with_its_gain_or_against_with_its_cost_and_a_missing_op_n_is_named(
    begun, tnn, advice
):
    product(begun, matmul=1e-3, tnn=tnn, inplace=4e-3)
    finding = answer(begun)
    assert finding.subject == "C = A x B^T, A 1024x26752, B 2048x26752, f32; Some CPU, 2 threads, cold, fp32"
    assert finding.words == f"NT vs NN: OP_N was not measured. {advice}"
    assert finding.evidence[1] == f"op_N on these sizes was not measured; `kernelmark run {NN}` measures it."


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


def test_ties_with_wide_intervals_leave_the_question_open_and_are_no_reason_to_transpose(begun):
    for problem, name in ((NT, "matmul"), (NT, "tnn"), (NN, "matmul")):
        ends = {"time_s_ci95_low": 0.9e-3, "time_s_ci95_high": 1.1e-3}
        put(begun, problem, f"gemm/some.{name}", 1e-3, DIMS, job=problem + name, **ends)
    assert answer(begun).words.startswith("NT vs NN: no measurable difference (")
    assert "), not measured in turn. Don't transpose first: no gain is certain, " in answer(begun).words
    assert answer(begun).words.endswith("out of place (not measured in turn, tie).")
    assert answer(begun).evidence[-1].endswith("a tie (the interval includes 1), not measured in turn.")


def test_a_column_major_kernel_does_not_stand_for_op_t(begun):
    product(begun, sgemm_colmajor=1e-3, sgemm=2e-3, tnn=3e-3)
    assert "op_T by some.sgemm:" in answer(begun).evidence[0]


@pytest.mark.parametrize(
    ("problem", "dims"),
    [("gemm/m4n6k8/f32/NT", {"m": 4, "n": 6, "k": 8}), (NN, DIMS), (f"{NT}/zeros", {**DIMS, "distribution": "zeros"})],
)
def test_other_products_do_not_answer_the_question(begun, problem, dims):
    for name in ("matmul", "tnn"):
        put(begun, problem, f"gemm/some.{name}", 1e-3, dims)
    assert founding.answers(RunData(begun, "r1")) == []


def test_the_product_whose_op_n_was_measured_is_the_answer_and_then_that_of_all_threads(begun):
    for threads in (1, 2):
        for name in ("matmul", "tnn"):
            put(begun, NT, f"gemm/some.{name}", 1e-3, DIMS, threads=threads)
    for problem, kernel in ((NT, "matmul"), (NT, "tnn"), (NN, "matmul")):
        put(begun, problem, f"gemm/some.{kernel}", 1e-3, DIMS, mode="hot", job="hot")
    answers = [(a.contest.setting.mode, a.op_t.threads, a.op_n is None) for a in founding.answers(RunData(begun, "r1"))]
    assert answers == [("hot", 2, False), ("cold", 2, True), ("cold", 1, True)]


def numbers(store):
    return [(number.value, number.label) for number in findings.numbers(RunData(store, "r1"))]


def test_the_founding_question_has_the_speed_of_op_t_of_the_transposition_and_the_rate(begun):
    in_turn(begun, NT, DIMS, matmul=1e-3, tnn=2e-3)
    in_turn(begun, NN, DIMS, matmul=1e-3)
    assert numbers(begun) == [
        ("1.00x", "speed of OP_T over OP_N"),
        ("0.5x", "speed of transposing B out of place first, over OP_T"),
        ("1.00 GFLOP/s", "OP_T by some.matmul"),
    ]


def test_one_problem_has_the_fastest_its_lead_and_its_rate(begun):
    in_turn(begun, "gemm/m8n8k8/f32/NT", a=1e-3, b=2e-3)
    assert numbers(begun) == [
        ("1.00 ms", "fastest: some.a"),
        ("2x", "its speed over some.b"),
        ("1.00 GFLOP/s", "its rate"),
    ]


def test_several_operations_have_how_sure_by_how_much_and_the_best_of_the_roofline(begun):
    in_turn(begun, "copy/m1n8/f32", a=1e-3, b=2e-3)
    in_turn(begun, "transpose/m1n8/f32/out", a=1e-3, b=2e-3)
    assert len(numbers(begun)) == 2
    put(begun, "fft/b1h8w8/f32/r2c", "fft/some.k", roofline_pct=87.0)
    assert numbers(begun)[2:] == [("87.0 %", "of the roofline at best")]


@pytest.mark.parametrize(
    ("started_at", "date"),
    [
        ("2026-11-02T15:35:26+00:00", "2 November 2026, 15:35 UTC"),
        ("2026-11-02T15:35", "2 November 2026, 15:35"),
        ("then", "then"),
    ],
)
def test_the_date_is_written_out(store, started_at, date):
    begin(store, started_at=started_at)
    assert findings.date(RunData(store, "r1")) == date


@pytest.mark.parametrize(
    ("suites", "title"),
    [
        ((), "A run without a suite"),
        (("smoke",), "Smoke: every CPU kernel on small shapes"),
        (("gone.toml",), "gone.toml"),
        (("a", "b", "c", "d"), "a; b; 2 more"),
    ],
)
def test_the_title_is_that_of_the_suites_or_their_names(store, registry, suites, title):
    begin(store, suites=suites)
    assert findings.title(RunData(store, "r1"), registry) == title
