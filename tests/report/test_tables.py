"""Tables for people, and how numbers and names are written."""

import math

import msgspec
import pytest

from kernelmark.bench.measure.measurement import Ceiling
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.records import KernelTotal
from kernelmark.bench.report import crossover, findings
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.tables import ceiling_table, run_table, scope_note, totals_table
from support.rows import result


def timed(kernel, median=1e-3, **values):
    rates = {"time_s_median": median, "gflop_per_s": 12.34, "samples": 7, "stopped_by": "ci"}
    return result(kernel=kernel, **{**rates, **values})


def lines(*results, style="simple"):
    return run_table(results, style).splitlines()


def test_rows_hold_time_interval_rate_speedup_scratch_and_why_they_stopped_and_the_baseline_is_named():
    known = {"speedup": 1.234, "speedup_ci95_low": 1.2, "speedup_ci95_high": 1.3, "scratch_bytes": 2_000_000}
    known |= {"time_s_ci95_low": 0.99e-3, "time_s_ci95_high": 1.02e-3, "gbyte_per_s": 5.0}
    base = {"baseline": "gemm/a.base"}
    title, *_, row, baseline = lines(timed("gemm/a.b", **known, **base), timed("gemm/a.base", 2e-3, **base))
    assert title == "gemm/m8n8k8/f32/NT   cold, 1 thread; speedup against gemm/a.base"
    cells = [cell.strip() for cell in row.split("  ") if cell.strip()]
    assert cells == ["a.b", "1.00 ms", "-1.0 +2.0 %", "12.3", "5.00", "1.23x [1.2, 1.3]", "2.00 MB", "ci, 7"]
    assert baseline.split()[-3:] == ["baseline", "ci,", "7"]


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.OK}))
def test_what_is_not_ok_is_named_with_its_reason_below_the_table_or_alone(status):
    bad = result(kernel="gemm/a.bad", status=status, reason="because")
    assert lines(timed("gemm/a.b"), bad)[-1] == f"  {status}: gemm/a.bad: because"
    assert lines(bad)[1:] == [f"  {status}: gemm/a.bad: because"]


def test_what_was_only_verified_is_correct_with_error_and_bound():
    r = result(mode="verify", max_error=1.25e-7, error_bound=2e-6)
    assert lines(r)[-1] == "  correct: gemm/a.b (largest error 1.2e-07, bound 2e-06)"


def test_each_problem_mode_and_instruction_set_has_a_table_and_several_processes_are_in_its_title():
    kinds = ({}, {"problem": "gemm/m9n8k8/f32/NT"}, {"mode": "hot", "processes": 5}, {"isa": "avx2"})
    tables = run_table([*(timed("gemm/a.b", **kind) for kind in kinds), timed("gemm/a.c")]).split("\n\n")
    assert [table.splitlines()[0] for table in tables] == [
        "gemm/m8n8k8/f32/NT   cold, 1 thread",
        "gemm/m9n8k8/f32/NT   cold, 1 thread",
        "gemm/m8n8k8/f32/NT   hot, 1 thread, 5 processes",
        "gemm/m8n8k8/f32/NT   cold, 1 thread, avx2",
    ]
    assert "a.c" in tables[0]


def test_intervals_within_one_process_are_noted_and_no_others():
    within, between = timed("gemm/a.b", interval="within-process"), timed("gemm/a.b", interval="between-processes")
    assert scope_note([between, within]) == "one process cannot show run-to-run variation; --processes 5 does"
    assert scope_note([between, result(status="wrong")]) == ""


def test_names_stand_to_the_left_and_numbers_to_the_right_in_columns_of_one_width():
    rows = timed("gemm/a.first", 1e-3), timed("gemm/a.b", 123e-6, gflop_per_s=4.56, samples=12, stopped_by="time")
    assert lines(*rows)[1:] == [
        "kernel      time  GFLOP/s  by",
        "-------  -------  -------  --------",
        "a.b       123 us     4.56  time, 12",
        "a.first  1.00 ms     12.3  ci, 7",
    ]
    assert lines(*rows, style="github")[2:] == [
        "| kernel  |    time | GFLOP/s | by       |",
        "|:--------|--------:|--------:|:---------|",
        "| a.b     |  123 us |    4.56 | time, 12 |",
        "| a.first | 1.00 ms |    12.3 | ci, 7    |",
    ]


