"""Stores that are damaged or read-only: commands print one line or what they can read, and write nothing."""

import random
import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from kernelmark.bench.cli.ending import MOST
from kernelmark.bench.measure.measurement import Evidence
from kernelmark.bench.record.store import Layer, Store
from support.compared import add
from support.compared import begin as begin_run
from support.rows import begin, put, varied

#: A statement that damages the store, and a command that reads the store.
WRONG = [
    ("UPDATE result SET threads = 'two'", ("show",)),
    ("UPDATE result SET kernel = x'ff'", ("export",)),
    ("UPDATE result SET reason = CAST(x'c328' AS TEXT)", ("export", "--format", "json")),
    ("UPDATE result SET time_s_median = 'fast'", ("show", "--json")),
    ("UPDATE result SET time_s_median = -1.0", ("export", "--format", "markdown")),
    ("UPDATE result SET status = NULL", ("runs",)),
    ("UPDATE result SET sample_blob = x'00'", ("export", "--format", "json")),
    ("UPDATE result SET sample_blob = x'000000000000f07f'", ("export", "--format", "json")),
    ("UPDATE result SET part_blob = x'00'", ("compare", "r1", "r2")),
    ("UPDATE result SET dims = '{'", ("export",)),
    ("UPDATE run SET suites = '5'", ("runs",)),
    ("UPDATE run SET plan = x'ff'", ("show",)),
    ("""UPDATE run SET plan = '{"processes": "two"}'""", ("show",)),
    ("""UPDATE run SET environment = '{"blas": 3}'""", ("runs",)),
    ("""UPDATE machine SET facts = '{"memory_bytes": "much"}'""", ("show",)),
    ("UPDATE machine SET facts = printf('%.*c', 100000, '[')", ("runs",)),
    ("UPDATE ceiling SET rate = 'fast'", ("show", "r1")),
    ("UPDATE layer SET count = 'several'", ("show", "r1", "--by", "network")),
    ("UPDATE evidence SET found = '{}'", ("show", "r1", "--row", "some.evil")),
    ("DROP TABLE ceiling", ("show",)),
    ("UPDATE run SET run_id = '../' || run_id", ("runs",)),
    ("UPDATE run SET run_id = run_id || char(10)", ("show",)),
    ("UPDATE result SET reason = printf('%.*c', 2000000, 'x') WHERE result_id = 1", ("show", "r1")),
    ("UPDATE result SET reason = printf('%.*c', 2000000, 'x') WHERE result_id = 1", ("compare", "r1", "r2")),
    ("UPDATE result SET sample_blob = zeroblob(40000000) WHERE result_id = 1", ("export", "r1", "--format", "json")),
]
READING = (
    *("runs", "show r1", "show r1 --json", "show r1 --by network", "crossover gemm/m16n16k16/f32/NN r1"),
    *("show r1 --row 'gemm/some.bad gemm/m7n7k7/f32/NN cold t2'", "compare r1 r2"),
    *(f"export r1 --format {style}" for style in ("csv", "json", "markdown", "latex")),
)


@pytest.fixture
def path(store):
    """A closed store with something in every table."""
    varied(store)
    row = put(store, "copy/m2n2/f32", "copy/some.base")
    none = dict.fromkeys(("time_s_median", "time_s_min", "time_s_mean"))
    evil = msgspec.structs.replace(row, kernel="copy/some.evil", status="mistrusted", **none)
    store.add(evil, {}, [], None, evidence=Evidence([1.0], None))
    store.add_layer("r1", Layer("net", "gemm/m16n16k16/f32/NN", "forward", 2))
    store.set_aside("r1", 0, 1, [])
    begin(store, "r2", plan={"devices": ["cpu"], "suites": ["copy/m4n4/f32"]})
    put(store, "gemm/m16n16k16/f32/NN", "gemm/some.base", run_id="r2")
    store.close()
    return store.path


def change(path, sql):
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()


def ended_well(done):
    lines = [line for line in done.err.splitlines() if not line.startswith("partial: ")]
    short = all(len(line) <= MOST and line.isprintable() for line in lines)
    return short and (len(lines) == 1 if done.status == 2 else not lines and done.status in (0, 1))


