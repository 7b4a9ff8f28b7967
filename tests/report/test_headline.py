"""The title, the date and the three numbers with which the page begins."""

import pytest

from kernelmark.bench.report import findings
from kernelmark.bench.report.run_data import RunData
from support.rows import begin, in_turn, put

NT, NN = "gemm/m1024n2048k26752/f32/NT", "gemm/m1024n2048k26752/f32/NN"


def numbers(store):
    return [(number.value, number.label) for number in findings.numbers(RunData(store, "r1"))]


def test_the_founding_question_has_the_speed_of_op_t_of_the_transposition_and_the_rate(begun):
    dims = {"m": 1024, "n": 2048, "k": 26752}
    in_turn(begun, NT, dims, matmul=1e-3, tnn=2e-3)
    in_turn(begun, NN, dims, matmul=1e-3)
    assert numbers(begun) == [
        ("1.00x", "speed of OP_T over OP_N"),
        ("0.5x", "speed with B transposed out of place first, over OP_T"),
        ("1.00 GFLOP/s", "OP_T by some.matmul"),
    ]


def test_one_problem_has_the_fastest_its_lead_and_its_rate(begun):
    in_turn(begun, "gemm/m8n8k8/f32/NT", a=1e-3, b=2e-3)
    assert numbers(begun) == [
        ("1.00 ms", "fastest: some.a"),
        ("2x", "its speed over some.b"),
        ("1.00 GFLOP/s", "its rate"),
    ]


def test_one_operation_has_its_winner_how_sure_and_by_how_much(begun):
    for n, other in ((1, 2e-3), (2, 3e-3), (3, 1e-3)):
        in_turn(begun, f"copy/m{n}n8/f32", a=1e-3, b=other)
    assert numbers(begun) == [
        ("3 of 3", "problems won by some.a"),
        ("2 of 3", "winners are certain"),
        ("2x", "median lead of the winner over the next"),
    ]


def test_several_operations_have_how_sure_by_how_much_and_the_best_of_the_roofline(begun):
    in_turn(begun, "copy/m1n8/f32", a=1e-3, b=2e-3)
    in_turn(begun, "transpose/m1n8/f32/out", a=1e-3, b=2e-3)
    put(begun, "fft/b1h8w8/f32/r2c", "fft/some.k", roofline_pct=87.0)
    assert numbers(begun)[2] == ("87.0 %", "of the roofline at best")
    assert len(numbers(begun)) == 3


def test_a_run_without_times_has_no_numbers(begun):
    assert numbers(begun) == []


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
