"""Fails on modules above 500 lines and functions above 45, tests and CUDA sources included: `make lint` runs it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULE, FUNCTION = 500, 45
SUFFIXES = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp")


def complaints(file: str, text: str) -> Iterator[str]:
    """Yield a line for the module, if it is too long, and one for each function that is."""
    if (lines := len(text.splitlines())) > MODULE:
        yield f"{file}: {lines} lines, expected at most {MODULE}: split it along an idea"
    if not file.endswith(".py"):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION:
                yield f"{file}:{node.lineno}: {node.name} has {length} lines, expected at most {FUNCTION}"


def main() -> int:
    """Check every file that git tracks; return 1 where something is too long, else 0."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [file for file in listed.splitlines() if file.endswith(SUFFIXES) and (ROOT / file).is_file()]
    found = [line for file in files for line in complaints(file, (ROOT / file).read_text())]
    print("\n".join(found), end="\n" * bool(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
