"""LaTeX tables, compiled with pdflatex."""

import io
import os
import re
import shutil
import subprocess

import pytest

from bench.record.result import Result
from bench.record.store import Run
from bench.report.latex import PAGE_LINES, comment, escape, write_latex

IDENTITY = {"run_id": "r", "provider": "a", "device": "cpu", "device_name": "d", "numerics": "fp32"}
KIND = {"op": "gemm", "dtype": "f32", "layout": "NT"}
EVERY = "_ % & # { } ~ ^ \\ $ < > | [ ] * \" ' ` -- 中é\n\u2028end"
TIME = {"time_s_median": 12.34e-6, "time_s_ci95_low": 12.1e-6, "time_s_ci95_high": 12.96e-6, "gflop_per_s": 43.21}
DOCUMENT = r"""\documentclass[10pt]{article}
\usepackage[textwidth=178mm,textheight=260mm]{geometry}
\usepackage{booktabs}
\begin{document}
\footnotesize
\input{table.tex}
\end{document}
"""


@pytest.fixture
def rows(store):
    """Adds rows, one a keyword set, and gives the LaTeX of the run."""
    store.begin(Run("r", {"cpu": f"Some {EVERY}"}, "2026", ("s",), "", {}, "", {}))

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


def test_every_character_that_latex_reads_is_printed(rows, compiled):
    odd = {"kernel": f"gemm/a.{EVERY}", "problem": f"gemm/{EVERY}", "suite": EVERY, "isa": EVERY}
    log = compiled(rows(odd | TIME, odd | {"kernel": f"gemm/[{EVERY}", "status": "wrong", "reason": EVERY}))
    assert "Missing character" not in log
    assert "Overfull" not in log


def test_a_row_that_begins_with_a_bracket_or_a_star_is_no_option_of_the_line_before(rows, compiled):
    compiled(rows({"kernel": "gemm/[2mm] a"} | TIME, {"kernel": "gemm/* b"} | TIME))


def test_escaping_leaves_plain_words_and_names_what_has_no_glyph():
    assert escape("gemm/a.b-1 (x)") == "gemm/a.b-1 (x)"
    assert escape("a_b\\c中") == "a\\_b\\textbackslash{}c\\textbackslash{}u4e2d"
    assert escape("~^|<") == "\\textasciitilde{}\\textasciicircum{}\\textbar{}\\textless{}"
    assert comment("one\ntwo") == "one\\x0atwo"


def test_a_time_stands_with_its_interval_in_one_unit(rows):
    (row,) = [line for line in lines(rows(TIME)) if line.startswith("a.k0")]
    assert row == "a.k0 & 12.3\\,$\\mu$s & [12.1, 13.0] & 43.2 \\\\"


def test_kernels_stand_fastest_first_below_their_problem_and_failures_last(rows):
    slow = TIME | {"time_s_median": 2.0, "speedup": 0.5, "speedup_ci95_low": 0.25, "speedup_ci95_high": 0.75}
    fast = TIME | {"baseline": "gemm/a.k2"}
    found = lines(rows({"status": "wrong", "reason": "x"}, slow | {"baseline": "gemm/a.k2"}, fast))
    body = found[found.index("\\midrule") + 1 : found.index("\\bottomrule")]
    assert body[0] == "\\multicolumn{6}{@{}l@{}}{\\texttt{gemm/m8n9k7/f32/NT}} \\\\"
    assert [line.split(" & ")[0] for line in body[1:]] == ["a.k2", "a.k1", "a.k0"]
    assert body[1].endswith("&  & baseline \\\\")
    assert body[2].endswith("& 0.500 & [0.250, 0.750] \\\\")
    assert body[3] == "a.k0 & \\multicolumn{5}{l@{}}{wrong} \\\\"


def test_columns_that_are_empty_throughout_are_left_out(rows):
    (head,) = [line for line in lines(rows(TIME)) if line.startswith("kernel")]
    assert head == "kernel & \\multicolumn{2}{c}{time [95\\,\\%]} & GFLOP/s \\\\"


def test_bytes_are_given_where_nothing_is_computed(rows):
    text = rows(TIME | {"gflop_per_s": None, "gbyte_per_s": 7.0})
    assert "& GB/s \\\\" in text
    assert "GFLOP/s" not in text