def test_the_title_has_the_threads_of_timed_rows_and_a_line_below_has_other_threads():
    crashed = result(kernel="gemm/a.b", threads=4, status="crashed", reason="SIGSEGV")
    title, *_, below = lines(timed("gemm/a.b", processes=5), timed("gemm/a.c", processes=3), crashed)
    assert title == "gemm/m8n8k8/f32/NT   cold, 1 thread, 3 processes"
    assert below == "  crashed: gemm/a.b (t4): SIGSEGV"
    title, below = lines(crashed)
    assert ("4 threads" in title, below) == (True, "  crashed: gemm/a.b: SIGSEGV")


def test_kernels_are_distinguished_by_thread_counts_where_there_are_several():
    title, *_, one, four = lines(timed("gemm/a.b"), timed("gemm/a.b", 2e-3, threads=4))
    assert ("4 threads" in title, one[:8], four[:8]) == (True, "a.b (t1)", "a.b (t4)")


def test_totals_have_a_line_for_each_kernel():
    totals = [
        KernelTotal("gemm/a.b", {"ok": 3, "wrong": 2}, 1.5, 0.5, 4.0, 61.2),
        KernelTotal("gemm/a.c", {"failed": 1}, None, None, None, None),
    ]
    good, bad = totals_table(totals).splitlines()[2:]
    assert good.split() == ["gemm/a.b", "5", "3", "2", "wrong", "1.5x", "[0.5,", "4]", "61.2"]
    assert bad.split() == ["gemm/a.c", "1", "0", "1", "failed"]


MEMORY = Ceiling("cpu", 2, "memory", "copy/m1n1/f32", "copy/a.b", "d", 2e10, 1.9e10, 2.2e10, 2.3e10, "2026")


def test_the_roofline_bound_stands_in_the_table_of_the_rows_it_bounds():
    bounded = {"roofline_pct": 50.0, "bound_by": "memory", "ceiling_gbyte_per_s": 20.0, "gbyte_per_s": 10.0}
    table = lines(timed("gemm/a.slow", 2e-3, **bounded), timed("gemm/a.fast", 1.5e-3))
    assert [line.split("  ")[0] for line in table[3:]] == ["bound: cpu memory", "a.fast", "a.slow"]
    bound = next(line for line in table if line.startswith("bound"))
    assert bound.split()[3:] == ["1.00", "ms", "24.7", "20.0", "100"]


def test_a_bound_of_arithmetic_stands_for_each_algorithm_with_what_it_executes():
    bounded = {"bound_by": "compute", "ceiling_gflop_per_s": 24.0}
    direct, winograd = {"executed_flop": 12_000_000, **bounded}, {"executed_flop": 4_800_000, **bounded}
    table = lines(
        timed("conv/a.direct", 1e-3, gflop_per_s=12.0, roofline_pct=50.0, **direct),
        timed("conv/a.winograd", 4e-4, gflop_per_s=30.0, roofline_pct=50.0, **winograd),
        timed("conv/a.also", 5e-4, gflop_per_s=24.0, roofline_pct=40.0, **winograd),
    )
    bounds = [line.split("  ")[0] for line in table if line.startswith("bound")]
    assert bounds == ["bound: cpu compute of a.winograd", "bound: cpu compute"]
    assert next(line for line in table if line.startswith(bounds[0])).split()[5:7] == ["200", "us"]


