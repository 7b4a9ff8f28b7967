"""The tables of the store, how a row is put there, and how the tables of older versions become these."""

import array
import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, get_type_hints

from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.record.result import COLUMNS, Result, finite

_TYPES = {int: "INTEGER", float: "REAL", float | None: "REAL", int | None: "INTEGER", str: "TEXT"}
_HINTS = get_type_hints(Result)
_RESULT_COLUMNS = ",\n    ".join(f'"{name}" {_TYPES[_HINTS[name]]}' for name in COLUMNS if name != "run_id")
_CREATE_CEILING = """
CREATE TABLE ceiling (
    ceiling_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run(run_id),
    device TEXT NOT NULL,
    threads INTEGER NOT NULL,
    kind TEXT NOT NULL,
    problem TEXT NOT NULL,
    kernel TEXT NOT NULL,
    device_name TEXT NOT NULL,
    rate REAL NOT NULL,
    low REAL NOT NULL,
    high REAL NOT NULL,
    best REAL NOT NULL,
    measured_at TEXT NOT NULL,
    doubt TEXT NOT NULL DEFAULT ''
);
"""
_CREATE_LAYER = """
CREATE TABLE layer (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    network TEXT NOT NULL,
    problem TEXT NOT NULL,
    part TEXT NOT NULL,
    count INTEGER NOT NULL,
    UNIQUE (run_id, network, problem, part)
);
"""
_CREATE_PENDING = """
CREATE TABLE pending (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    job INTEGER NOT NULL,
    process INTEGER NOT NULL,
    measured BLOB NOT NULL,
    UNIQUE (run_id, job, process)
);
"""
_CREATE_EVIDENCE = """
CREATE TABLE evidence (
    result_id INTEGER PRIMARY KEY REFERENCES result(result_id),
    found TEXT NOT NULL
);
"""
_CREATE_VERSIONS = """
CREATE TABLE resource (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    "case" TEXT NOT NULL,
    registers INTEGER NOT NULL,
    spill_bytes INTEGER NOT NULL,
    UNIQUE (run_id, "case")
);
CREATE TABLE source (digest TEXT PRIMARY KEY, files BLOB NOT NULL);
CREATE TABLE version (
    version_id INTEGER PRIMARY KEY,
    kernel TEXT NOT NULL,
    problem TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES source(digest),
    facts TEXT NOT NULL
);
CREATE INDEX version_of ON version (kernel, problem);
"""
_CREATE_HOST = """
CREATE TABLE host (
    run_id TEXT NOT NULL REFERENCES run(run_id),
    host TEXT NOT NULL,
    facts TEXT NOT NULL,
    UNIQUE (run_id, host)
);
ALTER TABLE ceiling ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE ceiling ADD COLUMN device_uuid TEXT NOT NULL DEFAULT '';
"""
#: The columns of a row's own are those of a result, the run's id first.
OWN = tuple(name for name in COLUMNS if name != "run_id")
#: place: the number of the row's job in the whole plan, by which rows of shards are put in order.
_NAMES = ("run_id", "case", *OWN, "dims", "sample_blob", "part_blob", "place")
INSERT = f"""INSERT INTO result ({", ".join(f'"{name}"' for name in _NAMES)}) VALUES ({", ".join("?" * len(_NAMES))})"""
_own_values, _REASON = attrgetter(*OWN), OWN.index("reason")


def row_values(
    run_id: str,
    result: Result,
    dims: dict[str, Any],
    samples: Sequence[float],
    parts: Sequence[ProcessPart],
    place: int = 0,
) -> tuple[Any, ...]:
    """Return what `INSERT` takes."""
    blobs = (samples, [value for part in parts for value in (part.samples, part.median_s)])
    kept = (array.array("d", values).tobytes() for values in blobs)
    own = list(_own_values(result))
    own[_REASON] = one_line(result.reason)
    known = {name: finite(value) for name, value in dims.items()}
    return (run_id, result.case, *own, json.dumps(known), *kept, place)


