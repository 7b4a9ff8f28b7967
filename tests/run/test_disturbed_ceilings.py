"""Ceilings that other load has lowered: taken again, doubted, and marked in the rows that stand on them."""

import msgspec
import pytest

from kernelmark.bench.measure.disturbance import disturbances
from support.runs import JOB, timed


def later(lab, **rates):
    """A row measured more than a minute later, on a machine with these rates."""
    lab.now += 100
    lab.rates |= rates
    lab.jobs.clear()
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    return row


def test_a_ceiling_that_load_has_lowered_is_taken_twice_and_rows_stand_on_the_last_credible_one(lab):
    lab.apply(numpy_matmul=2**31 / 5e10)
    row = later(lab, fma=6e10)
    assert len(lab.jobs) == 3
    assert lab.doubts == [("fp32", "40 % below the best of this run")]
    assert row.roofline.roofline_pct == pytest.approx(50)
    assert row.disturbed == "the fp32 ceiling was disturbed: 40 % below the best of this run"
    assert disturbances(row.disturbed) == [("the fp32 ceiling was disturbed", 100)]


def test_a_ceiling_that_is_credible_at_the_second_look_disturbs_nothing(lab, monkeypatch):
    lab.apply(numpy_matmul=2**31 / 5e10)
    lab.now, answer = lab.now + 100, lab.answer
    rates = iter((6e10, 1e11))

    def recovering(job, key):
        if job.problems[0].startswith("fma"):
            lab.rates["fma"] = next(rates)
        return answer(job, key)

    lab.answer = recovering
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert (row.disturbed, lab.doubts, list(rates)) == ("", [], [])


def test_a_ceiling_with_a_wide_interval_is_taken_twice_and_marks_the_rows_on_it(lab):
    lab.width = 0.2
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert len(lab.jobs) == 4
    assert [kind for kind, _ in lab.doubts] == ["fp32", "memory"]
    assert row.disturbed.startswith("the fp32 ceiling was disturbed: its interval is 20 % wide")


def test_a_second_look_is_longer_and_the_one_with_a_narrow_interval_counts_even_if_it_is_slower(lab):
    answer, looks = lab.answer, []

    def settling(job, key):
        if job.problems[0].startswith("fma"):
            looks.append(job.budget.max_time_s)
            lab.rates["fma"], lab.width = [(1e11, 0.2), (9.5e10, 0.05)][len(looks) - 1]
        return answer(job, key)

    lab.answer = settling
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert looks == [pytest.approx(0.3), pytest.approx(1.2)]
    assert (row.disturbed, lab.doubts) == ("", [])
    assert row.roofline.roofline_pct == pytest.approx(100 * 5 / 9.5)


def test_a_ceiling_of_fp32_below_that_of_fp64_is_taken_twice(lab, registry):
    job = msgspec.structs.replace(JOB, problems=("gemm/m1024n1024k1024/f64/NN",))
    row = timed("gemm/numpy.matmul", 2**31 / 5e10, job.problems[0])
    row.numerics = "fp64"
    lab.ceilings.apply(job, [row])
    lab.rates["fma"] = 8e10
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert [reason for _, reason in lab.doubts] == ["below that of fp64"]
    assert row.roofline.roofline_pct == pytest.approx(100 * 5 / 8)


def test_a_row_is_held_against_the_best_ceiling_of_the_run_and_not_against_a_later_one(lab):
    lab.apply(numpy_matmul=2**31 / 5e10)
    lab.now, lab.rates["fma"] = lab.now + 100, 9.3e10
    base, fast = lab.apply(numpy_matmul=2**31 / 5e10, scipy_sgemm=2**31 / 9.8e10)
    assert (base.status, fast.status, lab.doubts) == ("ok", "ok", [])
    assert base.roofline.roofline_pct == pytest.approx(100 * 5 / 9.3)