def test_the_mark_of_a_time_is_of_its_samples_and_that_of_a_share_of_its_ceiling():
    low = "the fp32 ceiling was disturbed: its interval is 20 % wide"
    bounded = {"roofline_pct": 50.0, "bound_by": "memory"}
    (line,) = [line for line in lines(timed("gemm/a.b", **bounded, disturbed=low)) if line.startswith("a.b")]
    assert "~50.0" in line.split()
    assert line.count("~") == 1
    assert noise_of([timed("gemm/a.b", **bounded, disturbed=low)]).badge == "clean"
    table = lines(
        timed("gemm/a.b", **bounded, disturbed=f"other processes used 0.50 CPUs during 40 % of the sampling; {low}")
    )
    (line,) = [line for line in table if line.startswith("a.b")]
    assert line.count("~") == 2
    assert table[-2:] == ["  ~ NOISY: 1 of 1 case was disturbed (other processes used 0.50 CPUs)", f"  ~ roof %: {low}"]


def test_in_place_by_name_only_is_marked_above_a_tenth_of_the_matrix():
    moved = {"gbyte_per_s": 2.0, "problem": "transpose/m10n100000/f32/in"}  # 2 MB moved in 1 ms: a matrix of 1 MB
    table = lines(
        timed("transpose/a.much", scratch_bytes=100_001, **moved),
        timed("transpose/a.few", scratch_bytes=99_999, **moved),
    )
    assert "100 kB*" in next(line for line in table if line.startswith("a.much"))
    assert "*" not in next(line for line in table if line.startswith("a.few"))
    assert table[-1] == "  * in place in name only, since scratch exceeds a tenth of the matrix: a.much"
    out = lines(timed("transpose/a.b", scratch_bytes=100_001, **moved | {"problem": "transpose/m10n100000/f32/out"}))
    assert "*" not in "".join(out)


def test_ceilings_are_shown_once_those_that_rows_stand_on_with_who_reached_them():
    lower = msgspec.structs.replace(MEMORY, rate=1e10, low=1e10, high=1e10, measured_at="2025")
    header, _, line = ceiling_table([(lower, ""), (MEMORY, "load"), (lower, "load")]).splitlines()
    assert header.split("  ")[0] == "device"
    assert "does not hold" not in header
    for cell in ("cpu", "memory", "10.0 GB/s", "+0.0 +0.0 %", "copy/a.b", "copy/m1n1/f32"):
        assert cell in line
    assert ceiling_table([(MEMORY, "surpassed")]).splitlines()[2].endswith("surpassed")


def test_numerics_are_a_column_where_there_are_several_also_of_bounds():
    bound = {"bound_by": "compute", "ceiling_gflop_per_s": 50.0, "roofline_pct": 25.0}
    both = [timed("gemm/a.b", numerics="fp32"), timed("gemm/a.c", numerics="3xtf32", **bound)]
    table = lines(*both)
    assert table[1].split()[:3] == ["kernel", "numerics", "time"]
    assert [line.split()[3] for line in table if "bound:" in line] == ["3xtf32"]
    assert [line.split()[1] for line in table if line.startswith("a.")] == ["fp32", "3xtf32"]
    assert "numerics" not in lines(both[0])[1]


def test_rates_of_a_table_have_one_unit_that_of_the_fastest():
    table = lines(timed("gemm/a.b", gflop_per_s=67_123.0), timed("gemm/a.c", 2e-3, gflop_per_s=490.0))
    assert table[1].split()[2] == "TFLOP/s"
    assert [line.split()[3] for line in table[3:]] == ["67.1", "0.490"]


SECONDS = {None: "", 2.0: "2.00 s", 123.4: "123 s", 12.34e-3: "12.3 ms", 1.0e-3: "1.00 ms", 999e-6: "999 us"}
SECONDS |= {1.5e-6: "1.50 us", 37e-9: "37.0 ns", 5e-10: "0.500 ns"}
PACES = {0.986: "1.4 % slower than", 0.5: "100 % slower than", 0.0: "inf % slower than"}
PACES |= {1.004: "0.4 % faster than", 1.24: "24 % faster than", 2.31: "2.31x as fast as"}


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (fmt.seconds, SECONDS),
        (fmt.size, {None: "", 0: "", 256: "256 B", 1000: "1.00 kB", 219_150_336: "219 MB", 2**31: "2.15 GB"}),
        (
            fmt.digits,
            {None: "", 0.0: "0", 0.01234: "0.0123", 5.0: "5.00", 999.9: "1000", 12345.6: "12346", math.inf: ""},
        ),
        (fmt.pace, PACES),
        (fmt.short, {"gemm/numpy.matmul": "numpy.matmul", "elsewhere": "elsewhere"}),
        (lambda number: fmt.count(number, "row"), {0: "0 rows", 1: "1 row", 2: "2 rows"}),
    ],
    ids=["seconds", "size", "digits", "pace", "short", "count"],
)
def test_numbers_and_names_are_written_with_three_digits_and_units(write, texts):
    assert {value: write(value) for value in texts} == texts


