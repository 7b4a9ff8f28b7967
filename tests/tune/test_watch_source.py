"""Saves of a .cu and of the headers beside it, as `kernelmark watch` notices them."""

import os
import threading
from pathlib import Path
from typing import Any

from kernelmark.bench.tune.watch.source import contents, saves


def test_a_save_without_a_change_is_none(tmp_path):
    file = tmp_path / "a.cu"
    file.write_text("one")
    found = saves(file)
    assert next(found) == {"a.cu": b"one"}
    for delay_s, text in ((0.1, "one"), (0.7, "two")):
        threading.Timer(delay_s, file.write_text, [text]).start()
    assert next(found) == {"a.cu": b"two"}


def test_a_header_beside_the_file_is_watched_too(tmp_path):
    for name in ("a.cu", "b.cuh", "c.cu"):
        (tmp_path / name).write_text("one")
    found = saves(tmp_path / "a.cu")
    assert next(found) == {"a.cu": b"one", "b.cuh": b"one"}
    threading.Timer(0.1, (tmp_path / "b.cuh").write_text, ["two"]).start()
    assert next(found) == {"a.cu": b"one", "b.cuh": b"two"}


def test_a_file_that_an_editor_replaces_is_waited_for(tmp_path):
    file = tmp_path / "a.cu"
    file.write_text("one")
    found = saves(file)
    next(found)
    file.unlink()
    threading.Timer(0.3, file.write_text, ["two"]).start()
    assert next(found) == {"a.cu": b"two"}


def test_a_named_pipe_is_refused_and_one_among_the_headers_is_left_out(tmp_path: Path, complaint: Any) -> None:
    (tmp_path / "a.cu").write_text("one")
    os.mkfifo(tmp_path / "b.cuh")
    assert contents(tmp_path / "a.cu") == {"a.cu": b"one"}
    os.mkfifo(tmp_path / "c.cu")
    found = f"{tmp_path}/c.cu: is a named pipe, expected a file"
    assert complaint(lambda: contents(tmp_path / "c.cu")) == found
    assert complaint(lambda: next(saves(tmp_path / "c.cu"))) == found
