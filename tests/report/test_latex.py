"""LaTeX tables: their structure, and compiled where pdflatex is there."""

import io
import os
import re
import shutil
import subprocess

import pytest

from bench.record.result import Result
from bench.record.store import Run
from bench.report.latex import COLUMN_MM, FLOAT_LINES, PREAMBLE, write_latex, write_latex_files
from bench.report.latex_list import PAGE_LINES
from bench.report.latex_text import comment, escape, unused

IDENTITY = {"run_id": "r", "provider": "a", "device": "cpu", "device_name": "d", "numerics": "fp32"}
KIND = {"op": "gemm", "dtype": "f32", "layout": "NT"}
EVERY = "_ % & # { } ~ ^ \\ $ < > | [ ] * \" ' ` -- 中é\n\u2028end"
TIME = {"time_s_median": 12.34e-6, "time_s_ci95_low": 12.1e-6, "time_s_ci95_high": 12.96e-6, "gflop_per_s": 43.21}
DOCUMENT = r"""\documentclass[10pt]{article}
\usepackage[textwidth=85mm,textheight=260mm]{geometry}
\usepackage{booktabs,graphicx,longtable}
\begin{document}
\input{table.tex}
\end{document}
"""


@pytest.fixture
def rows(store):
    """Adds rows, one a keyword set, and gives the LaTeX of the run."""
    environment = {"kernelmark": "0.1.0"}
    store.begin(Run("r", {"cpu": f"Some {EVERY}"}, "2026", ("s",), "", environment, "c0ffee1234567", {}))

    def of(*found):
        for i, values in enumerate(found):
            known = {"suite": "s", "mode": "cold", "threads": 2, "status": "ok", "reason": ""}
            known |= {"problem": "gemm/m8n9k7/f32/NT", "kernel": f"gemm/a.k{i}"}
            store.add(Result(**{**IDENTITY, **KIND, **known, **values}), {}, [], None)
        out = io.StringIO()
        write_latex(store, "r", out)
        return out.getvalue()

    return of


@pytest.fixture
def compiled(tmp_path):
    """The log of a compiled page with the table on it. Without pdflatex a skip, in CI an error."""
    if shutil.which("pdflatex") is None:
        reason = "pdflatex is not there; apt-get install texlive-latex-base texlive-latex-recommended"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)

    def of(table):
        (tmp_path / "table.tex").write_text(table)
        (tmp_path / "page.tex").write_text(DOCUMENT)
        words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode == 0, done.stdout[-2000:]
        assert (tmp_path / "page.pdf").is_file()
        return done.stdout

    return of


def lines(table):
    return [line for line in table.splitlines() if not line.startswith("%")]


def columns(layout):
    return len(re.sub(r"@\{[^}]*\}", "", layout))


def cells(line):
    """How many columns a line of a table fills."""
    spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans) - len(spans)


def sound(text):
    """Assert that environments and braces close, and that each line of a table has its columns; return the tables."""
    text = "\n".join(lines(text))
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    plain = re.sub(r"\\[\\{}]", "", text)
    assert plain.count("{") == plain.count("}")
    found = re.findall(r"\\begin\{(tabular|longtable)\}\{((?:[^{}]|\{[^{}]*\})*)\}\n(.*?)\\end\{\1\}", text, re.DOTALL)
    for _, layout, body in found:
        ended = [line for line in body.splitlines() if re.search(r"\\\\(\*|\[1.5pt\])?$", line)]
        filled = [line for line in ended if "\\caption" not in line]
        assert {cells(line) for line in filled} == {columns(layout)}
    return found


def test_every_character_that_latex_reads_is_printed(rows, compiled):
    odd = {"kernel": f"gemm/a.{EVERY}", "problem": f"gemm/{EVERY}", "suite": EVERY, "isa": EVERY}
    text = rows(odd | TIME, odd | {"kernel": f"gemm/[{EVERY}", "status": "wrong", "reason": EVERY})
    sound(text)
    assert "Missing character" not in compiled(text)


def test_special_ids_leave_a_pivot_sound(rows, compiled):
    names = [{"kernel": f"gemm/{mark}{EVERY}", "suite": EVERY} for mark in "[*a"]
    text = rows(*({"problem": f"gemm/m{m}n1k1/f32/N{EVERY}"} | name | TIME for m in (1, 2) for name in names))
    assert sound(text)
    assert "Missing character" not in compiled(text)


def test_a_row_that_begins_with_a_bracket_or_a_star_is_no_option_of_the_line_before(rows, compiled):
    compiled(rows({"kernel": "gemm/[2mm] a"} | TIME, {"kernel": "gemm/* b"} | TIME))


def test_escaping_leaves_plain_words_and_names_what_has_no_glyph():
    assert escape("gemm/a.b-1 (x)") == "gemm/a.b-1 (x)"
    assert escape("a_b\\c中") == "a\\_b\\textbackslash{}c\\textbackslash{}u4e2d"
    assert escape("~^|<") == "\\textasciitilde{}\\textasciicircum{}\\textbar{}\\textless{}"
    assert comment("one\ntwo") == "one\\x0atwo"


def test_a_caption_names_what_where_version_commit_and_run_and_has_a_label(rows):
    (caption,) = re.findall(r"\\caption\{(.*)\}\\label\{tab:s-gemm\}", rows(TIME))
    assert caption == (
        "gemm, suite s; d, cold, 2 threads. Median time with its 95\\,\\% interval. "
        "kernelmark 0.1.0 (commit c0ffee123456), run r."
    )


def test_a_label_is_given_once():
    used = set()
    assert [unused("s-GEMM!", used) for _ in range(3)] == ["s-gemm", "s-gemm-2", "s-gemm-3"]


def test_a_time_stands_with_its_interval_in_one_unit(rows):
    (row,) = [line for line in lines(rows(TIME)) if line.startswith("a.k0")]
    assert row == "a.k0 & 12.3\\,$\\mu$s & [12.1, 13.0] & 43.2 \\\\"


def test_kernels_of_one_problem_stand_fastest_first_and_failures_last(rows):
    slow = TIME | {"time_s_median": 2.0, "time_s_ci95_low": 1.9, "time_s_ci95_high": 2.1, "baseline": "gemm/a.k2"}
    slow |= {"speedup": 0.5, "speedup_ci95_low": 0.25, "speedup_ci95_high": 0.75}
    found = lines(rows({"status": "wrong", "reason": "x"}, slow, TIME | {"baseline": "gemm/a.k2"}))
    body = found[found.index("\\midrule") + 1 : found.index("\\bottomrule")]
    assert body[0] == "\\multicolumn{6}{@{}l@{}}{\\texttt{gemm/m8n9k7/f32/NT}} \\\\"
    assert [line.split(" & ")[0] for line in body[1:]] == ["a.k2", "a.k1", "a.k0"]
    assert body[1].endswith("&  & baseline \\\\")
    assert body[2].endswith("& 0.50 & [0.25, 0.75] \\\\")
    assert body[3] == "a.k0 & \\multicolumn{5}{l@{}}{wrong} \\\\"


def test_columns_that_are_empty_throughout_are_left_out(rows):
    (head,) = [line for line in lines(rows(TIME)) if line.startswith("kernel")]
    assert head == "kernel & \\multicolumn{2}{c}{time [95\\,\\%]} & GFLOP/s \\\\"


def test_settings_stand_in_the_caption_where_all_share_them_and_at_the_problem_where_not(rows):
    shared, mixed = rows(TIME), rows({"mode": "hot", "kernel": "gemm/a.hot"} | TIME)
    assert "; d, cold, 2 threads." in shared
    assert "\\texttt{gemm/m8n9k7/f32/NT}, d, cold, 2 threads}" in mixed
    assert "\\texttt{gemm/m8n9k7/f32/NT}, d, hot, 2 threads}" in mixed


def test_thread_counts_are_named_where_there_are_several(rows):
    text = rows({"threads": 1} | TIME, TIME)
    assert "a.k0 (1 thr.) &" in text
    assert "a.k1 (2 thr.) &" in text


def test_a_mean_stands_for_a_median_that_is_not_known_and_says_so(rows):
    assert "a.k0 & 1.50\\,ms & (mean) \\\\" in rows({"time_s_mean": 1.5e-3})


@pytest.mark.parametrize("status", ["wrong", "ok"])
def test_a_run_without_a_time_says_what_came_of_it(rows, status):
    table = rows({"status": status, "reason": "x", "baseline": "gemm/a.k0"})
    assert f"a.k0 & \\multicolumn{{1}}{{l@{{}}}}{{{'right' if status == 'ok' else 'wrong'}}} \\\\" in table
    sound(table)


def test_a_run_without_rows_says_so(rows):
    assert rows().endswith("% no rows\n")


DISTURBED = "others took 0.98 CPUs during 60 % of the sampling"


def times(problems, kernels, **values):
    return [
        {"problem": f"gemm/m{m}n9k7/f32/NT", "kernel": f"gemm/{kernel}"} | TIME | values
        for m in range(1, problems + 1)
        for kernel in kernels
    ]


