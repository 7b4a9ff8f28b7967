"""LaTeX, pivots and Markdown: the structure of tables, and texts that are escaped."""

import io
import re
import shutil
import subprocess
from itertools import product

import pytest

from kernelmark.bench.record.store import Run
from kernelmark.bench.report import latex as tex
from kernelmark.bench.report.export import WRITERS
from kernelmark.bench.report.layout import in_markdown
from kernelmark.bench.report.pivot import COLUMN_MM, METRICS, MOST_PROBLEMS, Options, all_pivots, labelled, markdown
from support.pages import DOCUMENT, EVERY, TIME, lines, sound
from support.rows import DISTURBED, fail, put, result
from support.texts import text_of
from support.tools import needed

SIUNITX, BEGIN = r"\usepackage{siunitx}", r"\begin{document}"
COPY = {"gflop_per_s": None, "gbyte_per_s": 7.0, "op": "copy", "problem": "copy/m1n1/f32"}


@pytest.fixture
def latex(store):
    environment = {"kernelmark": "0.1.0"}
    store.begin(Run("r", {"cpu": f"Some {EVERY}"}, "2026", ("s",), "", environment, "c0ffee1234567", {}))

    def of(*rows):
        for i, values in enumerate(rows):
            known = {"run_id": "r", "suite": "s", "device_name": "d", "threads": 2, "problem": "gemm/m8n9k7/f32/NT"}
            store.add(result(**{**known, "kernel": f"gemm/a.k{i}", **values}), {}, [], None)
        return text_of(lambda out: tex.write_latex(store, ["r"], out))

    return of


@pytest.fixture
def compiled(tmp_path):
    """Return the log of LaTeX for a page with a table. Without LaTeX the call skips the test; in CI it fails."""

    def of(table):
        missing = "pdflatex is not there; apt-get install texlive-latex-base texlive-latex-recommended"
        needed(None if shutil.which("pdflatex") else missing)
        wanted = SIUNITX * table.partition("\n")[0].endswith(SIUNITX)
        if wanted:
            is_installed = subprocess.run(["kpsewhich", "siunitx.sty"], capture_output=True).returncode == 0
            needed(None if is_installed else "siunitx is not there; apt-get install texlive-science")
        (tmp_path / "table.tex").write_text(table)
        (tmp_path / "page.tex").write_text(DOCUMENT.replace(BEGIN, wanted + BEGIN))
        words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode == 0, done.stdout[-2000:]
        assert (tmp_path / "page.pdf").is_file()
        return done.stdout

    return of


@pytest.mark.parametrize("problems", [1, 2])
def test_every_character_is_printed_and_a_line_may_begin_with_a_bracket_or_a_star(latex, compiled, problems):
    names = [{"kernel": f"gemm/{mark}{EVERY}", "suite": EVERY, "isa": EVERY} for mark in ("[2mm] ", "* ", "a")]
    rows = [{"problem": f"gemm/m{m}n1k1/f32/N{EVERY}"} | name | TIME for m in range(problems) for name in names]
    text = latex(*rows, rows[0] | {"kernel": "gemm/b", "status": "wrong", "reason": EVERY, "time_s_median": None})
    assert sound(text)
    assert "Missing character" not in compiled(text)


def test_escaping_leaves_plain_words_and_names_what_has_no_glyph():
    assert tex.escape("gemm/a.b-1 (x)") == "gemm/a.b-1 (x)"
    assert tex.escape("a_b\\c中") == "a\\_b\\textbackslash{}c\\textbackslash{}u4e2d"
    assert tex.escape("~^|<") == "\\textasciitilde{}\\textasciicircum{}\\textbar{}\\textless{}"
    assert tex.comment("one\ntwo") == "one\\x0atwo"


