"""What comes from others: texts on a terminal, and paths that may be no files."""

import os
import socket
from pathlib import Path

import pytest

from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.text import MOST, escaped, one_line, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("m % 4, not 33", "m % 4, not 33"),
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\r\x07\x00b", r"a\r\x07\x00b"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("größer als 中", "größer als 中"),
    ],
)
def test_control_characters_are_written_out(text, shown):
    assert escaped(text) == shown == one_line(text)


def test_what_is_one_line_already_stays_as_it_is():
    long = one_line("é\x1b" * 10_000_000)
    assert len(long) <= MOST
    assert one_line(long) == long
    assert long.isprintable()


def test_a_short_text_that_becomes_long_by_escaping_is_cut_and_keeps_its_end():
    line = one_line("\x01" * 250 + "remedy")
    assert len(line) <= MOST
    assert line.endswith("remedy")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\n\ttwo\n", "one\n\ttwo\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://a.b\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x1b(Bascii\x1b7\x1bc", "ascii"),
        ("\x9b31mred\x9d0;title\x9cshown", "redshown"),
        ("10 %\r20 %\r\ndone", "10 %\n20 %\ndone"),
        ("bell\x07 back\x08 nul\x00 \u202ereversed", "bell back nul reversed"),
        ("cut \x1b[3", "cut "),
        ("cut \x1b]0;tit", "cut "),
        ("\x1b", ""),
    ],
)
def test_commands_to_a_terminal_are_left_out(text, shown):
    assert plain(text) == shown


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
