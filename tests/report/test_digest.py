"""The output at the end of `run`: a line per problem or per operation, each note once, the verdict last."""

import pytest

from kernelmark.bench.record import store as stores
from kernelmark.bench.report import digest
from kernelmark.bench.report.digest import run_digest
from support.rows import DISTURBED, fail, put

NT, NN, WIDE = "gemm/m8n8k8/f32/NT", "gemm/m8n8k8/f32/NN", "conv/n8c64h56w56k64r3s3pad1stride2/f32/nchw/fprop"
BASE = "gemm/numpy.matmul"
FOUNDING, DIMS = "gemm/m1024n2048k26752/f32/NT", {"m": 1024, "n": 2048, "k": 26752}
FASTER = {"baseline": BASE, "speedup": 1.25, "speedup_ci95_low": 1.2, "speedup_ci95_high": 1.3}


@pytest.fixture
def printed(begun, monkeypatch):
    monkeypatch.setattr(stores, "default_store", lambda: begun.path)

    def of(columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        parts = [part for part in run_digest(begun, "r1") if part]
        assert max(len(line) for part in parts for line in part.splitlines()) <= columns
        return parts

    return of


def two_problems(store):
    for problem in (NT, NN):
        put(store, problem, BASE, taken=[1.25e-3] * 9, baseline=BASE)
    put(store, NT, "gemm/openblas.tnn", taken=[1e-3] * 9, **FASTER, roofline_pct=81.25, bound_by="compute")


def test_a_problem_has_a_line_below_the_setting_and_the_baseline_of_its_operation(begun, printed):
    two_problems(begun)
    lines, notes, verdict = printed()
    assert lines.splitlines() == [
        "  problem        fastest          time  speedup           roof %",
        "  -------------  ------------  -------  ----------------  ------",
        "gemm: 2 threads, cold, fp32; speedup against numpy.matmul",
        "  m8n8k8/f32/NT  openblas.tnn  1.00 ms  1.25x [1.2, 1.3]    81.2",
        "  m8n8k8/f32/NN  numpy.matmul  1.25 ms  baseline",
    ]
    assert notes.splitlines()[::2] == [
        "tnn: transpose B out of place, then multiply as NN",
        "3 rows: 3 ok; `kernelmark show` prints a table per problem",
    ]
    assert verdict.startswith("Verdict: Fastest: openblas.tnn, ")


def test_names_that_do_not_fit_beside_their_times_stand_above_them(begun, printed):
    two_problems(begun)
    printed(40)
    put(begun, WIDE, "conv/cpu.im2col_with_a_long_name", 1e-3)
    narrow = printed(60)[0].splitlines()
    assert narrow[3:5] == [
        "gemm/m8n8k8/f32/NT; speedup against numpy.matmul",
        "  openblas.tnn                 1.00 ms  1.25x [1.2, 1.3]",
    ]
    assert sum("m8n8k8" in line for line in printed(200)[0].splitlines()) == 2


def test_the_product_of_the_founding_text_stands_first(begun, printed):
    two_problems(begun)
    put(begun, FOUNDING, BASE, 0.5, DIMS, baseline=BASE)
    assert printed()[0].splitlines()[3].startswith("  m1024n2048k26752/f32/NT")


def test_a_run_of_one_problem_prints_its_fastest_kernels_and_points_to_the_rest(begun, printed):
    put(begun, NT, BASE)
    assert printed()[1].splitlines()[-1] == "1 row: 1 ok"
    for i in range(digest.MOST_LINES + 4):
        put(begun, NT, f"gemm/some.k{i}", 1.1e-3 + 1e-5 * i)
    table, notes, _ = printed()
    assert table.splitlines()[-1] == "  5 slower kernels are left out"
    assert sum(" ms " in line for line in table.splitlines()) == digest.MOST_LINES
    assert notes.splitlines()[-1].endswith(" ok; `kernelmark show` prints a table per problem")


def test_a_suite_of_many_problems_has_a_line_an_operation(begun, printed):
    for m in range(digest.MOST_LINES + 1):
        put(begun, f"gemm/m{m + 9}n8k8/f32/NT", BASE, suite="smoke")
    fail(begun, NT, "gemm/a.none", "unsupported", "is not installed", suite="smoke")
    fail(begun, NT, BASE, "unsupported", "has no path", suite="smoke", mode="hot")
    two_problems(begun)
    lines, operations, notes, _ = printed()
    assert notes.splitlines()[0] == "unsupported: gemm/a.none: is not installed"
    assert "has no path" not in notes
    assert lines.count("f32/N") == 2
    assert [line.split() for line in operations.splitlines()] == [
        ["smoke:", "22", "problems,", "by", "operation"],
        ["operation", "problems", "kernels", "rows", "ok", "others"],
        ["---------", "--------", "-------", "----", "--", "-------------"],
        ["gemm", "22", "2", "23", "21", "2", "unsupported"],
    ]


def test_rows_without_a_result_are_named_the_first_five_and_those_that_failed_a_check_before_others(begun, printed):
    two_problems(begun)
    fail(begun, NT, "gemm/a.big", "oom", "no memory")
    for i in range(5):
        fail(begun, NN, f"gemm/a.bad{i}", "wrong", "c[0] is NaN " + 50 * "x " if i else "c[0] is NaN")
    for problem in (NT, NN):
        fail(begun, problem, "gemm/torch.matmul", "unsupported", "torch is not installed")
    notes = printed()[1].splitlines()
    assert notes[0] == "wrong: gemm/a.bad0 on m8n8k8/f32/NN: c[0] is NaN"
    assert sum(line.startswith("wrong: ") for line in notes) == 5
    assert "and 1 more; `kernelmark show r1` shows all" in notes
    assert "unsupported: gemm/torch.matmul (2 rows): torch is not installed" in notes


def test_commands_for_more_name_a_store_that_is_not_the_default_one(begun):
    for i in range(6):
        fail(begun, NT, f"gemm/a.bad{i}", "crashed", "SIGSEGV")
    two_problems(begun)
    text = " ".join(" ".join(run_digest(begun, "r1")).split())
    assert f"and 1 more; `kernelmark show r1 --db {begun.path}` shows all" in text
    assert f"9 rows: 6 crashed, 3 ok; `kernelmark show --db {begun.path}` prints a table per problem" in text


def test_a_run_in_which_all_fail_names_them_and_has_no_verdict(begun, printed):
    fail(begun, NT, "gemm/a.bad", "crashed", "SIGSEGV")
    title, notes, verdict = printed()
    assert title.startswith(NT)
    assert notes.splitlines()[0] == "crashed: gemm/a.bad: SIGSEGV"
    assert verdict.startswith("There is no verdict: ")


@pytest.mark.parametrize(
    ("product", "dims", "others", "expected"),
    [
        ("gemm/m8n8k8/f32", {}, (), "NT vs NN: slower, 0.8x [0.7, 0.9], numpy.matmul on gemm/m8n8k8/f32."),
        (FOUNDING[:-3], DIMS, ("openblas.tnn",), "OP_T is 25 % slower than OP_N here, "),
    ],
    ids=["without rivals", "of the founding product"],
)
def test_a_ratio_of_variants_that_is_the_verdict_is_no_note(begun, printed, product, dims, others, expected):
    ends = {"against": f"{product}/NN", "ratio": 0.8, "ratio_ci95_low": 0.7, "ratio_ci95_high": 0.9}
    put(begun, f"{product}/NT", BASE, 0.5, dims, **ends)
    put(begun, f"{product}/NN", BASE, 0.4, dims)
    for other in others:
        put(begun, f"{product}/NT", f"gemm/{other}", 0.6, dims)
    *_, notes, verdict = printed()
    assert verdict.startswith(f"Verdict: {expected}")
    assert "NT vs NN" not in notes


def test_marks_are_explained_once(begun, printed):
    low = "the fp32 ceiling was disturbed: its interval is 20 % wide"
    for problem in (NT, NN):
        for kernel in ("gemm/a.b", "gemm/a.c"):
            about = {"roofline_pct": 50.0, "bound_by": "memory", "interval": "within-process"}
            put(begun, problem, kernel, taken=[1e-3, 1.1e-3, 0.9e-3] * 4, disturbed=f"{DISTURBED}; {low}", **about)
    lines, notes, _ = printed()
    assert lines.count("~1.00 ms") == lines.count("~50.0") == lines.count(" = ") == 2
    beginnings = ["~ NOISY: ", "~ roof %:", "= fastest", "one proce", "4 rows: 4"]
    assert [line[:9] for line in notes.splitlines()] == beginnings


def test_a_run_with_too_many_rows_for_a_verdict_counts_them_and_names_the_kernels_that_failed(
    begun, printed, monkeypatch
):
    monkeypatch.setattr(digest, "MOST_JUDGED", 1)
    two_problems(begun)
    fail(begun, NT, "gemm/a.bad")
    operations, notes, end = printed()
    assert operations.splitlines()[-1].split() == ["gemm", "3", "4", "3", "1", "wrong"]
    assert notes.splitlines()[0] == "wrong: gemm/a.bad: 1 row"
    assert end.startswith("no verdict is printed for 4 rows; ")


def test_variants_that_were_measured_in_turn_have_a_line(begun, printed):
    ratio = {"against": NN, "ratio": 1.5, "ratio_ci95_low": 1.4, "ratio_ci95_high": 1.6}
    put(begun, NT, BASE, 1e-3, baseline=BASE, **ratio)
    put(begun, NN, BASE, 1.5e-3, baseline=BASE)
    put(begun, NN, "gemm/some.rival", 3e-3)
    _, notes, verdict = printed()
    assert notes.splitlines()[0] == "NT vs NN: faster, 1.5x [1.4, 1.6], numpy.matmul on gemm/m8n8k8/f32"
    assert "NT vs NN" not in verdict
    assert "NT vs NN" in digest.verdict_line(digest.RunData(begun, "r1"))