def test_a_list_has_a_caption_the_columns_that_are_not_empty_a_time_in_one_unit_and_a_line_of_bibtex(latex):
    text = latex(TIME)
    (caption,) = re.findall(r"\\caption\{(.*)\}\\label\{tab:s-gemm\}", text)
    assert caption == (
        "gemm, suite s; d, cold, 2 threads. Median time with its 95\\,\\% interval. "
        "kernelmark 0.1.0 (commit c0ffee123456), run r."
    )
    head, row = (line for line in lines(text) if line.startswith(("kernel", "a.k0")))
    assert head == "kernel & \\multicolumn{2}{c}{time [95\\,\\%]} & GFLOP/s \\\\"
    assert row == "a.k0 & 12.3\\,$\\mu$s & [12.1, 13.0] & 43.2 \\\\"
    assert "% to cite: @misc{kernelmark-r, author = {The kernelmark authors}, title = {kernelmark" in text


def test_a_label_is_given_once():
    used = {}
    assert [tex.unused("s-GEMM!", used) for _ in range(3)] == ["s-gemm", "s-gemm-2", "s-gemm-3"]


def test_kernels_of_one_problem_stand_fastest_first_and_failures_last(latex):
    slow = TIME | {"time_s_median": 2.0, "time_s_ci95_low": 1.9, "time_s_ci95_high": 2.1, "baseline": "gemm/a.k2"}
    slow |= {"speedup": 0.5, "speedup_ci95_low": 0.25, "speedup_ci95_high": 0.75}
    source_lines = lines(latex({"status": "wrong", "reason": "x"}, slow, TIME | {"baseline": "gemm/a.k2"}))
    body = source_lines[source_lines.index("\\midrule") + 1 : source_lines.index("\\bottomrule")]
    assert body[0] == "\\multicolumn{6}{@{}l@{}}{\\texttt{gemm/m8n9k7/f32/NT}} \\\\"
    assert [line.split(" & ")[0] for line in body[1:]] == ["a.k2", "a.k1", "a.k0"]
    assert body[1].endswith("&  & baseline \\\\")
    assert body[2].endswith("& 0.50 & [0.25, 0.75] \\\\")
    assert body[3] == "a.k0 & \\multicolumn{5}{l@{}}{wrong} \\\\"


def test_settings_stand_in_the_caption_where_all_share_them_and_at_the_problem_where_not(latex):
    shared, mixed = latex(TIME), latex({"mode": "hot", "kernel": "gemm/a.hot"} | TIME)
    assert "; d, cold, 2 threads." in shared
    assert "\\texttt{gemm/m8n9k7/f32/NT}, d, cold, 2 threads}" in mixed
    assert "\\texttt{gemm/m8n9k7/f32/NT}, d, hot, 2 threads}" in mixed


def test_thread_counts_are_named_where_there_are_several_and_a_mean_that_stands_for_a_median(latex):
    text = latex({"threads": 1, "time_s_mean": 1.5e-3}, TIME)
    assert "a.k0 (1 thr.) & 1.50\\,ms & (mean) " in text
    assert "a.k1 (2 thr.) &" in text


def test_a_run_without_a_time_says_what_came_of_it_and_one_without_rows_that_it_has_none(latex):
    assert latex().endswith("% no rows\n")
    table = latex(*({"status": status, "reason": "x", "baseline": "gemm/a.k0"} for status in ("wrong", "ok")))
    for kernel, verdict in (("a.k0", "wrong"), ("a.k1", "right")):
        assert f"{kernel} & \\multicolumn{{1}}{{l@{{}}}}{{{verdict}}} \\\\" in table
    sound(table)


