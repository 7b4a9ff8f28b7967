"""The ceilings of a run: measured (by a fake worker), refreshed, doubted, lowered by other load, applied to rows."""

import msgspec
import pytest

from kernelmark import kernel
from kernelmark.bench.measure.measurement import Ceiling, Measurement
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run import ceilings

#: 2^31 flop on operands of 3 MB.
GEMM = "gemm/m1024n1024k1024/f32/NN"
JOB = Job((GEMM,), ("gemm/numpy.matmul", "gemm/scipy.sgemm"), Mode.COLD, (), 0, Budget(), 1, "gemm/numpy.matmul")


class Lab:
    """`Ceilings` with a fake worker whose microbenchmarks reach `rates`; it records kept ceilings and doubts."""

    def __init__(self, monkeypatch, registry):
        self.rates, self.width, self.load, self.takes_s = {"fma": 1e11, "copy": 1e10}, 0.0, "", 0.0
        self.jobs, self.stored, self.doubts, self.ever, self.now = [], [], [], [], 1000.0
        self._registry = registry
        monkeypatch.setattr(ceilings, "now", lambda: self.now)
        self.begin()

    def begin(self, known=None):
        """Begin another run on the same machine; known: the ceilings that it shares with other runs."""
        self.ceilings = ceilings.Ceilings(
            self._registry, lambda *what: self.answer(*what), self.stored.append, self.doubt, self.earlier, known
        )

    def doubt(self, ceiling, reason):
        self.doubts.append((ceiling.kind, reason))

    def answer(self, job, key):
        self.jobs.append(job)
        self.now += self.takes_s
        (problem,) = map(self._registry.problem, job.problems)
        took = (problem.flop or problem.traffic_bytes) / self.rates[problem.op]
        return [timed(name, took, width=self.width, disturbed=self.load) for name in job.kernels]

    def earlier(self, need):
        return [(ceiling, doubt) for ceiling, doubt in self.ever if ceiling.need == need]

    def apply(self, **took):
        rows = [timed(f"gemm/{name.replace('_', '.')}", seconds) for name, seconds in took.items()]
        self.ceilings.apply(JOB, rows)
        return rows


def timed(kernel, seconds, problem=GEMM, width=0.0, numerics="fp32", **measured):
    measured["interval"] = Interval(seconds, seconds * (1 - width / 2), seconds * (1 + width / 2))
    measured["samples"] = [seconds] + [seconds * (1 + width)] * 5
    return Measurement(kernel=kernel, problem=problem, numerics=numerics, **measured)


@pytest.fixture
def lab(monkeypatch, registry):
    return Lab(monkeypatch, registry)


def test_a_kernel_beyond_the_ceiling_on_two_variants_is_mistrusted_on_both_and_does_not_refute_the_ceiling(lab):
    variants = (GEMM, GEMM.replace("NN", "NT"))
    job = msgspec.structs.replace(JOB, problems=variants)
    took = {"gemm/numpy.matmul": 2**31 / 5e10, "gemm/scipy.sgemm": 2**31 / 1.2e11}
    rows = [timed(kernel, seconds, problem) for problem in variants for kernel, seconds in took.items()]
    lab.ceilings.apply(job, rows)
    assert [row.status for row in rows] == ["ok", "mistrusted"] * 2
    assert [row.roofline.roofline_pct for row in rows[::2]] == [pytest.approx(50)] * 2
    assert lab.doubts == []


def test_a_row_is_placed_under_what_was_measured(lab):
    base, other = lab.apply(numpy_matmul=2**31 / 5e10, scipy_sgemm=2**31 / 8e10)
    assert (base.roofline.roofline_pct, other.roofline.roofline_pct) == (pytest.approx(50), pytest.approx(80))
    assert {ceiling.kind for ceiling in lab.stored} == {"fp32", "memory"}
    assert all(job.mode == "hot" and job.threads == 1 and job.ours for job in lab.jobs)


#: If a ceiling takes 10 s, the first of three is 190 s old when it is measured again, and the second is 180 s old.
@pytest.mark.parametrize(("takes_s", "before_s", "after_s"), [(0, 59, 2), (10, 170, 30)])
def test_ceilings_are_measured_again_after_a_minute_or_twenty_times_what_they_took(lab, takes_s, before_s, after_s):
    lab.takes_s = takes_s
    for later_s, jobs in ((0, 3), (before_s, 3), (after_s, 5)):  # the judging ceiling only once
        lab.now += later_s
        lab.apply(numpy_matmul=1.0)
        assert len(lab.jobs) == jobs


