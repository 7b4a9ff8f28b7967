"""Rules of the repository: lengths of files, names of classes, and the short run of the tests."""

import ast
from collections import Counter

import pytest

from support.pages import ROOT

FOLDERS, SUFFIXES = ("bench", "cuda", "kernels", "tests", "tools"), {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp"}


def test_no_file_of_code_has_more_than_500_lines():
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    assert [path.relative_to(ROOT) for path in files if len(path.read_text().splitlines()) > 500] == []


def test_no_name_of_a_class_is_used_twice_in_bench():
    trees = (ast.walk(ast.parse(path.read_text())) for path in (ROOT / "bench").rglob("*.py"))
    names = Counter(node.name for tree in trees for node in tree if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


TESTS = """
import pytest
def test_short(): pass
@pytest.mark.long
def test_long(): pass
@pytest.mark.parametrize("i", range(3))
def test_skipped(i): pytest.skip("no such thing here")
def test_skipped_too(): pytest.skip("nor that")
"""
SETTINGS = """
[tool.pytest.ini_options]
addopts = "-p no:cacheprovider -q"
markers = ["long: left out"]
"""


@pytest.fixture
def output(tmp_path, python_in):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    (tmp_path / "test_all_kinds.py").write_text(TESTS)

    def run(*words):
        done = python_in(tmp_path, "-m", "pytest", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_the_short_run_leaves_out_long_tests_and_prints_each_reason_once(output, processes):
    lines = output(*processes)
    assert "make test-all runs 1 more tests" in lines
    assert lines[-1].startswith("1 passed, 4 skipped")
    assert [line for line in lines if "skipped: " in line] == ["3 skipped: no such thing here", "1 skipped: nor that"]


@pytest.mark.parametrize(
    "words", [("--all", "-n", "2"), ("test_all_kinds.py::test_short", "test_all_kinds.py::test_long")]
)
def test_long_tests_run_with_all_and_by_their_names(output, words):
    lines = output(*words)
    assert lines[-1].startswith("2 passed")
    assert not [line for line in lines if "make test-all" in line]
