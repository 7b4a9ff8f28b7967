"""Stores of older schemas: they open, keep their rows and get the tables and columns of a new one."""

import csv
import sqlite3
from pathlib import Path

import msgspec

from kernelmark.bench.record.records import doubles
from kernelmark.bench.record.store import Store
from stored import RUN, result

SINCE_4 = ("job", "tuned", "host", "device_uuid", "wire_bytes", "bus_gbyte_per_s", "compression_error")
SINCE_9 = ("launched",)


def schema_4(path):
    db = sqlite3.connect(path)
    db.executescript((Path(__file__).parents[1] / "data" / "schema4.sql").read_text())
    return db


def test_a_store_that_is_brought_up_to_date_has_the_tables_and_columns_of_a_new_one(tmp_path, store):
    schema_4(tmp_path / "old.db").close()
    Store(tmp_path / "old.db").close()
    of_all_tables = (
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) columns"
    )
    with sqlite3.connect(tmp_path / "old.db") as old, sqlite3.connect(store.path) as new:
        assert set(old.execute(of_all_tables)) == set(new.execute(of_all_tables))


def test_a_store_of_schema_4_opens_with_the_new_columns_empty_is_shown_and_exported(tmp_path, kernelmark):
    with schema_4(tmp_path / "old.db") as db:
        written = db.execute('SELECT "case", time_s_median, sample_blob FROM result').fetchall()
    shown = kernelmark("show", "--db", "old.db")
    assert (shown.returncode, shown.stderr) == (0, "")
    exported = kernelmark("export", "--db", "old.db")
    rows = list(csv.DictReader(exported.stdout.splitlines()))
    store = Store(tmp_path / "old.db", create=False)
    kept = [row for row, _ in store.results(store.run_ids()[0])]
    assert [(r.case, r.time_s_median, store.samples(r.run_id, r.case)) for r in kept] == [
        (case, median, doubles(blob).tolist()) for case, median, blob in written
    ]
    store.close()
    assert all(row["kernel"].rpartition(".")[2] in shown.stdout for row in rows)
    assert [float(row["time_s_median"]) for row in rows] == [median for _, median, _ in written]
    assert {row[name] for row in rows for name in (*SINCE_4, *SINCE_9)} == {""}
    assert {getattr(r, name) for r in kept for name in (*SINCE_4, *SINCE_9)} == {"", None}


def test_a_store_of_schema_1_is_brought_up_to_date_and_keeps_its_rows(tmp_path):
    path = tmp_path / "old.db"
    store = Store(path)
    store.begin(RUN)
    store.add(result(), {"m": 1}, [1.0], None)
    store.close()
    with sqlite3.connect(path) as db:
        since = ("bound_by", "ceiling_gflop_per_s", "ceiling_gbyte_per_s", "executed_flop", "setup_s")
        since += ("interval", "outliers", "speedup_of_minima", "repeated", "threads_used", "affinity", "load")
        for name in (*since, "steal_pct", "roofline_pct_cycles", "spread_s", "part_blob", "place", *SINCE_4, *SINCE_9):
            db.execute(f'ALTER TABLE result DROP COLUMN "{name}"')
        db.execute("ALTER TABLE ratio DROP COLUMN minima")
        db.execute("DROP TABLE ceiling")
        db.execute("DROP TABLE layer")
        db.execute("DROP TABLE pending")
        db.execute("DROP TABLE evidence")
        for name in ("resource", "version", "source", "host"):
            db.execute(f"DROP TABLE {name}")
        db.execute("ALTER TABLE run DROP COLUMN name")
        db.execute("ALTER TABLE run DROP COLUMN planned")
        db.execute("PRAGMA user_version = 1")
    store = Store(path)
    ((row, dims),) = store.results(RUN.run_id)
    assert (row, dims) == (result(), {"m": 1})
    assert store.ceilings(RUN.run_id) == []
    store.close()


def test_a_run_of_an_older_store_has_no_name_and_no_number_of_planned_cases_and_takes_rows_of_new_runs(tmp_path):
    schema_4(tmp_path / "old.db").close()
    store = Store(tmp_path / "old.db", create=False)
    (old,) = store.run_ids()
    store.begin(msgspec.structs.replace(RUN, name="new", planned=3))
    found = [(run.run_id, run.name, run.planned) for run in map(store.run, (old, "new"))]
    store.close()
    assert found == [(old, "", None), (RUN.run_id, "new", 3)]
