"""LaTeX tables: their structure, and compiled where pdflatex is there."""

import re

import pytest

from kernelmark.bench.report.latex import COLUMN_MM, PAGE_LINES, PREAMBLE, comment, escape, unused, write_latex_files
from support.pages import EVERY, TIME, lines, sound


def test_every_character_that_latex_reads_is_printed(latex, compiled):
    odd = {"kernel": f"gemm/a.{EVERY}", "problem": f"gemm/{EVERY}", "suite": EVERY, "isa": EVERY}
    text = latex(odd | TIME, odd | {"kernel": f"gemm/[{EVERY}", "status": "wrong", "reason": EVERY})
    sound(text)
    assert "Missing character" not in compiled(text)


def test_special_ids_leave_a_pivot_sound(latex, compiled):
    names = [{"kernel": f"gemm/{mark}{EVERY}", "suite": EVERY} for mark in "[*a"]
    text = latex(*({"problem": f"gemm/m{m}n1k1/f32/N{EVERY}"} | name | TIME for m in (1, 2) for name in names))
    assert sound(text)
    assert "Missing character" not in compiled(text)


def test_a_row_that_begins_with_a_bracket_or_a_star_is_no_option_of_the_line_before(latex, compiled):
    compiled(latex({"kernel": "gemm/[2mm] a"} | TIME, {"kernel": "gemm/* b"} | TIME))


def test_escaping_leaves_plain_words_and_names_what_has_no_glyph():
    assert escape("gemm/a.b-1 (x)") == "gemm/a.b-1 (x)"
    assert escape("a_b\\c中") == "a\\_b\\textbackslash{}c\\textbackslash{}u4e2d"
    assert escape("~^|<") == "\\textasciitilde{}\\textasciicircum{}\\textbar{}\\textless{}"
    assert comment("one\ntwo") == "one\\x0atwo"


def test_a_caption_names_what_where_version_commit_and_run_and_has_a_label(latex):
    (caption,) = re.findall(r"\\caption\{(.*)\}\\label\{tab:s-gemm\}", latex(TIME))
    assert caption == (
        "gemm, suite s; d, cold, 2 threads. Median time with its 95\\,\\% interval. "
        "kernelmark 0.1.0 (commit c0ffee123456), run r."
    )


def test_a_label_is_given_once():
    used = set()
    assert [unused("s-GEMM!", used) for _ in range(3)] == ["s-gemm", "s-gemm-2", "s-gemm-3"]


def test_a_time_stands_with_its_interval_in_one_unit(latex):
    (row,) = [line for line in lines(latex(TIME)) if line.startswith("a.k0")]
    assert row == "a.k0 & 12.3\\,$\\mu$s & [12.1, 13.0] & 43.2 \\\\"


def test_kernels_of_one_problem_stand_fastest_first_and_failures_last(latex):
    slow = TIME | {"time_s_median": 2.0, "time_s_ci95_low": 1.9, "time_s_ci95_high": 2.1, "baseline": "gemm/a.k2"}
    slow |= {"speedup": 0.5, "speedup_ci95_low": 0.25, "speedup_ci95_high": 0.75}
    found = lines(latex({"status": "wrong", "reason": "x"}, slow, TIME | {"baseline": "gemm/a.k2"}))
    body = found[found.index("\\midrule") + 1 : found.index("\\bottomrule")]
    assert body[0] == "\\multicolumn{6}{@{}l@{}}{\\texttt{gemm/m8n9k7/f32/NT}} \\\\"
    assert [line.split(" & ")[0] for line in body[1:]] == ["a.k2", "a.k1", "a.k0"]
    assert body[1].endswith("&  & baseline \\\\")
    assert body[2].endswith("& 0.50 & [0.25, 0.75] \\\\")
    assert body[3] == "a.k0 & \\multicolumn{5}{l@{}}{wrong} \\\\"