@pytest.mark.parametrize(("sql", "words"), WRONG, ids=[sql for sql, _ in WRONG])
def test_what_no_column_can_hold_is_one_line_that_names_the_file(called, path, sql, words):
    change(path, sql)
    done = called(*words, "--db", str(path))
    (line,) = done.err.splitlines()
    assert done.status == 2
    assert line.startswith(f"kernelmark: {path}: cannot be read: ")
    assert len(line) <= MOST


ENDLESS = "WITH RECURSIVE n (place) AS (SELECT 1 UNION ALL SELECT place + 1 FROM n) SELECT place FROM n"
EXECUTED = [
    (
        "DROP TABLE layer; CREATE VIEW layer AS SELECT 'r1' AS run_id, '' AS network, '' AS problem, '' AS part, "
        f"1 AS count, place FROM ({ENDLESS})",
        "cannot be read: a query took more than",
    ),
    (f"CREATE TRIGGER mine AFTER DELETE ON run BEGIN INSERT INTO machine {ENDLESS}; END", "has the trigger 'mine'"),
]


@pytest.mark.parametrize(("sql", "refusal"), EXECUTED)
def test_what_a_store_would_execute_without_end_is_one_line(called, path, monkeypatch, sql, refusal):
    monkeypatch.setattr("kernelmark.bench.record.query.MOST_LOOKS", 3)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(sql)
    done = called("show", "r1", "--by", "network", "--db", str(path))
    assert done.status == 2
    assert done.err.startswith(f"kernelmark: {path}: {refusal}")


@pytest.mark.parametrize("time", ["x", "2026-01-01T10:00:00"])
def test_an_estimate_from_what_is_no_time_is_one_line(called, tmp_path, time):
    words = ("copy/m4n4/f32", "--max-time", "0.01", "--no-ceilings", "--kernels", "copy/numpy.copyto", "--db", "r.db")
    assert called("run", *words).status == 0
    change(tmp_path / "r.db", f"UPDATE run SET finished_at = '{time}'")
    assert called("run", "--dry-run", *words).refusal.startswith(f"kernelmark: {tmp_path}/r.db: cannot be read: ")


def test_a_measurement_that_was_cut_short_is_one_line(path, complaint):
    change(path, "UPDATE pending SET measured = x'9281'")
    store = Store(path)
    assert complaint(lambda: store.pending("r1", 0)).startswith(f"{path}: cannot be read: ")
    store.close()


@pytest.mark.parametrize("facts", ['{"cpu": NaN}', '{"cpu": -Infinity}', '{"cpu": 1e999}'])
def test_a_fact_that_is_no_number_of_json_is_null(called, path, facts):
    change(path, f"UPDATE machine SET facts = '{facts}'")
    assert '"machine":{"cpu":null}}' in called("export", "r1", "--format", "json", "--db", str(path)).out


@pytest.mark.parametrize("words", [("runs", "--json"), ("export", "r1", "--format", "json")])
def test_half_a_character_in_what_a_run_was_asked_for_is_a_question_mark(called, path, words):
    change(path, r"""UPDATE run SET suites = '["\udcff"]'""")
    change(path, r"""UPDATE machine SET facts = '{"cpu": "\udcff"}'""")
    assert '["?"]' in called(*words, "--db", str(path)).printed.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("words", [("export", "--format", "json"), ("show", "--json"), ("show",), ("export",)])
def test_a_number_that_is_not_finite_is_unknown(called, path, words):
    change(path, "UPDATE result SET time_s_ci95_high = 9e999, roofline_pct = -9e999")
    assert "inf" not in called(*words, "--db", str(path)).printed.lower()


def flipped(content, rng):
    damaged = bytearray(content)
    if rng.random() < 0.3:
        start = rng.randrange(len(damaged))
        damaged[start : start + 512] = bytes(len(damaged[start : start + 512]))
    else:
        for place in rng.choices(range(len(damaged)), k=rng.choice((1, 8, 64))):
            damaged[place] ^= 1 << rng.randrange(8)
    return bytes(damaged)