def test_each_operation_is_a_table_with_its_own_rate_and_a_file_of_its_own_beside_the_whole(store, latex, tmp_path):
    latex(TIME | {"gbyte_per_s": 1.0}, TIME | COPY)
    tex.write_latex_files(store, ["r"], tmp_path / "run.tex")
    assert sorted(path.name for path in tmp_path.glob("*.tex")) == ["run-copy.tex", "run-gemm.tex", "run.tex"]
    whole, gemm, copy = ((tmp_path / f"run{op}.tex").read_text() for op in ("", "-gemm", "-copy"))
    assert [text.count("\\begin{table}") for text in (whole, gemm, copy)] == [2, 1, 1]
    assert ("GFLOP/s" in gemm, "GB/s" in gemm) == (True, False)
    assert ("GFLOP/s" in copy, "GB/s" in copy) == (False, True)
    assert tex.PREAMBLE in copy


def test_a_list_of_many_rows_is_parted_between_problems(latex):
    untimed = [{"problem": f"gemm/m{i // 3}n9k7/f32/NT", "kernel": f"gemm/a.k{i % 3}"} for i in range(60)]
    assert [body.count("\\texttt") for _, _, body in sound(latex(*untimed))] == [
        tex.PAGE_LINES // 4,
        20 - tex.PAGE_LINES // 4,
    ]


def test_a_list_with_short_names_fits_a_column_of_85_mm(latex, compiled):
    speedup = {"speedup": 1.26, "speedup_ci95_low": 1.12, "speedup_ci95_high": 1.32}
    source = latex({"kernel": "gemm/numpy.matmul"} | TIME | speedup)
    body = source[source.index("\\scriptsize") : source.index("\\end{table}")]
    boxed = f"\\newsavebox\\kmbox\\savebox\\kmbox{{{body}}}\\typeout{{WIDTH \\the\\wd\\kmbox}}\\usebox\\kmbox"
    width_pt = float(re.search(r"WIDTH ([\d.]+)pt", compiled(boxed))[1])
    assert width_pt * 25.4 / 72.27 < COLUMN_MM


def times(problems, kernels, **values):
    return [
        {"problem": f"gemm/m{m}n9k7/f32/NT", "kernel": f"gemm/{kernel}"} | TIME | values
        for m in range(1, problems + 1)
        for kernel in kernels
    ]


def test_several_problems_are_a_pivot_with_the_fastest_in_bold_and_intervals_below(latex, compiled):
    slow = {"problem": "gemm/m2n9k7/f32/NT", "kernel": "gemm/a.slow"} | TIME | {"time_s_median": 20e-6}
    slow |= {"time_s_ci95_low": 19e-6, "time_s_ci95_high": 21e-6}
    failed = {"problem": "gemm/m1n9k7/f32/NT", "kernel": "gemm/a.slow", "status": "unsupported", "reason": "x"}
    text = latex(*times(2, ("a.fast",)), slow, failed)
    (tables,) = sound(text)
    assert tables[2].splitlines()[1:6] == [
        r"problem & & \rotatebox{90}{a.fast} & \rotatebox{90}{a.slow} \\",
        r"\midrule",
        r"m1 & $\mu$s & 12.3 & -- \\*",
        r"&  & {\tiny [12.1, 13.0]} & \\[1.5pt]",
        r"m2 & $\mu$s & \textbf{12.3} & 20.0 \\*",
    ]
    assert "\\caption{gemm, n9k7 f32 NT, suite s. Median times" in text
    assert "--: unsupported." in text
    assert "Overfull" not in compiled(text)


def test_noisy_cells_are_marked_and_only_their_caption_says_what_the_mark_means(latex, compiled):
    assert "sim" not in latex(*times(2, ("a.k",)))
    text = latex(*times(2, ("a.l",), disturbed=DISTURBED))
    assert r"$\sim$12.3" in text
    assert "$\\sim$: the machine was disturbed" in text
    compiled(text)


def test_a_pivot_with_many_kernels_is_parted_so_that_each_part_fits_a_column(latex, compiled):
    text = latex(*times(3, [f"openblas.kernel_{i}" for i in range(13)]))
    tables = sound(text)
    assert len(tables) > 1
    assert "kernels 1 to " in text
    assert "As in Table~\\ref{tab:s-gemm}." in text
    assert "Overfull" not in compiled(text)