def test_columns_that_are_empty_throughout_are_left_out(latex):
    (head,) = [line for line in lines(latex(TIME)) if line.startswith("kernel")]
    assert head == "kernel & \\multicolumn{2}{c}{time [95\\,\\%]} & GFLOP/s \\\\"


def test_settings_stand_in_the_caption_where_all_share_them_and_at_the_problem_where_not(latex):
    shared, mixed = latex(TIME), latex({"mode": "hot", "kernel": "gemm/a.hot"} | TIME)
    assert "; d, cold, 2 threads." in shared
    assert "\\texttt{gemm/m8n9k7/f32/NT}, d, cold, 2 threads}" in mixed
    assert "\\texttt{gemm/m8n9k7/f32/NT}, d, hot, 2 threads}" in mixed


def test_thread_counts_are_named_where_there_are_several(latex):
    text = latex({"threads": 1} | TIME, TIME)
    assert "a.k0 (1 thr.) &" in text
    assert "a.k1 (2 thr.) &" in text


def test_a_mean_stands_for_a_median_that_is_not_known_and_says_so(latex):
    assert "a.k0 & 1.50\\,ms & (mean) \\\\" in latex({"time_s_mean": 1.5e-3})


@pytest.mark.parametrize("status", ["wrong", "ok"])
def test_a_run_without_a_time_says_what_came_of_it(latex, status):
    table = latex({"status": status, "reason": "x", "baseline": "gemm/a.k0"})
    assert f"a.k0 & \\multicolumn{{1}}{{l@{{}}}}{{{'right' if status == 'ok' else 'wrong'}}} \\\\" in table
    sound(table)


def test_a_run_without_rows_says_so(latex):
    assert latex().endswith("% no rows\n")


def test_each_operation_is_a_file_of_its_own_beside_the_whole(store, latex, tmp_path):
    move = {"op": "copy", "problem": "copy/m1n1/f32", "kernel": "copy/a.b"} | TIME
    latex(TIME, move)
    write_latex_files(store, "r", tmp_path / "run.tex")
    assert sorted(path.name for path in tmp_path.glob("*.tex")) == ["run-copy.tex", "run-gemm.tex", "run.tex"]
    whole, copy = ((tmp_path / name).read_text() for name in ("run.tex", "run-copy.tex"))
    assert (whole.count("\\begin{table}"), copy.count("\\begin{table}")) == (2, 1)
    assert PREAMBLE in copy


def test_a_list_of_many_rows_is_parted_between_problems(latex):
    untimed = [{"problem": f"gemm/m{i // 3}n9k7/f32/NT", "kernel": f"gemm/a.k{i % 3}"} for i in range(60)]
    assert [body.count("\\texttt") for _, _, body in sound(latex(*untimed))] == [PAGE_LINES // 4, 20 - PAGE_LINES // 4]


def width_mm(log):
    return float(re.search(r"WIDTH ([\d.]+)pt", log)[1]) * 25.4 / 72.27


def boxed(table):
    body = table[table.index("\\scriptsize") : table.index("\\end{table}")]
    return f"\\newsavebox\\kmbox\\savebox\\kmbox{{{body}}}\\typeout{{WIDTH \\the\\wd\\kmbox}}\\usebox\\kmbox"


def test_a_list_with_short_names_fits_a_column_of_85_mm(latex, compiled):
    speedup = {"speedup": 1.26, "speedup_ci95_low": 1.12, "speedup_ci95_high": 1.32}
    found = latex({"kernel": "gemm/numpy.matmul"} | TIME | speedup)
    assert width_mm(compiled(boxed(found))) < COLUMN_MM


def test_each_operation_of_a_suite_is_a_table_with_its_own_rate(latex):
    move = TIME | {"gflop_per_s": None, "gbyte_per_s": 7.0, "op": "copy", "problem": "copy/m1n1/f32"}
    first, second = latex(TIME | {"gbyte_per_s": 1.0}, move).split("\\end{table}")[:2]
    assert ("GFLOP/s" in first, "GB/s" in first) == (True, False)
    assert ("GFLOP/s" in second, "GB/s" in second) == (False, True)