def test_a_run_keeps_the_ceilings_that_an_earlier_one_measured_just_now(lab):
    known = {}
    lab.begin(known)
    lab.apply(numpy_matmul=1.0)
    first = list(lab.stored)
    lab.begin(known)
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert (lab.stored, len(lab.jobs)) == (first * 2, 3)
    assert row.roofline.roofline_pct == pytest.approx(50)
    lab.apply(numpy_matmul=1.0)
    assert lab.stored == first * 2
    lab.now += 61
    lab.begin(known)
    lab.apply(numpy_matmul=1.0)
    assert len(lab.jobs) == 6


def test_a_doubt_about_a_ceiling_goes_with_it_to_the_next_run(lab):
    known, lab.width = {}, 0.3
    for _ in range(2):
        lab.doubts.clear()
        lab.begin(known)
        lab.apply(numpy_matmul=1.0)
        assert list(dict.fromkeys(kind for kind, _ in lab.doubts)) == ["fp32", "memory"]


def test_a_run_stands_on_no_ceiling_that_it_does_not_have(lab):
    known = {}
    lab.begin(known)
    lab.apply(numpy_matmul=1.0)
    lab.stored.clear()
    lab.now, lab.width, lab.rates["fma"] = lab.now + 61, 0.3, 5e10
    lab.begin(known)
    (row,) = lab.apply(numpy_matmul=2**31 / 2.5e10)
    assert max(ceiling.rate for ceiling in lab.stored if ceiling.kind == "fp32") == pytest.approx(5e10)
    assert row.roofline.roofline_pct == pytest.approx(50)


def test_one_kernel_above_a_ceiling_that_was_measured_again_is_mistrusted_and_loses_its_time(lab):
    base, cheat = lab.apply(numpy_matmul=2**31 / 5e10, scipy_sgemm=2**31 / 2e11)
    assert (cheat.status, cheat.samples, cheat.interval, cheat.roofline) == ("mistrusted", [], None, None)
    assert cheat.reason.startswith("200 GFLOP/s exceed the ceiling, 100 GFLOP/s by fma/")
    assert base.judged_by == cheat.judged_by
    assert base.judged_by.startswith("100 GFLOP/s by fma/numba.fma on fma/n98304k512/f32; twice 10 GB/s by copy/")
    assert (cheat.evidence.samples, cheat.evidence.interval.median) == ([2**31 / 2e11] * 6, 2**31 / 2e11)
    assert (cheat.evidence.excess.declared, cheat.evidence.excess.rate) == (2**31, pytest.approx(2e11))
    assert cheat.evidence.excess.ceiling == lab.stored[0]
    assert base.evidence is None
    assert (base.status, len(lab.jobs)) == ("ok", 4)
    assert lab.doubts == []


def test_no_ceiling_accuses_a_kernel_of_skipping_zeros(lab):
    zeros = f"{GEMM}/zeros"
    (row,) = rows = [timed("gemm/scipy.sgemm", 2**31 / 2e12, zeros)]
    lab.ceilings.apply(msgspec.structs.replace(JOB, problems=(zeros,)), rows)
    assert (row.status, row.roofline, row.judged_by) == ("ok", None, ceilings.NO_JUDGE)


def test_a_ceiling_that_a_second_look_lifts_accuses_nobody(lab, monkeypatch):
    lab.apply(numpy_matmul=2**31 / 5e10)
    lab.rates["fma"] = 2.1e11
    _, fast = lab.apply(numpy_matmul=2**31 / 5e10, scipy_sgemm=2**31 / 2e11)
    assert (fast.status, fast.roofline.roofline_pct) == ("ok", pytest.approx(100 * 2 / 2.1))
    assert lab.doubts == [("fp32", "a later one of this run is 110 % higher")]


@pytest.mark.parametrize("rates", [(2e11, 5e10), (2e11, 2e11)], ids=["the baseline", "several kernels"])
def test_a_ceiling_below_the_baseline_or_several_kernels_bounds_nothing_and_is_noted(lab, rates):
    rows = lab.apply(numpy_matmul=2**31 / rates[0], scipy_sgemm=2**31 / rates[1])
    assert [row.status for row in rows] == ["ok", "ok"]
    ((kind, reason),) = lab.doubts
    assert kind == "fp32"
    assert reason.startswith(f"gemm/numpy.matmul on {GEMM}: 200 GFLOP/s exceed")
    assert all(row.roofline is None or row.roofline.bound_by == "memory" for row in rows)