@pytest.mark.parametrize(
    ("seeds", "commands"), [(range(6), READING[:2]), pytest.param(range(100, 110), READING, marks=pytest.mark.long)]
)
def test_bits_that_turned_over_end_no_command_in_a_defect(called, path, seeds, commands):
    content = path.read_bytes()
    for seed in seeds:
        path.write_bytes(flipped(content, random.Random(seed)))
        for words in commands:
            assert ended_well(called(*shlex.split(words), "--db", str(path))), (seed, words)


@pytest.mark.parametrize(
    "words", ["run copy/m4n4/f32", "verify copy/m4n4/f32", "run --resume r2", "runs --delete r2", "import rows.csv"]
)
def test_a_damaged_store_is_not_written_to(called, path, tmp_path, words):
    (tmp_path / "rows.csv").write_text(called("export", "r1", "--db", str(path)).out)
    content = bytearray(path.read_bytes())
    content[-4096:] = bytes(4096)  # the last page holds rows of an index or of a table
    path.write_bytes(content)
    line = called(*words.split(), "--db", str(path)).refusal
    assert "is damaged, so nothing is written to it: " in line or "cannot be read: " in line
    assert path.read_bytes() == content


@pytest.fixture
def read_only(small_disk):
    """Return a function that copies files to a separate disk, which is then remounted read-only."""

    def of(*paths):
        disk = small_disk("8m")
        for path in paths:
            shutil.copy(path, disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        return disk

    return of


@pytest.fixture
def unfinished(store):
    """The files of a store, some of whose rows are still only in the write-ahead log."""
    begin_run(store, "20260101-old", name="base", planned=1)
    add(store, "20260101-old", "m3n5/f32", (1e-3, 1.1e-3))
    files = [store.path, store.path.with_name("results.db-wal"), store.path.with_name("results.db-shm")]
    assert files[1].stat().st_size > 0
    return files


def test_a_store_on_a_read_only_disk_can_be_read(called, two_runs, read_only):
    db = str(read_only(two_runs) / "results.db")
    of_base = [f"{words} base" for words in ("show", "show --json", "export", "crossover copy/m3n5/f32")]
    for words in ("runs", "compare base 20260201-new", *of_base):
        printed = called(*words.split(), "--db", db).printed
        assert printed == called(*words.split(), "--db", two_runs).out.replace(two_runs, db)


@pytest.mark.long
def test_processes_show_export_and_report_a_store_on_a_read_only_disk(kernelmark, two_runs, read_only, tmp_path):
    db = str(read_only(two_runs) / "results.db")
    for words in (("show", "base"), ("export", "base"), ("report", "base", "--out", "out")):
        done = kernelmark(*words, "--db", db)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert (tmp_path / "out" / "index.html").is_file()


def test_a_store_on_a_read_only_disk_cannot_be_written_to(called, two_runs, read_only):
    db = str(read_only(two_runs) / "results.db")
    for words, refusal in (
        (("run", "copy/m4n4/f32"), ": cannot be written: "),
        (("runs", "--delete", "base"), ".lock: cannot be opened: Read-only file system"),
    ):
        line = called(*words, "--db", db).refusal
        assert line.startswith(f"kernelmark: {db}")
        assert refusal in line


def test_rows_that_have_not_reached_the_file_are_read_where_they_can_be(called, unfinished, read_only):
    assert "copy/m3n5/f32" in called("show", "base", "--db", str(read_only(*unfinished) / "results.db")).printed


def test_rows_that_have_not_reached_the_file_and_cannot_be_read_are_told(complaint, unfinished, read_only):
    db = read_only(*unfinished[:2]) / "results.db"
    line = complaint(lambda: Store(db, create=False))
    assert f"some rows are still in {db}-wal, which SQLite reads only in a writable folder; copy both files" in line


def test_an_older_store_on_a_read_only_disk_is_named_with_its_remedy(complaint, tmp_path, read_only):
    with closing(sqlite3.connect(tmp_path / "older.db")) as older:
        older.executescript((Path(__file__).parents[1] / "data" / "schema4.sql").read_text())
    db = read_only(tmp_path / "older.db") / "older.db"
    line = complaint(lambda: Store(db, create=False))
    assert line == f"{db}: has schema 4, and must be writable to be migrated to schema 10; copy it to another folder"
