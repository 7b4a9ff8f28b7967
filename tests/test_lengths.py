"""The cap on the length of a file."""

from support.pages import ROOT

FOLDERS, SUFFIXES = ("bench", "cuda", "kernels", "tests", "tools"), {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp"}


def test_no_file_of_code_has_more_than_500_lines():
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    assert [path.relative_to(ROOT) for path in files if len(path.read_text().splitlines()) > 500] == []