_OF_A_RUN = ("result", "resource", "ceiling", "host", "layer", "pending", "run")
_RESULTS = "SELECT result_id FROM result WHERE run_id = ?"
_OF_A_RESULT = ("ratio", "evidence")
#: What removes a run, in this order.
REMOVE = (
    *(f"DELETE FROM {table} WHERE result_id IN ({_RESULTS})" for table in _OF_A_RESULT),
    *(f"DELETE FROM {table} WHERE run_id = ?" for table in _OF_A_RUN),
)
#: What removes the rows of one execution of a job of a run, in this order.
REMOVE_JOB = (
    *(f"DELETE FROM {table} WHERE result_id IN ({_RESULTS} AND job = ?)" for table in _OF_A_RESULT),
    "DELETE FROM result WHERE run_id = ? AND job = ?",
)
#: What each version added: columns of a result, and what else.
_ADDED: dict[int, tuple[tuple[str, ...], str]] = {
    2: (("bound_by", "ceiling_gflop_per_s", "ceiling_gbyte_per_s"), _CREATE_CEILING),
    3: (("executed_flop", "setup_s"), _CREATE_LAYER),
    4: (
        (
            "interval", "outliers", "speedup_of_minima", "repeated", "threads_used", "affinity", "load", "steal_pct",
            "roofline_pct_cycles", "spread_s",
        ),
        f"""
ALTER TABLE result ADD COLUMN part_blob BLOB NOT NULL DEFAULT x'';
ALTER TABLE ratio ADD COLUMN minima REAL;
ALTER TABLE ceiling ADD COLUMN clock_mhz REAL;
{_CREATE_PENDING}
""",
    ),
    5: (
        ("job", "tuned", "host", "device_uuid", "wire_bytes", "bus_gbyte_per_s", "compression_error"),
        _CREATE_EVIDENCE,
    ),
    6: ((), "ALTER TABLE run ADD COLUMN name TEXT NOT NULL DEFAULT ''; ALTER TABLE run ADD COLUMN planned INTEGER;"),
    7: ((), _CREATE_VERSIONS),
    8: (
        (),
        """
ALTER TABLE result ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE layer ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
""",
    ),
    9: ((), _CREATE_HOST),
    10: (("launched",), ""),
}  # fmt: skip


def _script(version: int) -> str:
    """Return what turns a store of the version before into one of this version."""
    columns, rest = _ADDED[version]
    types = ((name, _TYPES[_HINTS[name]]) for name in columns)
    added = (f'"{name}" {kind}' + (" NOT NULL DEFAULT ''" if kind == "TEXT" else "") for name, kind in types)
    alter = "".join(f"ALTER TABLE result ADD COLUMN {column};\n" for column in added)
    return f"{alter}{rest}PRAGMA user_version = {version};"


SCHEMA_VERSION = max(_ADDED)
#: The scripts that bring a store up to date, by the version that it has.
MIGRATE = {version - 1: _script(version) for version in _ADDED}
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
    {_RESULT_COLUMNS},
    dims TEXT NOT NULL,
    place INTEGER NOT NULL DEFAULT 0,
    part_blob BLOB NOT NULL DEFAULT x'',
    sample_blob BLOB NOT NULL,
    UNIQUE (run_id, "case")
);
CREATE TABLE ratio (
    result_id INTEGER PRIMARY KEY REFERENCES result(result_id),
    baseline TEXT NOT NULL,
    median REAL NOT NULL,
    low REAL,
    high REAL,
    method TEXT NOT NULL,
    minima REAL
);
{_CREATE_CEILING}
ALTER TABLE ceiling ADD COLUMN clock_mhz REAL;
{_CREATE_LAYER}
ALTER TABLE layer ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
{_CREATE_PENDING}
{_CREATE_EVIDENCE}
{_CREATE_VERSIONS}
{_CREATE_HOST}
PRAGMA user_version = {SCHEMA_VERSION};
"""