def test_there_is_no_spread_without_a_whole_interval():
    assert fmt.spread(1.0, 0.5, 2.0) == "-50.0 +100.0 %"
    for unknown in ((None, 0.5, 2.0), (1.0, None, 2.0), (1.0, 0.5, None), (1.0, math.nan, 2.0)):
        assert fmt.spread(*unknown) == ""


def test_an_interval_stands_in_brackets_where_it_is_known():
    assert fmt.time(12.34e-3, 12e-3, 0.999) == "12.3 ms [12.0 ms, 999 ms]"
    assert fmt.time(12.34e-3, None, 13e-3) == "12.3 ms"
    assert fmt.factor(1.2345, 1.2, 1300.0) == "1.23x [1.2, 1.3e+03]"
    assert fmt.factor(0.9996, 0.97, 1.03) == "1.00x [0.97, 1.03]"
    assert fmt.factor(2.0, math.nan, math.nan) == "2x"


def test_an_end_of_a_ratio_that_is_not_1_is_not_written_as_1():
    assert fmt.factor(1.004, 1.002, 1.006) == "1.00x [1.002, 1.01]"
    assert fmt.factor(1.0, 0.99996, 1.0) == "1.00x [0.99996, 1]"
    assert fmt.factor(1.0, 1 - 2**-53, 1 + 2**-52) == "1.00x [1, 1]", "errors of rounding"
    assert crossover._words(Ratio(1.1, 0.9999, 1.2)) == "tie [0.9999, 1.2]"
    assert findings._sure(Ratio(1.1, 1.002, 1.2)) == "[1.002, 1.2], faster"


def test_a_rate_is_of_what_is_computed_or_else_of_what_is_moved():
    texts = {(12.34, 5.0): "12.3 GFLOP/s", (None, 5.0): "5.00 GB/s", (None, None): ""}
    assert {(gf, gb): fmt.rate(result(gflop_per_s=gf, gbyte_per_s=gb)) for gf, gb in texts} == texts


def test_an_interval_is_rounded_to_what_its_width_justifies():
    texts = {
        (473.21, 466.1, 488.3): ("473", "[466, 488]"),
        (12.34, 8.1, 40.2): ("12", "[8, 40]"),
        (1.4444, 1.4438, 1.4452): ("1.444", "[1.444, 1.445]"),
        (8692.0, 8534.0, 9813.0): ("8692", "[8534, 9813]"),
        (12.34, None, 13.0): ("12.3", ""),
        (12.34, 12.0, math.inf): ("12.3", ""),
    }
    assert {numbers: fmt.rounded(*numbers) for numbers in texts} == texts
    assert float(fmt.rounded(5e-324, 0.0, 1e-323)[0]) == 5e-324
    assert float(fmt.rounded(1e308, -1.7e308, 1.7e308)[0]) == 1e308


def test_a_figure_names_long_tiles_by_what_is_not_alike_in_them() -> None:
    tile = "gemm/cuda.streamk@BM=128,BN=128,BK={},WM=64,WN=64,STAGES=3"
    names = fmt.figure_names(["gemm/cuda.streamk", tile.format(8), tile.format(16), "gemm/cuda.splitk@BK=16"])
    assert list(names.values()) == ["cuda.streamk", "cuda.streamk@BK=8…", "cuda.streamk@BK=16…", "cuda.splitk@BK=16"]
