"""Collects from the source what bench and kernels use of the packages of a GPU."""

from collections.abc import Iterator
from pathlib import Path

from gpu_reader import LIBCUDA, PACKAGES, ROOT, Reader
from gpu_types import FILES
from gpu_use import Use


class Untyped(Exception):
    """A value of a package whose type is not known, of which something is asked."""


def sources(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield the modules that use a package of a GPU, with their text."""
    for folder in ("bench", "kernels"):
        for path in sorted((root / folder).rglob("*.py")):
            file, text = str(path.relative_to(root)), path.read_text()
            imports = (f"{verb} {name}" for verb in ("import", "from") for name in PACKAGES)
            if file in FILES or LIBCUDA in text or any(words in text for words in imports):
                yield file, text


def uses_of(file: str, text: str) -> list[Use]:
    """Return what a module uses. Raises Untyped where the type of a value of a package is not known."""
    reader = Reader(file, text)
    for _ in range(3):
        reader.read()
    if reader.errors:
        raise Untyped("\n".join(reader.errors))
    called = {(use.name, use.span[0]) for use in reader.uses if use.arguments}
    return [use for use in dict.fromkeys(reader.uses) if use.arguments or (use.name, use.span[0]) not in called]


def all_uses() -> list[Use]:
    """Return what bench and kernels use, in the order of files and lines."""
    return [use for file, text in sources() for use in uses_of(file, text)]
