"""What can be opened as a file: everything that is none is refused before it is opened."""

import os
import socket
from pathlib import Path

import pytest

from kernelmark.bench.plan.files import require_file


def named_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def listening(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as found:
        found.bind(str(folder / "socket"))
    return folder / "socket"


def linked(folder: Path) -> Path:
    (folder / "link").symlink_to(named_pipe(folder))
    return folder / "link"


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda folder: folder, "is a folder"),
        (named_pipe, "is a named pipe"),
        (linked, "is a named pipe"),
        (listening, "is a socket"),
        (lambda folder: Path("/dev/null"), "is a device"),
    ],
    ids=["folder", "pipe", "link", "socket", "device"],
)
def test_what_is_no_file_is_refused_by_its_kind(tmp_path, complaint, make, found):
    path = make(tmp_path)
    assert complaint(lambda: require_file(path)) == f"{path}: {found}, expected a file"


def test_a_file_and_what_is_not_there_are_left_to_whoever_opens_them(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "absent", "file/below", "n" * 300):
        require_file(tmp_path / name)
