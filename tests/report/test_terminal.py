"""What tables gain on a terminal."""

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bench.report.terminal import BAR_WIDTH, bar, is_wanted, with_bars, with_best


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


def test_the_fastest_kernel_is_bold_and_a_limit_is_not():
    lines, cells = ["head", "----", "limit: cpu compute", "a", "b"], [["limit: cpu compute"], ["a"], ["b"]]
    assert with_best(lines, cells) == ["head", "----", "limit: cpu compute", "\033[1ma\033[0m", "b"]


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