def test_plug_ins_do_not_set_the_measure_they_are_held_against(lab, registry):
    kernel("copy", name="mine", provider="p", device="cpu", numerics="exact")(lambda problem, x: None)
    lab.apply(numpy_matmul=1.0)
    assert not any("copy/p.mine" in job.kernels for job in lab.jobs)
    assert any("copy/numpy.copyto" in job.kernels for job in lab.jobs)


def test_rows_without_a_time_cost_no_ceiling(lab):
    lab.ceilings.apply(JOB, [Measurement(kernel="gemm/numpy.matmul", status="unsupported", reason="no")])
    assert lab.jobs == []


def test_without_ceilings_nothing_else_is_measured(measured, workers, store):
    (result,), session, _ = measured("copy/m9n9/f32", kernels=("copy/numpy.copyto",), execute=workers.run)
    assert (result.status, result.roofline_pct, store.ceilings(session.run_id)) == ("ok", None, [])


def test_a_microbenchmark_is_not_accused_by_itself(lab, registry):
    job = Job(("fma/n98304k8192/f32",), ("fma/numba.fma",), Mode.HOT, (), 0, Budget(), 1)
    row = timed("fma/numba.fma", registry.problem(job.problems[0]).flop / 2e11, job.problems[0])
    lab.ceilings.apply(job, [row])
    assert (row.status, lab.doubts) == ("ok", [])


@pytest.mark.parametrize(("rate", "status"), [(1.9e10, "ok"), (2.1e10, "mistrusted")])
def test_a_copy_of_ours_is_compared_with_twice_a_copy_within_a_cache(lab, registry, rate, status):
    job = Job(("copy/m512n512/f32",), ("copy/numpy.copyto",), Mode.COLD, (), 0, Budget(), 1)
    row = timed("copy/numpy.copyto", registry.problem(job.problems[0]).traffic_bytes / rate, job.problems[0])
    lab.ceilings.apply(job, [row])
    assert (row.status, row.judged_by.startswith("twice")) == (status, True)


def test_a_row_at_twice_the_highest_ceiling_ever_is_mistrusted_even_where_the_ceiling_is_doubted(lab):
    base, other = lab.apply(numpy_matmul=2**31 / 1.5e11, scipy_sgemm=2**31 / 3e11)
    assert (base.status, other.status) == ("ok", "mistrusted")
    assert "300 GFLOP/s exceed twice the ceiling, 100 GFLOP/s" in other.reason
    assert [kind for kind, _ in lab.doubts] == ["fp32"]
    base, other = lab.apply(numpy_matmul=2**31 / 1.5e11, scipy_sgemm=2**31 / 3e11)  # the ceiling is doubted now
    assert (base.status, other.status) == ("ok", "mistrusted")


def test_a_ceiling_of_an_earlier_run_may_be_the_highest(lab):
    lab.rates["fma"] = 2e11
    lab.apply(numpy_matmul=2**31 / 1.5e11)
    lab.ever, lab.rates["fma"] = [(ceiling, "") for ceiling in lab.stored], 1e11
    lab.begin()
    base, other = lab.apply(numpy_matmul=2**31 / 1.5e11, scipy_sgemm=2**31 / 1.9e11)
    assert (base.status, other.status, other.roofline) == ("ok", "ok", None)


LOAD = "other processes used 0.75 CPUs during 100 % of the sampling"


def beside_load(lab, fma=1e11):
    """Return two rows, the second at 150 GFLOP/s, with ceilings that were measured during other load."""
    lab.load, lab.rates["fma"] = LOAD, fma
    return lab.apply(numpy_matmul=2**31 / 5e10, scipy_sgemm=2**31 / 1.5e11)


def test_a_ceiling_that_was_measured_beside_load_accuses_at_twice_its_rate_alone(lab):
    base, fast = beside_load(lab)
    assert (fast.status, fast.judged_by.startswith("twice 100 GFLOP/s by fma/"), len(lab.jobs)) == ("ok", True, 3)
    assert base.disturbed == "the fp32 ceiling was disturbed: measured while other processes used 0.75 CPUs"
    (cheat,) = lab.apply(scipy_sgemm=2**31 / 2.1e11)
    assert cheat.status == "mistrusted"


