"""Tables and paragraphs that fit the width of a terminal, printed at once or page by page."""

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kernelmark.bench.record import store as stores
from kernelmark.bench.report import show
from kernelmark.bench.report.layout import (
    BAR_WIDTH,
    NARROWEST,
    PIPE,
    TERMINAL,
    TableColumn,
    bar,
    is_wanted,
    paragraph,
    table,
    width,
    with_bars,
    wrapped,
)
from kernelmark.bench.report.show import run_end, run_page
from kernelmark.bench.report.tables import run_table
from support.rows import ceilings, put, result, varied

NAMES = [["gemm/openblas.omatcopy", "1.00 ms", "ci, 7"], ["gemm/a.b", "12.3 us", "time, 12"]]
COLUMNS = (TableColumn("kernel"), TableColumn("time", "right"), TableColumn("by", spare=1))
PROBLEM = "conv/n8c64h56w56k64r3s3pad1stride2/f32/nchw/fprop"


@pytest.fixture
def columns(monkeypatch):
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


def test_what_fits_is_shown_whole_and_what_is_empty_throughout_is_left_out(columns):
    columns(80)
    assert table(COLUMNS, []) == ""
    empty = [[*row, ""] for row in NAMES]
    assert table((*COLUMNS, TableColumn("scratch")), empty).splitlines() == [
        "kernel                     time  by",
        "----------------------  -------  --------",
        "gemm/openblas.omatcopy  1.00 ms  ci, 7",
        "gemm/a.b                12.3 us  time, 12",
    ]


def test_the_spare_column_with_the_highest_number_goes_first_and_is_named_below(columns):
    columns(68)
    heads = (TableColumn("A"), TableColumn("B", spare=1), TableColumn("C", spare=3), TableColumn("D", spare=2))
    lines = table(heads, [["a" * 30, "b" * 15, "c" * 9, "d" * 9]]).splitlines()
    assert lines[0].split() == ["A", "B", "D"]
    assert lines[-1] == "  left out to fit: C (COLUMNS=69 or a wider terminal shows all)"


def test_a_text_is_wrapped_between_words_before_a_column_is_left_out(columns):
    columns(44)
    heads = (TableColumn("kernel"), TableColumn("why", wraps=12), TableColumn("by", spare=1))
    lines = table(heads, [["gemm/a.b", "no such thing, and nothing else either", "x" * 8]]).splitlines()
    assert lines[2:] == ["gemm/a.b  no such thing, and        xxxxxxxx", "          nothing else either"]


def test_an_id_that_does_not_fit_stands_whole_above_its_row(columns):
    columns(50)
    rows = [[PROBLEM, "1.00 ms"], [PROBLEM, "2.00 ms"], ["copy/m1n1/f32", "3.00 ms"]]
    assert table((TableColumn("problem"), TableColumn("time")), rows).splitlines() == [
        "problem",
        "  time",
        "  -------",
        PROBLEM,
        "  1.00 ms",
        "  2.00 ms",
        "copy/m1n1/f32",
        "  3.00 ms",
    ]


def test_a_titled_table_leaves_its_columns_and_moves_the_first(columns):
    columns(55)
    heads = (TableColumn("kernel"), TableColumn("time"), TableColumn("rate", spare=1))
    rows = [["gemm/a.b@T=16,S=1,BM=128,BN=64,BK=8", "1.00 ms", "12.3 GFLOP/s"]]
    assert table(heads, rows, titled=True).splitlines()[-1] == "  1.00 ms  12.3 GFLOP/s"


def test_a_text_narrower_than_reads_well_is_better_than_one_that_does_not_fit_and_all_of_the_best_row_is_bold(columns):
    columns(40)
    heads = (TableColumn("suite"), TableColumn("title", wraps=38))
    rows = [["alexnet", "AlexNet, forward and backward, of 2012"], ["b", "ten"]]
    lines = table(heads, rows, "terminal", best=0).splitlines()
    assert max(len(line.removeprefix("\033[1m").removesuffix("\033[0m")) for line in lines) <= 40
    assert [line.startswith("\033[1m") for line in lines[2:]] == [True, True, False]


