"""A store where nothing can be written: it is shown, exported and compared; what it lacks is reported in one line."""

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from kernelmark.bench.record.store import Store
from support.compared import add, begin

READING = (
    ("runs",),
    ("show", "base"),
    ("show", "base", "--json"),
    ("export", "base"),
    ("compare", "base", "20260201-new"),
    ("crossover", "copy/m3n5/f32", "base"),
)


@pytest.fixture
def read_only(small_disk):
    """Put files on a disk of their own, of which nothing but reading is possible afterwards."""

    def of(*paths):
        disk = small_disk("8m")
        for path in paths:
            shutil.copy(path, disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        return disk

    return of


@pytest.fixture
def unfinished(store):
    """The files of a store whose rows have not all reached the first of them."""
    begin(store, "20260101-old", name="base", planned=1)
    add(store, "20260101-old", "m3n5/f32", (1e-3, 1.1e-3))
    found = [store.path, store.path.with_name("results.db-wal"), store.path.with_name("results.db-shm")]
    assert found[1].stat().st_size > 0
    return found


def test_a_store_on_a_read_only_disk_can_be_read(called, two_runs, read_only):
    db = str(read_only(two_runs) / "results.db")
    for words in READING:
        done = called(*words, "--db", db)
        assert (done.status, done.err) == (0, ""), words
        assert done.out == called(*words, "--db", two_runs).out.replace(two_runs, db)


@pytest.mark.long
def test_processes_show_export_and_report_a_store_on_a_read_only_disk(kernelmark, two_runs, read_only, tmp_path):
    db = str(read_only(two_runs) / "results.db")
    for words in (("show", "base"), ("export", "base"), ("report", "base", "--out", "out")):
        done = kernelmark(*words, "--db", db)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert (tmp_path / "out" / "index.html").is_file()


def test_a_store_on_a_read_only_disk_cannot_be_written_to(called, two_runs, read_only):
    db = str(read_only(two_runs) / "results.db")
    for words, found in (
        (("run", "copy/m4n4/f32"), ": cannot be written: "),
        (("runs", "--delete", "base"), ".lock: cannot be opened: Read-only file system"),
    ):
        line = called(*words, "--db", db).refusal
        assert line.startswith(f"kernelmark: {db}")
        assert found in line


def test_rows_that_have_not_reached_the_file_are_read_where_they_can_be(called, unfinished, read_only):
    printed = called("show", "base", "--db", str(read_only(*unfinished) / "results.db")).printed
    assert "copy/m3n5/f32" in printed


def test_rows_that_have_not_reached_the_file_and_cannot_be_read_are_told(complaint, unfinished, read_only):
    db = read_only(*unfinished[:2]) / "results.db"
    line = complaint(lambda: Store(db, create=False))
    assert f"{db}-wal has rows of it and cannot be read where nothing can be written; copy both elsewhere" in line


def test_an_older_store_on_a_read_only_disk_is_named_with_its_remedy(complaint, tmp_path, read_only):
    with closing(sqlite3.connect(tmp_path / "older.db")) as older:
        older.executescript((Path(__file__).parents[1] / "data" / "schema4.sql").read_text())
    db = read_only(tmp_path / "older.db") / "older.db"
    line = complaint(lambda: Store(db, create=False))
    assert line == f"{db}: has schema 4, which becomes 10 only where it can be written; copy it to another folder"