def test_several_problems_are_a_pivot_with_the_fastest_in_bold_and_intervals_below(rows, compiled):
    slow = {"problem": "gemm/m2n9k7/f32/NT", "kernel": "gemm/a.slow"} | TIME | {"time_s_median": 20e-6}
    failed = {"problem": "gemm/m1n9k7/f32/NT", "kernel": "gemm/a.slow", "status": "unsupported", "reason": "x"}
    text = rows(*times(2, ("a.fast",)), slow, failed)
    (found,) = sound(text)
    assert found[2].splitlines()[1:6] == [
        r"problem & & \rotatebox{90}{a.fast} & \rotatebox{90}{a.slow} \\",
        r"\midrule",
        r"m1 & $\mu$s & \textbf{12.3} & -- \\*",
        r"&  & {\tiny [12.1, 13.0]} & \\[1.5pt]",
        r"m2 & $\mu$s & \textbf{12.3} & 20.0 \\*",
    ]
    assert "\\caption{gemm, n9k7 f32 NT, suite s. Median times" in text
    assert "--: unsupported." in text
    assert "Overfull" not in compiled(text)


def test_noisy_cells_are_marked_and_the_caption_says_what_the_mark_means(rows, compiled):
    text = rows(*times(2, ("a.k",), disturbed=DISTURBED))
    assert r"$\sim$\textbf{12.3}" in text
    assert "$\\sim$: the machine was disturbed" in text
    compiled(text)


def test_a_table_of_a_quiet_run_does_not_explain_the_mark(rows):
    assert "sim" not in rows(*times(2, ("a.k",)))


def test_a_pivot_with_many_kernels_is_parted_so_that_each_part_fits_a_column(rows, compiled):
    text = rows(*times(3, [f"openblas.kernel_{i}" for i in range(13)]))
    found = sound(text)
    assert len(found) > 1
    assert "kernels 1 to " in text
    assert "As in Table~\\ref{tab:s-gemm}." in text
    assert "Overfull" not in compiled(text)


def test_a_long_pivot_is_a_longtable_that_repeats_its_head(rows, compiled):
    text = rows(*times(FLOAT_LINES // 2 + 1, ("a.k", "a.l")))
    assert [kind for kind, _, _ in sound(text)] == ["longtable"]
    assert text.count("\\rotatebox{90}{a.k}") == 2
    assert "Overfull" not in compiled(text)


def test_each_operation_is_a_file_of_its_own_beside_the_whole(store, rows, tmp_path):
    move = {"op": "copy", "problem": "copy/m1n1/f32", "kernel": "copy/a.b"} | TIME
    rows(TIME, move)
    write_latex_files(store, "r", tmp_path / "run.tex")
    assert sorted(path.name for path in tmp_path.glob("*.tex")) == ["run-copy.tex", "run-gemm.tex", "run.tex"]
    whole, copy = ((tmp_path / name).read_text() for name in ("run.tex", "run-copy.tex"))
    assert (whole.count("\\begin{table}"), copy.count("\\begin{table}")) == (2, 1)
    assert PREAMBLE in copy


def test_a_list_of_many_rows_is_parted_between_problems(rows):
    untimed = [{"problem": f"gemm/m{i // 3}n9k7/f32/NT", "kernel": f"gemm/a.k{i % 3}"} for i in range(60)]
    assert [body.count("\\texttt") for _, _, body in sound(rows(*untimed))] == [PAGE_LINES // 4, 20 - PAGE_LINES // 4]


def width_mm(log):
    return float(re.search(r"WIDTH ([\d.]+)pt", log)[1]) * 25.4 / 72.27


def boxed(table):
    body = table[table.index("\\scriptsize") : table.index("\\end{table}")]
    return f"\\newsavebox\\kmbox\\savebox\\kmbox{{{body}}}\\typeout{{WIDTH \\the\\wd\\kmbox}}\\usebox\\kmbox"


def test_a_list_with_short_names_fits_a_column_of_85_mm(rows, compiled):
    speedup = {"speedup": 1.26, "speedup_ci95_low": 1.12, "speedup_ci95_high": 1.32}
    found = rows({"kernel": "gemm/numpy.matmul"} | TIME | speedup)
    assert width_mm(compiled(boxed(found))) < COLUMN_MM


def test_each_operation_of_a_suite_is_a_table_with_its_own_rate(rows):
    move = TIME | {"gflop_per_s": None, "gbyte_per_s": 7.0, "op": "copy", "problem": "copy/m1n1/f32"}
    first, second = rows(TIME | {"gbyte_per_s": 1.0}, move).split("\\end{table}")[:2]
    assert ("GFLOP/s" in first, "GB/s" in first) == (True, False)
    assert ("GFLOP/s" in second, "GB/s" in second) == (False, True)