def test_a_terminal_of_any_width_shows_a_table_at_its_natural_width(columns):
    rows = [["x", "one two three four five six seven"]]
    shown = []
    for wide in (200, 10**30):
        columns(wide)
        shown.append(table((TableColumn("a"), TableColumn("b", wraps=10)), rows))
    assert shown[0] == shown[1] == "a  b\n-  ---------------------------------\nx  one two three four five six seven"


def test_files_have_no_width(columns):
    columns(40)
    heads = (TableColumn("a"), TableColumn("b", wraps=10))
    shown = table(heads, [["x", "one two three four five six | seven eight nine"]], "github")
    assert shown.splitlines()[2] == "| x | one two three four five six \\| seven eight nine |"
    assert paragraph("word " * 20, "  ", style="github") == "  " + "word " * 20


def test_a_paragraph_hangs_and_breaks_no_word_and_no_command_that_fits(columns):
    columns(40)
    text = f"unsupported: {PROBLEM} takes no such thing; `kernelmark run smoke --processes 5` does"
    lines = paragraph(text, "  ").splitlines()
    assert lines[0] == "  unsupported:"
    assert lines[1] == f"    {PROBLEM}"
    assert "    `kernelmark run smoke --processes 5`" in lines
    assert " ".join(" ".join(lines).split()) == text
    assert max(map(len, wrapped("`kernelmark run smoke --processes 5 --db x`", 20))) <= 20


@pytest.mark.parametrize("style", ["simple", "terminal"])
def test_control_characters_of_cells_and_paragraphs_are_written_out(columns, style):
    columns(80)
    evil = "a\x1b[2Jb\nc"
    shown = table((TableColumn("a"), TableColumn("b", wraps=10)), [[evil, evil]], style) + "\n" + paragraph(evil)
    assert shown.splitlines() == [
        r"a            b",
        r"-----------  -----------",
        r"a\x1b[2Jb c  a\x1b[2Jb c",
        r"a\x1b[2Jb c",
    ]


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


def test_bars_stand_behind_the_numbers_of_their_column_unless_it_is_empty():
    assert with_bars([["a", "50.0"], ["b", ""]], 1) == [["a", "50.0 ████    "], ["b", " " * 9]]
    assert with_bars([["a", ""], ["b", ""]], 1) == [["a", ""], ["b", ""]]


@pytest.mark.parametrize(("columns", "bars"), [("200", True), ("50", False)])
def test_the_fastest_kernel_is_bold_a_bound_is_not_and_bars_are_left_out_where_they_do_not_fit(
    monkeypatch, columns, bars
):
    monkeypatch.setenv("COLUMNS", columns)
    bounded = {"roofline_pct": 50.0, "bound_by": "compute", "ceiling_gflop_per_s": 24.0, "gflop_per_s": 12.0}
    rows = [result(kernel=f"gemm/a.{name}", time_s_median=t, **bounded) for name, t in (("b", 1e-3), ("c", 2e-3))]
    *_, bound, fastest, other = run_table(rows, TERMINAL).splitlines()
    assert bound.startswith("bound: cpu compute")
    assert fastest.startswith("\033[1ma.b ")
    assert fastest.endswith("\033[0m")
    assert other.startswith("a.c ")
    assert ("████" in fastest) is bars


def test_a_kernel_without_a_rank_is_not_bold_and_the_reason_stands_below_where_it_is_first():
    times = {"b": 2e-3, "c": 1e-3, "x_colmajor": 3e-3}
    rows = [result(kernel=f"gemm/a.{name}", time_s_median=time_s) for name, time_s in times.items()]
    assert "not ranked" not in run_table(rows)
    rows.append(result(kernel="gemm/a.d_colmajor", time_s_median=0.5e-3))
    *_, first, second, third, fourth, note = run_table(rows, TERMINAL).splitlines()
    assert [line.startswith("\033[1m") for line in (first, second, third, fourth)] == [False, True, False, False]
    assert note == "  not ranked: a.d_colmajor reads column-major operands, so computes a different product"
    assert "not ranked" not in run_table(rows[2:])


