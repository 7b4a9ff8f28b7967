"""Tables for people."""

import pytest

from bench.record.result import Result
from bench.report.tables import run_table, seconds, size, spread, summary


def result(kernel="gemm/a.b", **values):
    identity = {"run_id": "r", "suite": "s", "op": "gemm", "problem": "gemm/m8n8k8/f32/NT", "kernel": kernel}
    device = {"provider": "a", "device": "cpu", "device_name": "d", "mode": "cold", "threads": 1}
    kind = {"dtype": "f32", "numerics": "fp32", "layout": "NT", "status": "ok", "reason": ""}
    return Result(**{**identity, **device, **kind, **values})


def timed(kernel, median=1e-3, **values):
    rates = {"time_s_median": median, "gflop_per_s": 12.34, "samples": 7, "stopped_by": "ci"}
    return result(kernel, **{**rates, **values})


def lines(*results, style="simple"):
    return run_table(results, style).splitlines()


def test_the_fastest_kernel_stands_first():
    table = lines(timed("gemm/a.first", 2e-3), timed("gemm/a.second", 1e-3))
    assert [line.split()[0] for line in table[-2:]] == ["a.second", "a.first"]


def test_columns_that_are_empty_throughout_are_left_out():
    assert lines(timed("gemm/a.b"))[1].split() == ["kernel", "time", "GFLOP/s", "by"]


def test_a_column_that_one_kernel_fills_stays():
    table = lines(timed("gemm/a.b", scratch_bytes=2_000_000), timed("gemm/a.c"))
    assert "scratch" in table[1]
    assert "2.00 MB" in table[3]


def test_a_row_holds_time_interval_rate_speedup_and_why_it_stopped():
    r = timed(
        "gemm/a.b",
        time_s_ci95_low=0.99e-3,
        time_s_ci95_high=1.02e-3,
        gbyte_per_s=5.0,
        speedup=1.234,
        speedup_ci95_low=1.2,
        speedup_ci95_high=1.3,
    )
    (cells,) = lines(r)[3:]
    assert cells.split("  ")[0] == "a.b"
    for cell in ("1.00 ms", "-1.0 +2.0 %", "12.3", "5.00", "1.23x [1.2, 1.3]", "ci, 7"):
        assert cell in cells


def test_a_speedup_without_an_interval_is_shown_without_brackets():
    assert "2x  " in lines(timed("gemm/a.b", speedup=2.0))[3]


def test_the_baseline_is_named_in_the_title_and_marked_in_its_row():
    table = lines(timed("gemm/a.base", baseline="gemm/a.base"), timed("gemm/a.b", baseline="gemm/a.base", speedup=2.0))
    assert table[0] == "gemm/m8n8k8/f32/NT   cold, 1 thread; speedup against gemm/a.base"
    assert "baseline" in next(line for line in table if line.startswith("a.base"))


@pytest.mark.parametrize("status", ["unsupported", "wrong", "oom", "timeout", "crashed", "failed", "mistrusted"])
def test_what_is_not_ok_is_named_with_its_reason_below_the_table(status):
    table = lines(timed("gemm/a.b"), result("gemm/a.bad", status=status, reason="because"))
    assert table[-1] == f"  {status}: gemm/a.bad: because"


def test_a_problem_without_a_time_has_its_reasons_alone():
    assert lines(result(status="wrong", reason="because"))[1:] == ["  wrong: gemm/a.b: because"]


def test_what_was_only_verified_is_right_with_error_and_bound():
    r = result(mode="verify", max_error=1.25e-7, error_bound=2e-6)
    assert lines(r)[-1] == "  right: gemm/a.b (largest error 1.2e-07, bound 2e-06)"


def test_each_problem_and_mode_has_a_table_of_its_own():
    tables = run_table(
        [timed("gemm/a.b"), timed("gemm/a.b", problem="gemm/m9n8k8/f32/NT"), timed("gemm/a.b", mode="hot")]
    )
    assert [table.split("   ")[0] for table in tables.split("\n\n")] == [
        "gemm/m8n8k8/f32/NT",
        "gemm/m9n8k8/f32/NT",
        "gemm/m8n8k8/f32/NT",
    ]


def test_kernels_are_told_apart_by_thread_counts_where_there_are_several():
    table = "\n".join(lines(timed("gemm/a.b"), timed("gemm/a.b", threads=4)))
    assert "a.b (t1)" in table
    assert "a.b (t4)" in table
    assert "4 threads" in table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (2.0, "2.00 s"),
        (123.4, "123 s"),
        (12.34e-3, "12.3 ms"),
        (1.0e-3, "1.00 ms"),
        (999e-6, "999 us"),
        (1.5e-6, "1.50 us"),
        (37e-9, "37.0 ns"),
        (5e-10, "0.500 ns"),
    ],
)
def test_seconds_have_three_digits_and_a_prefix(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0, ""), (256, "256 B"), (1000, "1.00 kB"), (219_150_336, "219 MB"), (2**31, "2.15 GB")],
)
def test_sizes_have_decimal_prefixes(value, text):
    assert size(value) == text


@pytest.mark.parametrize("missing", ["time_s_median", "time_s_ci95_low", "time_s_ci95_high"])
def test_there_is_no_spread_without_a_whole_interval(missing):
    known = {"time_s_median": 1.0, "time_s_ci95_low": 0.5, "time_s_ci95_high": 2.0}
    assert spread(result(**known)) == "-50.0 +100.0 %"
    assert spread(result(**{**known, missing: None})) == ""


def test_the_summary_counts_rows_by_status():
    rows = [result(), result(), result(status="wrong")]
    assert summary(rows) == "3 rows: 2 ok, 1 wrong"