def test_settings_stand_above_the_table_where_all_share_them_and_at_the_problem_where_not(rows):
    shared, mixed = rows(TIME), rows({"mode": "hot", "kernel": "gemm/a.hot"} | TIME)
    assert "% suite s; cold, 2 threads\n" in shared
    assert "\\texttt{gemm/m8n9k7/f32/NT}, cold, 2 threads}" in mixed
    assert "\\texttt{gemm/m8n9k7/f32/NT}, hot, 2 threads}" in mixed


def test_thread_counts_are_named_where_there_are_several(rows):
    text = rows({"threads": 1} | TIME, TIME)
    assert "a.k0 (1 thr.) &" in text
    assert "a.k1 (2 thr.) &" in text


def test_a_mean_stands_for_a_median_that_is_not_known_and_says_so(rows):
    assert "a.k0 & 1.50\\,ms & (mean) \\\\" in rows({"time_s_mean": 1.5e-3})


@pytest.mark.parametrize("status", ["wrong", "ok"])
def test_a_run_without_a_time_says_what_came_of_it(rows, compiled, status):
    table = rows({"status": status, "reason": "x", "baseline": "gemm/a.k0"})
    assert f"a.k0 & \\multicolumn{{1}}{{l@{{}}}}{{{'right' if status == 'ok' else 'wrong'}}} \\\\" in table
    compiled(table)


def test_a_run_without_rows_says_so(rows):
    assert rows().endswith("% no rows\n")


def test_each_suite_is_a_table_and_a_long_one_is_parted_between_problems(rows, compiled):
    many = [{"problem": f"gemm/m{i // 3}n9k7/f32/NT", "kernel": f"gemm/a.k{i % 3}"} | TIME for i in range(60)]
    text = rows(*many, {"suite": "other", "problem": "gemm/m1n1k1/f32/NN"} | TIME)
    tables = text.split("\\bottomrule")[:-1]
    assert [table.count("\\texttt") for table in tables] == [PAGE_LINES // 4, 20 - PAGE_LINES // 4, 1]
    assert "Overfull" not in compiled(text)


def width_mm(log):
    return float(re.search(r"WIDTH ([\d.]+)pt", log)[1]) * 25.4 / 72.27


def boxed(table, size):
    body = table[table.index("\\begin{tabular}") :]
    return f"{size}\\newsavebox\\kmbox\\savebox\\kmbox{{{body}}}\\typeout{{WIDTH \\the\\wd\\kmbox}}\\usebox\\kmbox"


SPEEDUP = {"speedup": 0.0346, "speedup_ci95_low": 0.0323, "speedup_ci95_high": 0.43, "gbyte_per_s": 1.0}


def test_a_table_with_long_names_fits_a_page_of_178_mm(rows, compiled):
    long = {"problem": "conv/n8c64h56w56k64r3s3pad1stride2/f32/nchw/fprop", "op": "conv"} | TIME | SPEEDUP
    several = [long | {"kernel": "conv/cudnn.implicit_precomp_gemm_tf32", "threads": n} for n in (1, 64)]
    assert width_mm(compiled(boxed(rows(*several), "\\footnotesize"))) < 178


def test_a_table_with_short_names_fits_a_column_of_85_mm(rows, compiled):
    speedup = {"speedup": 1.26, "speedup_ci95_low": 1.12, "speedup_ci95_high": 1.32}
    found = rows({"kernel": "gemm/numpy.matmul"} | TIME | speedup)
    assert width_mm(compiled(boxed(found, "\\scriptsize\\setlength{\\tabcolsep}{3pt}"))) < 85


def test_each_operation_of_a_suite_is_a_table_with_its_own_rate(rows):
    move = TIME | {"gflop_per_s": None, "gbyte_per_s": 7.0, "op": "copy", "problem": "copy/m1n1/f32"}
    first, second = rows(TIME | {"gbyte_per_s": 1.0}, move).split("\\bigskip")
    assert ("GFLOP/s" in first, "GB/s" in first) == (True, False)
    assert ("GFLOP/s" in second, "GB/s" in second) == (False, True)
