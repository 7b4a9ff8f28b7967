"""The hooks for pytest-benchmark: cases as test items, timed by the device's clock, and tables at the session's end."""

import json
import shutil
import statistics

import pytest

from kernelmark.bench.pytest_session import COLUMNS, LINES, fitting
from kernelmark.bench.record.store import Store
from support.plugins import ADVERSARIES, FAULTS
from support.runs import BENCH, NT, ONLY, outcomes, rows_in


@pytest.fixture
def bench(python_in, tmp_path):
    return lambda *words: python_in(tmp_path, *ONLY, "--km-mode", "hot", *words)


@pytest.fixture(scope="module")
def session(tmp_path_factory, python_in):
    folder = tmp_path_factory.mktemp("session")
    shutil.copy(ADVERSARIES, folder / "wrong.py")  # pytest's root is the common folder of its arguments
    kernels = ("gemm/numpy.matmul", "gemm/scipy.sgemm", "gemm/scipy.dgemm", "gemm/test.zeros")
    selection = [word for kernel in kernels for word in ("--km-kernels", kernel)]
    files = ("--km-csv", "deep/rows.csv", "--benchmark-json", "b.json")
    done = python_in(folder, *ONLY, "--km-suite", NT, "--km-plugin", "wrong.py", *selection, *files)
    benchmarks = json.loads((folder / "b.json").read_text())["benchmarks"]
    return folder, done, {b["extra_info"]["kernel"]: b for b in benchmarks}


def test_a_wrong_kernel_fails_with_its_reason_an_unsupported_one_is_skipped_and_others_pass(session):
    _, done, _ = session
    assert done.returncode == 1
    expected = {"gemm/numpy.matmul": "PASSED", "gemm/scipy.sgemm": "PASSED", "gemm/test.zeros": "FAILED"}
    assert outcomes(done) == expected
    assert f"wrong: gemm/test.zeros on {NT}: c[0, 0] is 0, expected " in done.stdout
    assert "Traceback" not in done.stdout
    assert "Benchmark fixture was not used" not in done.stdout
    assert "unsupported: gemm/scipy.dgemm has no f32 path; it has f64" in done.stdout
    assert "1 skipped" in done.stdout


def test_only_right_kernels_have_a_benchmark_with_the_statistics_of_their_samples(session):
    assert set(session[2]) == {"gemm/numpy.matmul", "gemm/scipy.sgemm"}
    for benchmark in session[2].values():
        stats, row = benchmark["stats"], benchmark["extra_info"]
        for name in ("median", "min", "mean"):
            assert stats[name] == pytest.approx(row[f"time_s_{name}"], rel=1e-6)
        assert stats["rounds"] == len(stats["data"]) == row["samples"] >= 6
        assert statistics.median(stats["data"]) == stats["median"]
        assert stats["iterations"] == 1


def test_extra_info_is_the_row_and_params_group_and_timer_identify_the_case(session):
    row = session[2]["gemm/scipy.sgemm"]["extra_info"]
    assert (row["problem"], row["status"], row["mode"]) == (NT, "ok", "cold")
    assert row["gflop_per_s"] == pytest.approx(2 * 8**3 / row["time_s_median"] / 1e9)
    assert row["baseline"] == "gemm/numpy.matmul"
    assert row["speedup"] > 0
    assert 0 < row["roofline_pct"] < 100
    for kernel, benchmark in session[2].items():
        assert (benchmark["group"], benchmark["options"]["timer"]) == (f"{NT} cold", "kernelmark.device_time")
        params = benchmark["params"]
        assert params.pop("threads") == benchmark["extra_info"]["threads"]
        assert params == {"suite": NT, "problem": NT, "kernel": kernel, "isa": ""}


def test_the_terminal_summary_is_the_only_table_and_the_rows_are_in_store_and_csv_too(session, kernelmark_in):
    assert "speedup against" in session[1].stdout
    assert "Rounds" not in session[1].stdout
    summary = session[1].stdout.partition("kernelmark run ")[2]
    assert "GFLOP/s" in summary
    assert f"{NT}   cold, " in summary
    assert "baseline" in summary
    assert "wrong: gemm/test.zeros (t1): c[0, 0] is 0" in summary
    assert "4 rows: 2 ok, 1 wrong, 1 unsupported" in summary or "4 rows: 2 ok, 1 unsupported, 1 wrong" in summary
    exported = kernelmark_in(session[0], "export", "--db", "results.db")
    assert exported.stdout == (session[0] / "deep" / "rows.csv").read_text()
    assert len(exported.stdout.splitlines()) == 5


