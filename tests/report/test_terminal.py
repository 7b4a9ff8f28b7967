"""What tables gain on a terminal."""

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kernelmark.bench.report.layout import BAR_WIDTH, NARROWEST, PIPE, TERMINAL, bar, is_wanted, width, with_bars
from kernelmark.bench.report.tables import run_table
from support.rows import result

TIMES = (("b", 1e-3), ("c", 2e-3))


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding="utf-8"):
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal("ascii"), {}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_a_pipe_and_who_asks_for_no_colour_get_plain_text(stream, environ, wanted):
    assert is_wanted(stream, environ) is wanted


@pytest.mark.parametrize(
    ("percent", "blocks"), [(0, ""), (50, "████"), (100, "████████"), (130, "████████"), (1.6, "▏"), (43.75, "███▌")]
)
def test_a_bar_is_full_at_a_hundred_per_cent_and_always_as_wide(percent, blocks):
    assert bar(percent) == blocks.ljust(BAR_WIDTH)


def test_bars_stand_behind_the_numbers_of_their_column():
    assert with_bars([["a", "50.0"], ["b", ""]], 1) == [["a", "50.0 ████    "], ["b", " " * 9]]


def test_an_empty_column_stays_empty():
    assert with_bars([["a", ""], ["b", ""]], 1) == [["a", ""], ["b", ""]]


def test_the_fastest_kernel_is_bold_and_a_bound_is_not():
    bounded = {"roofline_pct": 50.0, "bound_by": "compute", "ceiling_gflop_per_s": 24.0, "gflop_per_s": 12.0}
    rows = [result(kernel=f"gemm/a.{name}", time_s_median=time_s, **bounded) for name, time_s in TIMES]
    *_, bound, fastest, other = run_table(rows, TERMINAL).splitlines()
    assert bound.startswith("bound: cpu compute")
    assert fastest.startswith("\033[1ma.b ")
    assert fastest.endswith("\033[0m")
    assert other.startswith("a.c ")


@pytest.mark.parametrize(("columns", "bars"), [("200", True), ("40", False)])
def test_bars_are_left_out_where_they_do_not_fit(monkeypatch, columns, bars):
    monkeypatch.setenv("COLUMNS", columns)
    row = result(time_s_median=1e-3, gflop_per_s=12.0, roofline_pct=50.0, bound_by="compute")
    assert ("████" in run_table([row], TERMINAL)) is bars


@pytest.mark.parametrize(("columns", "found"), [("72", 72), ("3", NARROWEST), ("", PIPE), ("0", PIPE)])
def test_the_width_is_that_of_the_terminal_and_without_one_that_of_a_pipe(monkeypatch, columns, found):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert width() == found


@pytest.mark.parametrize(("variables", "plain"), [({}, False), ({"NO_COLOR": "1"}, True)])
def test_show_on_a_terminal_differs_from_a_pipe_unless_no_colour_is_wanted(kernelmark, tmp_path, variables, plain):
    kernelmark(
        "run",
        "gemm/m33n31k17/f32/NT",
        "--kernels",
        "gemm/numpy.*",
        "--mode",
        "hot",
        "--max-time",
        "0.01",
        "--no-ceilings",
    )
    piped = kernelmark("show").stdout
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "TERM": "xterm", "PYTHONUTF8": "1", **variables}
    shown = on_a_terminal([sys.executable, str(Path(sys.executable).with_name("kernelmark")), "show"], env)
    assert ("\033[1m" in shown, shown == piped) == (not plain, plain)


def on_a_terminal(words, env):
    """What a program writes to a terminal, line ends as in a pipe."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env):
        os.close(theirs)
        parts = []
        with suppress(OSError):  # reading fails once no process holds the terminal's other end
            while part := os.read(ours, 65536):
                parts.append(part)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")
