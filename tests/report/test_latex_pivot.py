"""Problems x kernels in LaTeX: what a cell shows, and how a table that is too wide or too long is parted."""

from kernelmark.bench.report.latex import FLOAT_LINES
from support.pages import TIME, sound
from support.rows import DISTURBED


def times(problems, kernels, **values):
    return [
        {"problem": f"gemm/m{m}n9k7/f32/NT", "kernel": f"gemm/{kernel}"} | TIME | values
        for m in range(1, problems + 1)
        for kernel in kernels
    ]


def test_several_problems_are_a_pivot_with_the_fastest_in_bold_and_intervals_below(latex, compiled):
    slow = {"problem": "gemm/m2n9k7/f32/NT", "kernel": "gemm/a.slow"} | TIME | {"time_s_median": 20e-6}
    failed = {"problem": "gemm/m1n9k7/f32/NT", "kernel": "gemm/a.slow", "status": "unsupported", "reason": "x"}
    text = latex(*times(2, ("a.fast",)), slow, failed)
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


def test_noisy_cells_are_marked_and_the_caption_says_what_the_mark_means(latex, compiled):
    text = latex(*times(2, ("a.k",), disturbed=DISTURBED))
    assert r"$\sim$\textbf{12.3}" in text
    assert "$\\sim$: the machine was disturbed" in text
    compiled(text)


def test_a_table_of_a_quiet_run_does_not_explain_the_mark(latex):
    assert "sim" not in latex(*times(2, ("a.k",)))


def test_a_pivot_with_many_kernels_is_parted_so_that_each_part_fits_a_column(latex, compiled):
    text = latex(*times(3, [f"openblas.kernel_{i}" for i in range(13)]))
    found = sound(text)
    assert len(found) > 1
    assert "kernels 1 to " in text
    assert "As in Table~\\ref{tab:s-gemm}." in text
    assert "Overfull" not in compiled(text)


def test_a_long_pivot_is_a_longtable_that_repeats_its_head(latex, compiled):
    text = latex(*times(FLOAT_LINES // 2 + 1, ("a.k", "a.l")))
    assert [kind for kind, _, _ in sound(text)] == ["longtable"]
    assert text.count("\\rotatebox{90}{a.k}") == 2
    assert "Overfull" not in compiled(text)
