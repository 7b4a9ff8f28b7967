"""What a session of pytest prints at its end: kernelmark's tables, and pytest-benchmark's where it is asked for."""

import pytest

from kernelmark.bench.pytest_session import COLUMNS, LINES, fitting
from support.runs import NT, ONLY, outcomes, rows_in


@pytest.fixture
def bench(python_in, tmp_path):
    """Benchmarks by pytest in this test's folder."""
    return lambda *words: python_in(tmp_path, *ONLY, "--km-mode", "hot", *words)


def test_k_selects_contenders_and_their_baseline_is_measured_without_an_item(bench, tmp_path):
    done = bench("--km-suite", NT, "--km-no-ceilings", "-k", "scipy.sgemm and not colmajor")
    assert (done.returncode, outcomes(done)) == (0, {"gemm/scipy.sgemm": "PASSED"})
    rows = {row.kernel: row for row in rows_in(tmp_path)}
    assert rows.keys() == {"gemm/numpy.matmul", "gemm/scipy.sgemm"}
    assert rows["gemm/scipy.sgemm"].speedup > 0


OWN = """
def test_mine(benchmark):
    benchmark(sum, [1])
"""
#: A plug-in of pytest for a session without the package that draws histograms.
WITHOUT_PYGAL = "import sys\nsys.modules['pygal'] = None\n"


def test_without_pygal_histograms_are_refused_in_a_line_and_only_foreign_benchmarks_are_in_the_other_table(
    bench, tmp_path
):
    (tmp_path / "test_own.py").write_text(OWN)
    (tmp_path / "no_pygal.py").write_text(WITHOUT_PYGAL)
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
def test_histograms_are_drawn_beside_the_table_that_they_belong_to(bench, tmp_path):
    pytest.importorskip("pygal")
    selection = ("--km-suite", NT, "--km-kernels", "gemm/numpy.matmul", "--km-no-ceilings")
    done = bench(*selection, "--benchmark-histogram=out/h", "--benchmark-group-by=param:kernel")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["h-kernel=gemm_numpy.matmul.svg"]
    assert "Rounds" in done.stdout


@pytest.mark.long
def test_a_long_session_ends_in_a_screen_of_tables_and_the_command_for_the_rest(bench, tmp_path, kernelmark_in):
    (tmp_path / "s.toml").write_text("[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = {linear = [1, 30, 1]}\nn = 5\n")
    done = bench("--km-suite", "s.toml", "--km-kernels", "copy/numpy.*", "--km-no-ceilings")
    summary = done.stdout.partition("kernelmark run ")[2].splitlines()
    (pointer,) = [line for line in summary if "kernelmark show" in line]
    assert summary.index(pointer) <= LINES + 1
    shown = kernelmark_in(tmp_path, *pointer.split("`")[1].split()[1:])
    assert "copy/m30n5/f32 " in shown.stdout


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
def test_a_kernel_with_a_tile_is_an_item_of_its_own(bench):
    kernels = ("copy/numba.streaming", "copy/numba.streaming@LINES=2")
    selection = [word for kernel in kernels for word in ("--km-kernels", kernel)]
    done = bench("--km-suite", "copy/m64n512/f32", *selection)
    passed = {name.partition(",")[0]: outcome for name, outcome in outcomes(done).items()}
    assert (done.returncode, passed) == (0, dict.fromkeys(kernels, "PASSED"))