@pytest.mark.parametrize(("factor", "code"), [(1e-3, 1), (1e3, 0)])
def test_a_median_that_is_slower_than_the_compared_one_fails_the_session(session, bench, tmp_path, factor, code):
    saved = json.loads((session[0] / "b.json").read_text())
    for stats in (benchmark["stats"] for benchmark in saved["benchmarks"]):
        stats["data"] = [factor * time for time in stats["data"]]
        for name in ("min", "max", "mean", "median", "stddev", "q1", "q3", "iqr", "total", "hd15iqr", "ld15iqr"):
            stats[name] *= factor
    (tmp_path / "0001_before.json").write_text(json.dumps(saved))
    compare = ("--benchmark-compare=0001_before.json", "--benchmark-compare-fail=median:5%")
    done = bench("--km-suite", NT, "--km-kernels", "gemm/numpy.matmul", "--km-no-ceilings", *compare)
    text = done.stdout + done.stderr
    assert ("Performance has regressed" in text) == bool(code)
    assert "(NOW)" in text
    assert (done.returncode != 0) == bool(code), text


@pytest.mark.parametrize(
    "compare", ["--benchmark-compare=0007", pytest.param("--benchmark-autosave", marks=pytest.mark.long)]
)
def test_a_comparison_without_an_earlier_session_is_refused_before_anything_is_measured(bench, tmp_path, compare):
    done = bench("--km-suite", NT, compare, "--benchmark-compare-fail=median:5%", "--km-db", "none.db")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--benchmark-compare-fail: needs --benchmark-compare and an earlier session" in done.stdout + done.stderr
    assert not (tmp_path / "none.db").exists()


def test_several_suites_and_every_option_of_the_command_are_taken(bench, tmp_path):
    words = ("--km-suite", "copy/m3n5/f32", "--km-suite", "transpose/m3n5/f32/in", "--km-device", "cpu")
    more = ("--km-seed", "7", "--km-rel-ci", "0.5", "--km-launcher", "pycuda", "--km-no-ceilings", "--km-timeout", "9")
    done = bench(*words, *more, "--km-kernels", "*numpy.copyto", "--km-kernels", "*imatcopy")
    assert done.returncode == 0
    assert "copy/m3n5/f32   hot" in done.stdout
    assert "transpose/m3n5/f32/in   hot" in done.stdout
    assert len(outcomes(done)) == 2
    with Store(tmp_path / "results.db") as store:
        plan = store.run(store.run_ids()[-1]).plan
    options = {"seed": 7, "rel_ci": 0.5, "launcher": "pycuda", "ceilings": False, "timeout_s": 9.0}
    assert {name: plan[name] for name in options} == options


def test_plain_pytest_collects_no_benchmark(python_in, tmp_path):
    done = python_in(tmp_path, *BENCH)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "no tests ran" in done.stdout
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--km-suite", "smokey"), "suite 'smokey': is not a suite"),
        (("--km-suite", NT, "--km-kernels", "gemm/numpy.matmull"), "did you mean gemm/numpy.matmul?"),
        (("--km-timeout", "0"), "--km-timeout: is '0', expected a number above 0"),
        pytest.param(("--km-suite", NT, "--km-db", "file/x.db"), "cannot be used as a store", marks=pytest.mark.long),
    ],
)
def test_bad_usage_is_refused_in_one_line_without_a_traceback(bench, tmp_path, words, refusal):
    (tmp_path / "file").write_text("")
    done = bench(*words)
    text = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in text.splitlines() if refusal in line]
    assert "kernelmark: " in line or "argument --km-" in line
    assert "Traceback" not in text
    assert "plugin.py" not in text
    assert "no case collected" not in text