def test_a_long_pivot_is_a_longtable_that_repeats_its_head(latex, compiled):
    text = latex(*times(tex.FLOAT_LINES // 2 + 1, ("a.k", "a.l")))
    assert [kind for kind, _, _ in sound(text)] == ["longtable"]
    assert text.count("\\rotatebox{90}{a.k}") == 2
    assert "textbf" not in text, "both tie for the first place"
    assert "Overfull" not in compiled(text)


def styled_of(store, sizes, layouts):
    for size, layout in product(sizes, layouts):
        problem, base = f"gemm/m{size}n8k8/f32/{layout}", "gemm/some.base"
        ratio = 0.5 if size == 8 else 1.0
        comparison = {"against": f"gemm/m{size}n8k8/f32/NN", "ratio": ratio}
        comparison |= {"ratio_ci95_low": 0.9 * ratio, "ratio_ci95_high": 1.1 * ratio}
        put(store, problem, base, 1e-3, baseline=base, roofline_pct=50.0, **(comparison if layout == "NT" else {}))
        fast = {"speedup": 2.0, "speedup_ci95_low": 1.9, "speedup_ci95_high": 2.1}
        put(store, problem, "gemm/some.fast", 0.5e-3, baseline=base, **fast)

    def of(metric="time", sizes=False, **values):
        return text_of(lambda out: tex.write_latex(store, ["r1"], out, Options((), False, metric, sizes, **values)))

    return of


@pytest.fixture
def styled(begun):
    return styled_of(begun, (8, 9), ("NN", "NT"))


@pytest.fixture
def single(begun):
    return styled_of(begun, (8,), ("NT",))


@pytest.mark.parametrize(
    ("metric", "line"),
    [
        ("rate", r"m8 NT & GFLOP/s & \textbf{1.9"),
        ("speedup", r"m8 NT &  & \textbf{2.00} & {\tiny base} \\*"),
        ("roofline", r"m8 NT & \% &  & 50.0 \\*"),
        ("ratio", r"m8 NT & over NN &  & \textbf{0.50} \\*"),
        ("ratio", r"m9 NT & over NN &  & 1.00 \\*"),
    ],
)
def test_a_pivot_holds_the_metric_that_was_asked_for_and_no_lines_without_it(styled, metric, line):
    lines = styled(metric).splitlines()
    assert any(row.startswith(line) for row in lines)
    assert any(row.startswith("m8 NN") for row in lines) is (metric != "ratio")


def test_sizes_are_columns_and_numbers_are_commands_of_siunitx_on_request(styled, compiled):
    text = styled("time", True, siunitx=True)
    lines = text.splitlines()
    assert lines[0].endswith(r"\usepackage{booktabs,graphicx,longtable}\usepackage{siunitx}")
    assert r"problem & M & N & K & & \rotatebox{90}{some.fast} & \rotatebox{90}{some.base} \\" in lines
    (line,) = [line for line in lines if line.startswith("NT & 8 & 8 & 8 &")]
    assert re.fullmatch(r".* & \\unit\{\\micro\\second\} & \\textbf\{\\num\[.*\]\{\d+\}\} & \\num\{\d+\} .*", line)
    assert re.search(r"\{\\tiny \[\\num\{\d+\}, \\num\{\d+\}\]\}", text)
    others = [styled(metric, siunitx=True) for metric in METRICS if metric != "time"]
    log = compiled(text + "".join(others))
    assert "Overfull" not in log
    assert re.search(r"cmbx\d+\.pfb", log), "what is in bold has a bold font"


def test_the_list_of_one_problem_has_the_commands_of_siunitx_on_request(single, compiled):
    text = single(siunitx=True)
    (plain,), (row,) = (
        [line for line in written.splitlines() if line.startswith("some.fast")] for written in (single(), text)
    )
    name, _, cells = plain.partition(" & ")
    numbers = re.sub("[0-9.]+", r"\\num{\g<0>}", cells).replace(r"$\mu$s", r"\unit{\micro\second}")
    assert row == f"{name} & {numbers}"
    assert r"& \unit{GFLOP\per\second} &" in text
    assert r"& baseline & 0.50 & [0.45, 0.55] \\" in single()
    compiled(text)


def test_one_problem_has_a_table_of_the_metric_or_the_sizes_that_were_asked_for(single, compiled):
    tables = [single("roofline"), single("time", True)]
    assert r"m8n8k8 f32 NT & \% &  & 50.0 \\*" in tables[0]
    assert re.search(r"^ & 8 & 8 & 8 & \S+ & \\textbf\{\d+\} & \d+ ", tables[1], re.MULTILINE)
    compiled("".join(tables))


def test_a_table_is_parted_only_where_it_is_wider_than_asked(begun):
    for size, i in product((8, 9), range(12)):
        put(begun, f"gemm/m{size}n8k8/f32/NN", f"gemm/some.k{i}")
    counts = []
    for width in (85.0, 300.0):
        out = io.StringIO()
        tex.write_latex(begun, ["r1"], out, Options(width=width))
        counts.append(out.getvalue().count(r"\begin{tabular}"))
    assert counts[0] > counts[1] == 1


@pytest.fixture
def pivots_of(begun):
    return lambda: list(all_pivots(begun, "r1"))


def test_problems_are_named_by_what_they_do_not_share_or_whole_where_one_would_have_no_name():
    assert labelled(["gemm/m8n9k7/f32/NT", "gemm/m8n16k7/f32/NN"]) == ("m8k7 f32", ["n9 NT", "n16 NN"])
    assert labelled(["conv/n1c3h9w9k4r3s3pad0-1x2/f32/nchw/fprop", "conv/n1c3h9w9k4r1s1/f32/nchw/fprop"]) == (
        "n1c3h9w9k4 f32 nchw fprop",
        ["r3s3pad0-1x2", "r1s1"],
    )

    assert labelled(["gemm/m8n9k7/f32/NT", "gemm/m8n9k7/f32/NT/beta1"]) == (
        "",
        ["m8n9k7 f32 NT", "m8n9k7 f32 NT beta1"],
    )


def test_problems_without_a_kernel_in_common_and_thread_counts_are_pivots_of_their_own(store, pivots_of):
    for m in (8, 16):
        for threads in (1, 2):
            put(store, f"transpose/m{m}n8/f32/out", "transpose/a.out", threads=threads)
        put(store, f"transpose/m{m}n8/f32/in", "transpose/a.in")
    pivots = [(p.shared, p.kernels, p.setting.threads) for p in pivots_of()]
    out, in_place = ("n8 f32 out", ["transpose/a.out"]), ("n8 f32 in", ["transpose/a.in"])
    assert pivots == [(*out, 1), (*out, 2), (*in_place, 2)]


def test_a_failure_stands_in_its_cell_a_missing_row_is_empty_and_each_problem_has_a_line(store, pivots_of):
    for problem in ("gemm/m8n8k8/f32/NN", "gemm/m9n8k8/f32/NN"):
        put(store, problem, "gemm/a.b")
    for m, kernel in ((8, "gemm/a.bad"), (7, "gemm/a.b")):
        fail(store, f"gemm/m{m}n8k8/f32/NN", kernel, threads=2)
    (pivot,) = pivots_of()
    assert pivot.kernels == ["gemm/a.b", "gemm/a.bad"]
    cells = {line.label: [cell and cell.text for cell in line.cells][1] for line in pivot.lines}
    assert list(cells.items()) == [("m8", "wrong"), ("m9", None), ("m7", None)]


def test_a_failure_on_one_thread_is_at_more_threads_only_if_the_kernel_cannot_use_them(store, pivots_of):
    for problem in (problems := ("gemm/m8n8k8/f32/NN", "gemm/m9n8k8/f32/NN")):
        for threads in (1, 2):
            put(store, problem, "gemm/a.b", threads=threads)
        fail(store, problem, "gemm/a.single", threads=1)
    for problem, threads in zip(problems, (1, 2), strict=True):
        fail(store, problem, "gemm/a.threaded", threads=threads)
    cells = {
        (pivot.setting.threads, line.label): {k for k, cell in zip(pivot.kernels, line.cells, strict=True) if cell}
        for pivot in pivots_of()
        for line in pivot.lines
    }
    both, every = {"gemm/a.b", "gemm/a.single"}, {"gemm/a.b", "gemm/a.single", "gemm/a.threaded"}
    assert cells == {(1, "m8"): every, (1, "m9"): both, (2, "m8"): both, (2, "m9"): every}


def test_markdown_marks_the_fastest_and_what_was_disturbed(store, pivots_of):
    for m in (8, 16):
        put(store, f"gemm/m{m}n8k8/f32/NN", "gemm/a.slow", taken=[2e-3] * 20, disturbed=DISTURBED)
        put(store, f"gemm/m{m}n8k8/f32/NN", "gemm/a.fast", taken=[1e-3] * 20)
    text = markdown(pivots_of()[0])
    assert "| m16 | ms | **1.00** | ~2.00 |" in text
    assert text.endswith("~ disturbed while it was measured")


def test_a_long_run_is_read_some_problems_at_a_time(store, pivots_of):
    for m in range(1, MOST_PROBLEMS + 3):
        put(store, f"gemm/m{m}n8k8/f32/NN", "gemm/a.b", taken=[1e-3] * 6)
    assert [len(p.lines) for p in pivots_of()] == [MOST_PROBLEMS, 2]


EVIL = "<script>alert(1)</script> [click](http://evil.example) | ![x](//a.b) \x1b[31m\n| a | b |"


def test_markup_is_escaped_and_everything_else_stays():
    written = {
        "gemm/a.fast_one 0.826x [0.493, 0.92]": "gemm/a.fast_one 0.826x [0.493, 0.92]",
        "c[0, 1] is 2 & more": "c[0, 1] is 2 & more",
        "a|b": r"a\|b",
        "a\\|b": r"a\\\|b",
        "<b>&amp;&#x3c;": "&lt;b&gt;&amp;amp;&amp;#x3c;",
        "[a](b) [c][d]": r"[a\](b) [c\][d]",
        "http://a.b HTTPS://c www.d.e": "http&#58;//a.b HTTPS&#58;//c www&#46;d.e",
        "two\nlines \x1b[0m": r"two lines \\x1b[0m",
    }
    assert {text: in_markdown(text) for text in written} == written


@pytest.mark.parametrize("options", [Options(), Options(metric="ratio", sizes=True)])
def test_an_export_has_no_markup_of_the_names_in_it(begun, options):
    for size in (8, 9):
        problem = f"gemm/m{size}[|X](//A)n8k8/f32/{EVIL}"
        columns = {"against": problem.replace("f32", "f64"), "ratio": 2.0, "status": EVIL}
        put(begun, problem, f"gemm/some.{EVIL}", suite=EVIL, baseline=f"gemm/some.{EVIL}", **columns)
        put(begun, problem, "gemm/some.base", suite=EVIL)
        fail(begun, problem, "gemm/some.bad", status=EVIL, reason=EVIL)
    text = text_of(lambda out: WRITERS["markdown"](begun, ["r1"], out, options))
    assert "alert" in text
    assert "http://" not in text
    assert not set("<\x1b") & set(text)
    assert "](" not in text.replace(r"\](", "")
    for rows in (part.split("\n") for part in text.split("\n\n") if part.startswith("|")):
        assert len({row.replace(r"\|", "").count("|") for row in rows}) == 1