def test_a_ceiling_whose_calls_are_longer_than_a_time_slice_accuses_nobody_where_others_ran(lab, monkeypatch):
    monkeypatch.setattr(ceilings.roofline, "SLICE_S", 1e-5)
    base, fast = beside_load(lab)
    (fastest,) = lab.apply(scipy_sgemm=2**31 / 3e11)
    assert [row.status for row in (base, fast, fastest)] == ["ok"] * 3
    assert {row.judged_by for row in (base, fast, fastest)} == {ceilings.NO_JUDGE}
    assert lab.doubts.count(lab.doubts[0]) == 1
    assert lab.doubts[0] == ("fp32", "other processes used 0.75 CPUs, and a call took longer than a time slice")


def test_a_ceiling_of_an_earlier_run_that_nothing_disturbed_accuses_where_that_of_now_is_disturbed(lab):
    lab.apply(numpy_matmul=1.0)
    lab.ever = [(ceiling, "") for ceiling in lab.stored]
    lab.begin()
    _, fast = beside_load(lab, fma=6e10)
    assert fast.status == "mistrusted"
    assert fast.judged_by.startswith("100 GFLOP/s by fma/")


def test_the_nominal_peak_accuses_where_no_ceiling_holds_and_bounds_nothing(lab, monkeypatch):
    peak = Ceiling("cpu", 1, "fp32", "", "nominal peak", "d", 1.2e11, 1.2e11, 1.2e11, 1.2e11, "")
    monkeypatch.setattr(ceilings, "nominal_peak", lambda need: peak if need.kind == "fp32" else None)
    lab.answer = lambda job, key: [Measurement(kernel="fma/a.b", status="wrong")]
    base, cheat = lab.apply(numpy_matmul=2**31 / 5e10, scipy_sgemm=2**31 / 1.5e11)
    assert (base.status, base.roofline, base.judged_by) == ("ok", None, "120 GFLOP/s nominal peak")
    assert lab.stored == []
    assert (cheat.status, cheat.reason) == ("mistrusted", "150 GFLOP/s exceed the ceiling, 120 GFLOP/s nominal peak")


def test_rows_stand_on_the_ceiling_of_the_run_that_nothing_disturbed_and_have_no_mark_for_a_later_one(lab):
    lab.apply(numpy_matmul=2**31 / 5e10)
    before = list(lab.stored)
    lab.now, lab.load, lab.rates["fma"] = lab.now + 100, LOAD, 6e10
    lab.jobs.clear()
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert (row.roofline.roofline_pct, row.disturbed) == (pytest.approx(50), "")
    assert (lab.stored, lab.doubts, len(lab.jobs)) == (before, [], 2)


def test_a_ceiling_with_a_wide_interval_is_taken_twice_and_marks_the_rows_on_it(lab):
    lab.width = 0.2
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert len(lab.jobs) == 6
    assert [kind for kind, _ in lab.doubts] == ["fp32"] * 2 + ["memory"] * 4
    assert row.disturbed.startswith("the fp32 ceiling was disturbed: its interval is 17 % wide")


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
    assert (row.disturbed, [kind for kind, _ in lab.doubts]) == ("", ["fp32"])
    assert row.roofline.roofline_pct == pytest.approx(100 * 5 / 9.5)


def test_a_ceiling_of_fp32_below_that_of_fp64_is_taken_twice(lab, registry):
    job = msgspec.structs.replace(JOB, problems=("gemm/m1024n1024k1024/f64/NN",))
    lab.ceilings.apply(job, [timed("gemm/numpy.matmul", 2**31 / 5e10, job.problems[0], numerics="fp64")])
    lab.rates["fma"] = 8e10
    (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
    assert [reason for _, reason in lab.doubts] == ["below that of fp64"] * 2
    assert row.roofline.roofline_pct == pytest.approx(100 * 5 / 8)


def test_a_ceiling_has_one_value_in_a_run_unless_a_later_one_is_higher_than_noise_explains(lab):
    rates = []
    for rate in (1e11, 9.3e10, 1.015e11, 1.05e11):
        lab.now, lab.rates["fma"] = lab.now + 100, rate
        (row,) = lab.apply(numpy_matmul=2**31 / 5e10)
        rates.append(row.roofline.ceiling_gflop_per_s)
    assert rates == [pytest.approx(each) for each in (100, 100, 100, 105)]
    assert lab.doubts == [("fp32", "a later one of this run is 5 % higher")]
