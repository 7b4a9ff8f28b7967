"""Watch a file and the headers beside it, and copy each saved version to a separate folder."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from kernelmark.bench.plan.files import require_file

#: Seconds between two checks of the files.
POLL_S = 0.2
#: Contents by name: the watched file and the headers in its folder, which it may include.
Files = Mapping[str, bytes]


class Version(msgspec.Struct, frozen=True):
    """A saved version of the file: a copy, with copies of the headers in its folder. number: 0 for another file."""

    number: int
    source: Path
    original: Path

    @property
    def name(self) -> str:
        """Return `version 2`, or `other.cu` for the file that versions are compared with."""
        return f"version {self.number}" if self.number else self.original.name

    def told(self, text: str) -> str:
        """Return the output of a compiler or checker with the names of the user's files."""
        return text.replace(f"{self.source.parent}/", str(self.original).removesuffix(self.original.name))


def saves(file: Path) -> Iterator[Files]:
    """Yield the contents of the files now, and after each change."""
    known: Files | None = None
    looked_at: object = None
    while True:
        stamps = _stamps(file)
        time.sleep(POLL_S)
        if stamps is None or stamps == looked_at or stamps != _stamps(file):
            continue  # gone, known, or still being written
        looked_at, files = stamps, contents(file)
        if files is not None and files != known:
            known = files
            yield files


def _watched(file: Path) -> list[Path]:
    """Return the file and the headers in its folder. Raises UsageError for a file that is none, such as a pipe."""
    require_file(file)
    return [file, *sorted(header for header in file.parent.glob("*.cuh") if header.is_file())]


def _stamps(file: Path) -> list[tuple[str, int, int, int]] | None:
    """Return the stamps that change when a file is saved; None while an editor has one out of the way."""
    try:
        stats = [(path.name, path.stat()) for path in _watched(file)]
    except FileNotFoundError:
        return None
    return [(name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats]


def contents(file: Path) -> Files | None:
    """Return the file and the headers in its folder by name, or None if one is missing."""
    try:
        return {path.name: path.read_bytes() for path in _watched(file)}
    except FileNotFoundError:
        return None


def keep(files: Files, file: Path, folder: Path, number: int) -> Version:
    """Copy this version to a folder in `folder`, so that a later save does not change it."""
    place = folder / str(number)
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(_including_copies(content, file.resolve().parent.name, files))
    return Version(number, place / file.name, file)


def _including_copies(content: bytes, folder: str, files: Files) -> bytes:
    """Return the content with the copies included; a name with the folder, as in `cuda/`, would find today's files."""
    for name in files:
        content = content.replace(f'"{folder}/{name}"'.encode(), f'"{name}"'.encode())
    return content
