"""The tables of the store, the SQL to insert and remove rows, and the migration of older stores."""

import array
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from operator import attrgetter
from typing import Any

from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.plan.numbers import finite
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.record.columns import COLUMNS, DEFAULTS, KINDS, REQUIRED, Result
from kernelmark.bench.record.records import Dims

OWN = tuple(name for name in COLUMNS if name != "run_id")
#: The version of the tables. Raise it for a change that older programs cannot read; they ignore new columns and tables.
SCHEMA_VERSION = 10
_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT"}


def _declared(name: str) -> str:
    """Return the SQL declaration of a column, with a default for rows recorded before the column existed."""
    default = "" if KINDS[name] is str else DEFAULTS[name]
    return f'"{name}" {_TYPES[KINDS[name]]}' + ("" if default is None else f" DEFAULT {default!r}")


#: The tables. An older store gets the tables and columns that it lacks, so a new column has a default or may be NULL.
CREATE = f"""
CREATE TABLE machine (machine_id TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE run (
    run_id TEXT PRIMARY KEY,
    machine_id TEXT NOT NULL REFERENCES machine(machine_id),
    started_at TEXT NOT NULL,
    finished_at TEXT,
    suites TEXT NOT NULL,
    command TEXT NOT NULL,
    environment TEXT NOT NULL,
    git_commit TEXT NOT NULL,
    plan TEXT NOT NULL,
    name TEXT NOT NULL DEFAULT '',
    planned INTEGER
);
CREATE TABLE result (
    result_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run(run_id),
    "case" TEXT NOT NULL,
    {", ".join(map(_declared, OWN))},
    dims TEXT NOT NULL,
    place INTEGER NOT NULL DEFAULT 0,
    part_blob BLOB NOT NULL DEFAULT x'',
    sample_blob BLOB NOT NULL,
    UNIQUE (run_id, "case")
);
CREATE TABLE ratio (
    result_id INTEGER PRIMARY KEY REFERENCES result(result_id),
    baseline TEXT NOT NULL,
    median REAL NOT NULL, low REAL, high REAL, method TEXT NOT NULL,
    minima REAL
);
CREATE TABLE evidence (result_id INTEGER PRIMARY KEY REFERENCES result(result_id), found TEXT NOT NULL);
CREATE TABLE ceiling (
    ceiling_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run(run_id),
    device TEXT NOT NULL, threads INTEGER NOT NULL, kind TEXT NOT NULL, problem TEXT NOT NULL,
    kernel TEXT NOT NULL, device_name TEXT NOT NULL,
    rate REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL, best REAL NOT NULL,
    measured_at TEXT NOT NULL,
    doubt TEXT NOT NULL DEFAULT '',
    clock_mhz REAL,
    host TEXT NOT NULL DEFAULT '', device_uuid TEXT NOT NULL DEFAULT ''
);
CREATE TABLE layer (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    network TEXT NOT NULL, problem TEXT NOT NULL, part TEXT NOT NULL,
    count INTEGER NOT NULL,
    place INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run_id, network, problem, part)
);
CREATE TABLE pending (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    job INTEGER NOT NULL, process INTEGER NOT NULL, measured BLOB NOT NULL,
    UNIQUE (run_id, job, process)
);
CREATE TABLE resource (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    "case" TEXT NOT NULL, registers INTEGER NOT NULL, spill_bytes INTEGER NOT NULL,
    UNIQUE (run_id, "case")
);
CREATE TABLE source (digest TEXT PRIMARY KEY, files BLOB NOT NULL);
CREATE TABLE version (
    version_id INTEGER PRIMARY KEY,
    kernel TEXT NOT NULL, problem TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES source(digest),
    facts TEXT NOT NULL
);
CREATE INDEX version_of ON version (kernel, problem);
CREATE TABLE host (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    host TEXT NOT NULL, facts TEXT NOT NULL,
    UNIQUE (run_id, host)
);
PRAGMA user_version = {SCHEMA_VERSION};
"""


def is_complete(db: sqlite3.Connection) -> bool:
    """Return whether a store with the newest schema version has all optional columns."""
    return set(COLUMNS) - {*REQUIRED} <= _columns(db, "result").keys()


def bring_up_to_date(db: sqlite3.Connection) -> None:
    """Add the tables and columns that the store lacks, in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(CREATE)
        for name, statement in new.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall():
            if name not in there:
                db.execute(statement)
            known = _columns(db, name)
            for column, declared in _columns(new, name).items():
                if column not in known and column not in REQUIRED:
                    db.execute(f'ALTER TABLE {name} ADD COLUMN "{column}" {declared}')
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.commit()


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    query = """
        SELECT name, type || iif("notnull", ' NOT NULL', '') || ifnull(' DEFAULT ' || dflt_value, '')
        FROM pragma_table_info(?)"""
    return dict(db.execute(query, (table,)))


#: The column `place` is the number of the row's job in the whole plan; merged rows are in this order.
_NAMES = ("run_id", "case", *OWN, "dims", "sample_blob", "part_blob", "place")
INSERT = f"""INSERT INTO result ({", ".join(f'"{name}"' for name in _NAMES)}) VALUES ({", ".join("?" * len(_NAMES))})"""
_own_values, _REASON = attrgetter(*OWN), OWN.index("reason")


def row_values(
    run_id: str, result: Result, dims: Dims, samples: Sequence[float], parts: Sequence[ProcessPart], place: int = 0
) -> tuple[Any, ...]:
    """Return the values that `INSERT` takes for a row."""
    blobs = (samples, [value for part in parts for value in (part.samples, part.median_s)])
    packed = (array.array("d", values).tobytes() for values in blobs)
    cells = list(_own_values(result))
    cells[_REASON] = one_line(result.reason)
    known = {name: finite(value) for name, value in dims.items()}
    return (run_id, result.case, *cells, json.dumps(known), *packed, place)


_OF_A_RUN = ("result", "resource", "ceiling", "host", "layer", "pending", "run")
_RESULTS = "SELECT result_id FROM result WHERE run_id = ?"
_OF_A_RESULT = ("ratio", "evidence")
#: The statements that remove a run, in this order.
REMOVE = (
    *(f"DELETE FROM {table} WHERE result_id IN ({_RESULTS})" for table in _OF_A_RESULT),
    *(f"DELETE FROM {table} WHERE run_id = ?" for table in _OF_A_RUN),
)
#: The statements that remove the rows of one execution of a run's job, in this order.
REMOVE_JOB = (
    *(f"DELETE FROM {table} WHERE result_id IN ({_RESULTS} AND job = ?)" for table in _OF_A_RESULT),
    "DELETE FROM result WHERE run_id = ? AND job = ?",
)
