"""The cap on the length of a file, and one owner for each name of a class."""

import ast
from collections import Counter

from support.pages import ROOT

FOLDERS, SUFFIXES = ("bench", "cuda", "kernels", "tests", "tools"), {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp"}


def test_no_file_of_code_has_more_than_500_lines():
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    assert [path.relative_to(ROOT) for path in files if len(path.read_text().splitlines()) > 500] == []


def test_no_name_of_a_class_is_used_twice_in_bench():
    trees = (ast.walk(ast.parse(path.read_text())) for path in (ROOT / "bench").rglob("*.py"))
    names = Counter(node.name for tree in trees for node in tree if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []
