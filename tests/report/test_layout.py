"""Tables and paragraphs within a width."""

import pytest

from kernelmark.bench.report.layout import TableColumn, paragraph, table, wrapped

NAMES = [["gemm/openblas.omatcopy", "1.00 ms", "ci, 7"], ["gemm/a.b", "12.3 us", "time, 12"]]
COLUMNS = (TableColumn("kernel"), TableColumn("time", "right"), TableColumn("by", spare=1))
PROBLEM = "conv/n8c64h56w56k64r3s3pad1stride2/f32/nchw/fprop"


@pytest.fixture
def columns(monkeypatch):
    """Set the width of the terminal."""
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


def test_what_fits_is_shown_whole_and_what_is_empty_throughout_is_left_out(columns):
    columns(80)
    empty = [[*row, ""] for row in NAMES]
    assert table((*COLUMNS, TableColumn("scratch")), empty).splitlines() == [
        "kernel                     time  by",
        "----------------------  -------  --------",
        "gemm/openblas.omatcopy  1.00 ms  ci, 7",
        "gemm/a.b                12.3 us  time, 12",
    ]


def test_a_table_without_rows_is_nothing():
    assert table(COLUMNS, []) == ""


def test_the_spare_column_with_the_highest_number_goes_first_and_is_named_below(columns):
    columns(68)
    rows = [["a" * 30, "b" * 15, "c" * 9, "d" * 9]]
    shown = table(
        (TableColumn("A"), TableColumn("B", spare=1), TableColumn("C", spare=3), TableColumn("D", spare=2)), rows
    )
    assert shown.splitlines()[0].split() == ["A", "B", "D"]
    assert shown.splitlines()[-1] == "  left out to fit: C (COLUMNS=69 or a wider terminal shows all)"


def test_a_text_is_wrapped_between_words_before_a_column_is_left_out(columns):
    columns(44)
    rows = [["gemm/a.b", "no such thing, and nothing else either", "x" * 8]]
    shown = table((TableColumn("kernel"), TableColumn("why", wraps=12), TableColumn("by", spare=1)), rows).splitlines()
    assert shown[2:] == [
        "gemm/a.b  no such thing, and        xxxxxxxx",
        "          nothing else either",
    ]


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
    rows = [["gemm/a.b@T=16,S=1,BM=128,BN=64,BK=8", "1.00 ms", "12.3 GFLOP/s"]]
    shown = table(
        (TableColumn("kernel"), TableColumn("time"), TableColumn("rate", spare=1)), rows, titled=True
    ).splitlines()
    assert shown[-1] == "  1.00 ms  12.3 GFLOP/s"


def test_a_text_narrower_than_reads_well_is_better_than_one_that_does_not_fit(columns):
    columns(40)
    shown = table(
        (TableColumn("suite"), TableColumn("title", wraps=38)), [["alexnet", "AlexNet, forward and backward"]]
    )
    assert max(map(len, shown.splitlines())) <= 40


def test_every_line_of_the_best_row_is_bold(columns):
    columns(40)
    rows = [["a", "one two three four five six seven eight nine"], ["b", "ten"]]
    *_, first, second, last = table(
        (TableColumn("k"), TableColumn("why", wraps=10)), rows, "terminal", best=0
    ).splitlines()
    assert [line.startswith("\033[1m") for line in (first, second, last)] == [True, True, False]


def test_a_terminal_of_any_width_shows_a_table_at_its_natural_width(columns):
    rows = [["x", "one two three four five six seven"]]
    shown = []
    for width in (200, 10**30):
        columns(width)
        shown.append(table((TableColumn("a"), TableColumn("b", wraps=10)), rows))
    assert shown[0] == shown[1] == "a  b\n-  ---------------------------------\nx  one two three four five six seven"


def test_files_have_no_width(columns):
    columns(40)
    shown = table(
        (TableColumn("a"), TableColumn("b", wraps=10)),
        [["x", "one two three four five six | seven eight nine"]],
        "github",
    )
    assert shown.splitlines()[2] == "| x | one two three four five six \\| seven eight nine |"
    assert paragraph("word " * 20, "  ", style="github") == "  " + "word " * 20


def test_a_paragraph_hangs_and_breaks_no_word_and_no_command(columns):
    columns(40)
    text = f"unsupported: {PROBLEM} takes no such thing; `kernelmark run smoke --processes 5` does"
    lines = paragraph(text, "  ").splitlines()
    assert lines[0] == "  unsupported:"
    assert lines[1] == f"    {PROBLEM}"
    assert "    `kernelmark run smoke --processes 5`" in lines
    assert " ".join(" ".join(lines).split()) == text


def test_a_command_that_is_longer_than_a_line_is_wrapped_too():
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
