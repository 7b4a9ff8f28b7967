"""What a shell completes, as its script asks for it."""

import pytest

HEAVY = ("cupy", "cuda.core", "pycuda", "torch", "numba", "pyfftw", "scipy", "matplotlib", "ml_dtypes", "pandas")
MAIN = f"""
import atexit
import sys
from kernelmark.bench.cli import main

sys.argv = ["kernelmark"]
atexit.register(lambda: sys.stderr.write(" ".join(name for name in {HEAVY!r} if name in sys.modules)))
main()
"""


@pytest.fixture
def complete(python_in, tmp_path):
    """What bash is offered for the last word of a line; nothing heavy is imported and nothing complained about."""

    def of(line):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_KERNELMARK_COMPLETE": "bash_complete"}
        done = python_in(tmp_path, "-c", MAIN, **words)
        assert (done.returncode, done.stderr) == (0, "")
        return [item.partition(",")[2] for item in done.stdout.splitlines() if item]

    return of


@pytest.mark.long
def test_suites_and_suite_files_complete(complete, tmp_path):
    (tmp_path / "found.toml").touch()
    assert complete("kernelmark run fou") == ["founding", "found.toml"]


@pytest.mark.long
def test_suite_files_of_a_folder_complete(complete, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mine.toml").touch()
    assert complete("kernelmark crossover deep/m") == ["deep/mine.toml"]


def test_runs_complete_by_name_and_id_newest_first(complete, two_runs):
    assert complete(f"kernelmark show --db {two_runs} ") == ["20260201-new", "base", "20260101-old"]


@pytest.mark.long
@pytest.mark.parametrize("words", ["run --resume", "runs --delete", "compare", "compare base", "export", "claims"])
def test_runs_complete_wherever_a_run_is_taken(complete, two_runs, words):
    command, *rest = words.split(" ")
    assert complete(" ".join(("kernelmark", command, "--db", two_runs, *rest, "ba"))) == ["base"]


def test_kernels_complete(complete):
    assert complete("kernelmark run smoke --kernels gemm/numpy.m") == ["gemm/numpy.matmul"]


@pytest.mark.long
@pytest.mark.parametrize("words", ["show ", "show --db absent.db ", "inspect --kernels none"])
def test_where_there_is_nothing_to_complete_nothing_is_offered(complete, tmp_path, words):
    (tmp_path / "kernelmark.toml").write_text("nonsense")
    assert complete(f"kernelmark {words}") == []


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(python_in, tmp_path, shell):
    done = python_in(tmp_path, "-c", MAIN, _KERNELMARK_COMPLETE=f"{shell}_source")
    assert done.returncode == 0
    assert "_kernelmark_completion" in done.stdout
