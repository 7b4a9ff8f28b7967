"""How numbers and names are written."""

import math

import pytest

from kernelmark.bench.record.result import Result
from kernelmark.bench.report.format import (
    count,
    digits,
    factor,
    figure_names,
    pace,
    rate,
    rounded,
    seconds,
    short,
    size,
    spread,
    time,
)


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


def test_there_is_no_spread_without_a_whole_interval():
    assert spread(1.0, 0.5, 2.0) == "-50.0 +100.0 %"
    for unknown in ((None, 0.5, 2.0), (1.0, None, 2.0), (1.0, 0.5, None), (1.0, math.nan, 2.0)):
        assert spread(*unknown) == ""


def test_an_interval_stands_in_brackets_where_it_is_known():
    assert time(12.34e-3, 12e-3, 0.999) == "12.3 ms [12.0 ms, 999 ms]"
    assert time(12.34e-3, None, 13e-3) == "12.3 ms"
    assert factor(1.2345, 1.2, 1300.0) == "1.23x [1.2, 1.3e+03]"
    assert factor(0.9996, 0.97, 1.03) == "1.00x [0.97, 1.03]"
    assert factor(2.0, math.nan, math.nan) == "2x"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.0, "0"), (0.01234, "0.0123"), (5.0, "5.00"), (999.9, "1000"), (12345.6, "12346"), (math.inf, "")],
)
def test_three_digits_are_written_without_an_exponent(value, text):
    assert digits(value) == text


@pytest.mark.parametrize(
    ("rates", "text"), [((12.34, 5.0), "12.3 GFLOP/s"), ((None, 5.0), "5.00 GB/s"), ((None, None), "")]
)
def test_a_rate_is_of_what_is_computed_or_else_of_what_is_moved(rates, text):
    identity = dict.fromkeys(("run_id", "suite", "op", "problem", "kernel", "provider", "device", "device_name"), "")
    kind = dict.fromkeys(("mode", "dtype", "numerics", "layout", "reason"), "")
    row = Result(**identity, **kind, threads=1, status="ok", gflop_per_s=rates[0], gbyte_per_s=rates[1])
    assert rate(row) == text


def test_one_is_singular_and_all_else_is_plural():
    assert [count(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


def test_a_kernel_from_elsewhere_without_an_operation_keeps_its_name():
    assert [short("gemm/numpy.matmul"), short("elsewhere")] == ["numpy.matmul", "elsewhere"]


@pytest.mark.parametrize(
    ("speed", "words"),
    [
        (0.986, "1.4 % slower than"),
        (0.5, "100 % slower than"),
        (1.004, "0.4 % faster than"),
        (1.24, "24 % faster than"),
        (2.31, "2.31x as fast as"),
        (0.0, "inf % slower than"),
    ],
)
def test_a_pace_says_how_much_longer_or_how_much_faster(speed, words):
    assert pace(speed) == words


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((473.21, 466.1, 488.3), ("473", "[466, 488]")),
        ((12.34, 8.1, 40.2), ("12", "[8, 40]")),
        ((1.4444, 1.4438, 1.4452), ("1.444", "[1.444, 1.445]")),
        ((8692.0, 8534.0, 9813.0), ("8692", "[8534, 9813]")),
        ((12.34, None, 13.0), ("12.3", "")),
        ((12.34, 12.0, float("inf")), ("12.3", "")),
    ],
)
def test_an_interval_is_rounded_to_what_its_width_justifies(numbers, texts):
    assert rounded(*numbers) == texts


def test_the_smallest_and_the_largest_numbers_are_written():
    assert float(rounded(5e-324, 0.0, 1e-323)[0]) == 5e-324
    assert float(rounded(1e308, -1.7e308, 1.7e308)[0]) == 1e308


def test_a_figure_names_long_tiles_by_what_is_not_alike_in_them() -> None:
    tile = "gemm/cuda.streamk@BM=128,BN=128,BK={},WM=64,WN=64,STAGES=3"
    names = figure_names(["gemm/cuda.streamk", tile.format(8), tile.format(16), "gemm/cuda.splitk@BK=16"])
    assert list(names.values()) == ["cuda.streamk", "cuda.streamk@BK=8…", "cuda.streamk@BK=16…", "cuda.splitk@BK=16"]