def test_options_without_a_case_are_reported_with_the_words_that_collect_cases(python_in, tmp_path):
    done = python_in(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark-only", "--km-suite", NT)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "kernelmark: --km-... given but no case collected; add --pyargs kernelmark.bench --ben" in done.stdout


def test_kernelmark_is_inert_in_another_projects_tests(python_in, tmp_path):
    (tmp_path / "test_mine.py").write_text(
        "import sys\n\ndef test_mine(benchmark):\n    benchmark(sum, [1])\n"
        "    assert not {'kernelmark.bench.run.job', 'kernelmark.bench.plan.discovery'} & set(sys.modules)\n"
    )
    done = python_in(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--benchmark-only")
    assert done.returncode == 0
    assert "1 passed" in done.stdout
    assert "kernelmark run" not in done.stdout


def test_a_kernel_that_crashes_its_worker_fails_only_its_own_item(bench):
    words = ("--km-suite", "copy/m8n8/f32", "--km-plugin", FAULTS, "--km-kernels", "copy/bad.aborts")
    done = bench(*words, "--km-kernels", "copy/numpy.copyto", "--km-no-ceilings")
    assert "1 failed, 1 passed" in done.stdout
    assert "crashed: copy/bad.aborts on copy/m8n8/f32: verification: SIGABRT" in done.stdout


@pytest.mark.long
def test_selected_items_of_variants_share_a_job(bench, tmp_path):
    axes = "layout = ['NT', 'NN']\npoints = [[8, 8, 8]]\ntogether = ['layout']\n"
    (tmp_path / "s.toml").write_text(f"[[sweep]]\nop = 'gemm'\ndtype = 'f32'\n{axes}")
    assert bench("--km-suite", "s.toml", "--km-kernels", "gemm/numpy.*", "-k", "not tnn").returncode == 0
    (first, job), (second, same) = [(row.problem, row.job) for row in rows_in(tmp_path)]
    assert (first, second, job) == (NT, NT.replace("NT", "NN"), same)


def test_k_selects_contenders_and_their_baseline_is_measured_without_an_item(bench, tmp_path):
    done = bench("--km-suite", NT, "--km-no-ceilings", "-k", "scipy.sgemm and not colmajor")
    assert (done.returncode, outcomes(done)) == (0, {"gemm/scipy.sgemm": "PASSED"})
    rows = {row.kernel: row for row in rows_in(tmp_path)}
    assert rows.keys() == {"gemm/numpy.matmul", "gemm/scipy.sgemm"}
    assert rows["gemm/scipy.sgemm"].speedup > 0


def test_without_pygal_a_line_names_the_remedy_and_the_other_table_has_only_foreign_benchmarks(bench, tmp_path):
    (tmp_path / "test_own.py").write_text("def test_mine(benchmark):\n    benchmark(sum, [1])\n")
    (tmp_path / "no_pygal.py").write_text("import sys\nsys.modules['pygal'] = None\n")
    selection = ("--km-suite", NT, "--km-kernels", "gemm/numpy.matmul", "--km-no-ceilings")
    done = bench("-p", "no_pygal", "test_own.py", *selection, "--benchmark-histogram", "--benchmark-autosave")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "pygal" in line]
    assert line == "--benchmark-histogram: pygal is not installed; pip install 'kernelmark[histogram]'"
    theirs, ours = done.stdout.split("kernelmark run ")
    assert "test_mine" in theirs
    assert "test_kernel" not in theirs.partition("Rounds")[2]
    assert "numpy.matmul" in ours
    assert "Saved benchmark data in" in done.stdout + done.stderr


@pytest.mark.long
def test_histograms_are_drawn_together_with_their_table(bench, tmp_path):
    pytest.importorskip("pygal")
    selection = ("--km-suite", NT, "--km-kernels", "gemm/numpy.matmul", "--km-no-ceilings")
    done = bench(*selection, "--benchmark-histogram=out/h", "--benchmark-group-by=param:kernel")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["h-kernel=gemm_numpy.matmul.svg"]
    assert "Rounds" in done.stdout


@pytest.mark.long
def test_a_long_session_ends_in_a_screen_of_tables_and_the_command_for_the_rest(bench, tmp_path, kernelmark_in):
    (tmp_path / "s.toml").write_text("[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = {linear = [1, 16, 1]}\nn = 5\n")
    done = bench("--km-suite", "s.toml", "--km-kernels", "copy/numpy.*", "--km-no-ceilings")
    summary = done.stdout.partition("kernelmark run ")[2].splitlines()
    (pointer,) = [line for line in summary if "kernelmark show" in line]
    assert summary.index(pointer) <= LINES + 1
    assert "copy/m16n5/f32 " in kernelmark_in(tmp_path, *pointer.split("`")[1].split()[1:]).stdout


TABLE = "\n".join(["title", *(f"row {i}" for i in range(18))])
WIDE = "w" * (COLUMNS + 1)


@pytest.mark.parametrize(
    ("tables", "shown"),
    [
        ([], []),
        ([TABLE] * 3, [TABLE] * 3),
        ([TABLE] * 4, [*[TABLE] * 3, "and 1 more table; all rows: `show`"]),
        (["x\n" * 60, "y"], ["x\n" * 58 + "x", "and 2 more tables; all rows: `show`"]),
        ([WIDE] * 21, [*[WIDE] * 20, "and 1 more table; all rows: `show`"]),
    ],
)
def test_tables_are_shown_as_far_as_they_fit_into_sixty_lines_of_120_columns(tables, shown):
    assert list(fitting(tables, "show")) == shown


@pytest.mark.long
def test_a_kernel_with_a_tile_has_its_own_item(bench):
    kernels = ("copy/numba.streaming", "copy/numba.streaming@LINES=2")
    selection = [word for kernel in kernels for word in ("--km-kernels", kernel)]
    done = bench("--km-suite", "copy/m64n512/f32", *selection)
    passed = {name.partition(",")[0]: outcome for name, outcome in outcomes(done).items()}
    assert (done.returncode, passed) == (0, dict.fromkeys(kernels, "PASSED"))