@pytest.mark.parametrize(("columns", "characters"), [("72", 72), ("3", NARROWEST), ("", PIPE), ("0", PIPE)])
def test_the_width_is_that_of_the_terminal_and_without_one_that_of_a_pipe(monkeypatch, columns, characters):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert width() == characters


@pytest.mark.parametrize(("variables", "plain"), [({}, False), ({"NO_COLOR": "1"}, True)])
def test_show_on_a_terminal_differs_from_a_pipe_unless_no_colour_is_wanted(called, store, variables, plain):
    varied(store)
    store.close()
    words = ("show", "--db", str(store.path))
    env = {**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", **variables}
    shown = on_a_terminal([sys.executable, str(Path(sys.executable).with_name("kernelmark")), *words], env)
    assert ("\033[1m" in shown, shown == called(*words).out) == (not plain, plain)


def on_a_terminal(words, env):
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env):
        os.close(theirs)
        parts = []
        with suppress(OSError):  # reading fails once no process holds the terminal's other end
            while part := os.read(ours, 65536):
                parts.append(part)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.fixture
def filled(begun, monkeypatch):
    """Return a function that fills a run with N problems, three to a page."""
    monkeypatch.setattr(show, "PAGE", 3)
    monkeypatch.setattr(stores, "default_store", lambda: begun.path)

    def fill(count):
        for m in range(count):
            put(begun, f"copy/m{m}n1/f32", "copy/a.b")
        return begun

    return fill


def shown(store, page=1):
    return [paragraph for paragraph in run_page(store, "r1", page) if paragraph]


def test_a_page_or_less_is_shown_whole_with_a_verdict_where_two_kernels_have_times(filled, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    store = filled(3)
    *tables, note, tally = shown(store)
    assert [table.split()[0] for table in tables] == [f"copy/m{m}n1/f32" for m in range(3)]
    assert note.startswith("one process cannot show")
    assert max(map(len, note.splitlines())) <= 40
    assert tally == "3 rows: 3 ok"
    put(store, "copy/m0n1/f32", "copy/a.late")
    first, *_, verdict, tally = shown(store)
    assert "a.late" in first
    assert verdict.startswith("Verdict: ")


@pytest.mark.parametrize(
    ("page", "problems", "where"),
    [
        (1, (0, 1, 2), "page 1 of 3; the next: `kernelmark show r1 --page 2`."),
        (2, (3, 4, 5), "page 2 of 3; the next: `kernelmark show r1 --page 3`."),
        (3, (6,), "page 3 of 3; the first: `kernelmark show r1 --page 1`."),
    ],
)
def test_more_is_shown_by_the_page_with_what_all_rows_come_to(filled, page, problems, where):
    *tables, said, totals, _, tally = shown(filled(7), page)
    assert [table.split()[0] for table in tables] == [f"copy/m{m}n1/f32" for m in problems]
    assert said.startswith(where)
    assert totals.splitlines()[-1].split() == ["copy/a.b", "7", "7"]
    assert tally == "7 rows: 7 ok"


def test_a_page_that_is_not_there_is_refused_and_a_run_without_rows_says_so(filled, complaint):
    assert shown(filled(0)) == ["no rows"]
    store = filled(4)
    assert complaint(lambda: shown(store, 3)) == "page 3: run r1 has 2; --page 1 shows the first"


def test_a_run_with_too_many_rows_for_a_verdict_keeps_its_ceilings(filled, monkeypatch):
    monkeypatch.setattr(show, "MOST_JUDGED", 1)
    store = filled(2)
    ceilings(store)
    text = "\n".join(run_end(store, "r1"))
    assert "fma/some.fma" in text
    assert "no verdict is printed for 2 rows; `kernelmark report r1 --out DIR` writes one" in text
