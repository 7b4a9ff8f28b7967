"""A row: made from a measurement, and empty where nothing is known."""

import math

import msgspec
import pytest

from kernelmark.bench.measure.measurement import Measurement, Roofline
from kernelmark.bench.measure.stats import BaselineRatio, Interval
from kernelmark.bench.plan.case import Budget, Job, PlannedJob, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.record.result import COLUMNS, Result, make_result, row

TIMES = [name for name in COLUMNS if name.startswith("time_s_")]
RATES = ["gflop_per_s", "gbyte_per_s", "roofline_pct", "speedup", "speedup_ci95_low", "speedup_ci95_high"]


@pytest.fixture
def made(registry):
    def of(problem="gemm/m10n20k30/f32/NT", mode=Mode.COLD, kind=Measurement, **measured):
        problem = registry.problem(problem)
        kernel = next(k for k in registry.kernels.values() if k.op == problem.op)
        job = Job((problem.id,), (kernel.id,), mode, (), 5, Budget(), 2, baseline="gemm/x.base")
        planned = PlannedJob(job, WorkerKey("cpu", 2), "suite", 7)
        samples = {"samples": [2e-6, 1e-6, 6e-6], "interval": Interval(2e-6, 1e-6, 6e-6)}
        found = kind(**{"kernel": kernel.id, **samples, **measured})
        return make_result(found, kernel, problem, planned, "r", "c")

    return of


def test_times_are_those_of_the_samples_in_seconds(made):
    r = made()
    assert (r.samples, r.time_s_median, r.time_s_min) == (3, 2e-6, 1e-6)
    assert r.time_s_mean == pytest.approx(3e-6)
    assert r.time_s_std == pytest.approx(math.sqrt(7) * 1e-6)  # (1 + 4 + 9) / (3 - 1) = 7
    assert (r.time_s_ci95_low, r.time_s_ci95_high) == (1e-6, 6e-6)


def test_rates_are_nominal_flop_and_compulsory_bytes_over_the_median(made):
    r = made()
    assert r.gflop_per_s == pytest.approx(2 * 10 * 20 * 30 / 2e-6 / 1e9)
    assert r.gbyte_per_s == pytest.approx(4 * (10 * 30 + 20 * 30 + 10 * 20) / 2e-6 / 1e9)


@pytest.mark.parametrize("problem", ["copy/m10n20/f32", "transpose/m10n20/f32/in", "transpose/m10n20/f32/out"])
def test_what_only_moves_data_has_bytes_and_no_flop(made, problem):
    r = made(problem)
    assert r.gflop_per_s is None
    assert r.gbyte_per_s == pytest.approx(2 * 4 * 10 * 20 / 2e-6 / 1e9)


def test_a_speedup_comes_with_its_interval(made):
    r = made(ratio=BaselineRatio(2.0, 1.5, 2.5, "paired"))
    assert (r.speedup, r.speedup_ci95_low, r.speedup_ci95_high, r.baseline) == (2.0, 1.5, 2.5, "gemm/x.base")


@pytest.mark.parametrize("status", ["unsupported", "wrong", "oom", "timeout", "crashed", "failed", "mistrusted"])
def test_what_is_not_ok_has_neither_times_nor_rates_nor_speedup(made, status):
    r = made(status=status, reason="because", ratio=BaselineRatio(2.0, 1.5, 2.5, "paired"))
    assert (r.status, r.reason, r.samples) == (status, "because", 0)
    assert [name for name in (*TIMES, *RATES) if getattr(r, name) is not None] == []


def test_what_was_only_verified_is_ok_without_a_time(made):
    r = made(mode=Mode.VERIFY, samples=[], interval=None, max_error=0.0, error_bound=1e-6)
    assert (r.mode, r.status, r.samples, r.max_error, r.error_bound) == ("verify", "ok", 0, 0.0, 1e-6)
    assert [name for name in (*TIMES, *RATES) if getattr(r, name) is not None] == []


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_what_is_not_a_number_is_empty(made, unknown):
    r = made(
        interval=Interval(2e-6, unknown, unknown),
        ratio=BaselineRatio(2.0, unknown, unknown, "paired"),
        max_error=unknown,
        error_bound=unknown,
    )
    names = ["time_s_ci95_low", "time_s_ci95_high", "speedup_ci95_low", "speedup_ci95_high", "max_error", "error_bound"]
    assert [name for name in names if getattr(r, name) is not None] == []
    assert (r.time_s_median, r.speedup) == (2e-6, 2.0)


def test_one_sample_has_no_standard_deviation(made):
    assert made(samples=[2e-6]).time_s_std is None


def test_what_nobody_measured_is_empty_and_never_zero(made):
    r = made()
    unknown = ["roofline_pct", "clock_mhz", "temperature_c", "power_w", "energy_j", "scratch_bytes", "call_overhead_s"]
    assert [getattr(r, name) for name in unknown] == [None] * len(unknown)


def test_a_row_tells_its_suite_seed_count_and_device_state(made):
    r = made(state={"clock_mhz": 3000.0}, scratch_bytes=0, device_name="cpu x", threads=2)
    assert (r.suite, r.seed, r.count, r.clock_mhz, r.scratch_bytes) == ("suite", 5, 7, 3000.0, 0)
    assert (r.dtype, r.layout, r.threads, r.run_id, r.git_commit) == ("f32", "NT", 2, "r", "c")


def test_a_field_with_the_name_of_a_column_is_that_column(made):
    class Extended(Measurement):
        wire_bytes: int | None = None

    r = made(kind=Extended, wire_bytes=12, job="j", threads_used=3, tunables="{}")
    assert (r.wire_bytes, r.job, r.threads_used, r.tunables) == (12, "j", 3, "{}")


def test_the_roofline_reaches_the_row_by_the_names_of_the_columns(made):
    r = made(roofline=Roofline(50.0, "memory", None, 12.0))
    assert (r.roofline_pct, r.bound_by, r.ceiling_gbyte_per_s) == (50.0, "memory", 12.0)
    assert (r.ceiling_gflop_per_s, r.roofline_pct_cycles) == (None, None)


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.VERIFY])
@pytest.mark.parametrize("problem", ["gemm/m1n1k1/f32/NT", "transpose/m1n2/f32/in"])
def test_every_column_has_the_type_that_it_declares(made, mode, problem):
    values = {} if mode.does.times else {"samples": [], "interval": None}
    r = made(problem, mode, **values)
    assert msgspec.convert(msgspec.to_builtins(r), Result) == r


def test_dimensions_follow_the_columns(made):
    assert list(row(made(), {"m": 10, "place": "in"})) == [*COLUMNS, "m", "place"]


def test_the_case_of_a_row_is_that_of_the_plan(made):
    r = made(threads=2)
    assert r.case == f"{r.kernel} {r.problem} cold t2"
    assert Result(**{**row(r, {}), "isa": "avx2"}).case.endswith(" avx2")
