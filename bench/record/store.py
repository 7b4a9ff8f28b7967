"""The store of results, an SQLite database in WAL mode, with one commit per result.

A file is created or migrated if needed, and opened read-only if it cannot be written.
"""

import ctypes
import hashlib
import json
import os
import secrets
import shlex
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.measure.host import Host
from kernelmark.bench.measure.measurement import Ceiling, Evidence, Measurement, ProcessPart
from kernelmark.bench.measure.ratio import BaselineRatio
from kernelmark.bench.plan.errors import StoreGone, UsageError
from kernelmark.bench.plan.files import data_folder, require_file
from kernelmark.bench.plan.text import escaped
from kernelmark.bench.record import schema
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.query import MOST_BYTES, STEPS
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.records import Layer as Layer
from kernelmark.bench.record.versions import KernelVersion, LaunchResources, Sources, digest_of, packed

_TABLES = frozenset({"machine", "run", "result", "ratio"})
_REMEDY = "--db names another file"


def default_store() -> Path:
    """Return the path of the default store, `$XDG_DATA_HOME/kernelmark/results.db`."""
    return data_folder() / "results.db"


def resuming(run_id: str, path: Path) -> str:
    """Return the command that continues a run, in backquotes, with --db if the store is not the default one."""
    return command_on(path, f"run --resume {run_id}")


def command_on(path: Path, words: str) -> str:
    """Return a command for a store, in backquotes, with --db if the store is not the default one."""
    with suppress(UsageError):  # a user without a home has no default store
        if path == default_store().absolute():
            return f"`kernelmark {words}`"
    return f"`kernelmark {words} --db {escaped(shlex.quote(str(path)))}`"


def files_of(path: Path) -> dict[str, os.stat_result]:
    """Return the `os.stat` of the store's files that are not empty, by suffix: "", "-wal" and "-shm"."""
    files = {}
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            file = os.stat(f"{path}{end}")  # noqa: PTH116 # `path` and `end` are parts of one name
            if file.st_size:
                files[end] = file
    return files


class Run(msgspec.Struct, frozen=True):
    """A run's plan, machine and environment, which do not change after it has begun.

    name: the user's name for the run, unique in the store, or "". planned: the number of cases of the complete run, if
    known.
    """

    run_id: str
    machine: dict[str, Any]
    started_at: str
    suites: tuple[str, ...]
    command: str
    environment: dict[str, Any]
    git_commit: str
    plan: dict[str, Any]
    name: str = ""
    planned: int | None = None


class Store(Reader):
    """A store on disk. Committed rows survive the process that added them. Raises UsageError for unusable files."""

    def __init__(self, path: Path, create: bool = True) -> None:
        self.path = path.absolute()  # a plug-in may change the folder
        self._db = _open(path, create)
        self._db.set_progress_handler(self._is_endless, STEPS)
        self._opened = files_of(self.path)

    def require_sound(self) -> None:
        """Raise UsageError if the file is damaged, since nothing may be added to it."""
        _require_sound(self._db, self.path)

    def _require_still_sound(self) -> None:
        """Raise UsageError if a new connection finds damage, which the cache of the open connection might hide."""
        if self._db.in_transaction:  # for example an import, whose rows other connections cannot see yet
            self.require_sound()
            return
        with closing(sqlite3.connect(self.path, timeout=30)) as fresh:
            _require_sound(fresh, self.path)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Open a transaction. Raises UsageError if the file cannot be written; earlier commits stay."""
        self._looks = 0
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            self.require_in_place()
            if not isinstance(error, sqlite3.OperationalError):  # a full or read-only disk is not damage
                self._require_still_sound()
            raise UsageError(f"{self.path}: cannot be written: {error}; rows recorded so far are safe") from None
        self.require_in_place()

    def require_in_place(self) -> None:
        """If the opened file was moved, replaced or truncated, save its rows in another file and raise StoreGone."""
        files, before = files_of(self.path), self._opened
        ends = [end for end in files if end in before and os.path.samestat(files[end], before[end])]
        if "" in ends and (files[""].st_size >= before[""].st_size or self._is_sound()):
            self._opened = files
            return
        if "" in ends or ("" not in files and self.path.exists()):
            raise _gone(self._db, self.path, "cut short", [] if "" in ends else ends)
        raise _gone(self._db, self.path, "replaced" if "" in files else "removed or moved", ends)

    def _is_sound(self) -> bool:
        """Return whether a shortened file is undamaged, for example because another process removed runs."""
        with suppress(UsageError):
            self._require_still_sound()
            return True
        return False

    def begin(self, run: Run) -> None:
        """Record a run before its first result. Raises UsageError if its name is taken or the file is damaged."""
        self.require_sound()
        query = "SELECT run_id FROM run WHERE name = :name AND name != ''"
        with self._writing():
            for (taken,) in self._rows(query, name=run.name):
                remedy = f"use another name, or remove that run: `kernelmark runs --delete {run.name}`"
                raise UsageError(f"--name {run.name}: run {taken} has this name; {remedy}")
            self._record(run)

    def _record(self, run: Run, finished_at: str | None = None, there: str = "") -> None:
        """Insert a run with its machine. there: the SQL clause for a run whose id already exists."""
        facts = json.dumps(run.machine, sort_keys=True)
        machine = {"machine_id": hashlib.sha256(facts.encode()).hexdigest()[:16], "facts": facts}
        self._insert("main.machine", machine, "IGNORE")
        row = {**msgspec.structs.asdict(run), "machine_id": machine["machine_id"], "finished_at": finished_at}
        del row["machine"]
        row |= {name: json.dumps(row[name], sort_keys=True) for name in ("suites", "environment", "plan")}
        self._insert("main.run", row, there=there)

    def _insert(self, table: str, row: dict[str, Any], otherwise: str = "ABORT", there: str = "") -> int:
        """Insert a row and return its number. otherwise: SQLite's conflict action if a row with the same key exists."""
        names, marks = ", ".join(f"[{name}]" for name in row), ", ".join("?" * len(row))
        statement = f"INSERT OR {otherwise} INTO {table} ({names}) VALUES ({marks}) {there}"
        return int(self._db.execute(statement, tuple(row.values())).lastrowid or 0)

    def remove(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all their data, all or none. The file shrinks unless another process has it open."""
        self.require_sound()
        with self._writing():
            for statement in schema.REMOVE:
                self._db.executemany(statement, [(run_id,) for run_id in run_ids])
            self._db.execute("DELETE FROM machine WHERE machine_id NOT IN (SELECT machine_id FROM run)")
        with suppress(sqlite3.Error):  # another process reads, or the disk is full; new rows will reuse the space
            self._db.execute("VACUUM")

    def remove_noisy(self, run_id: str) -> None:
        """Delete the rows of each job with a case that was measured under noise, so that the job is measured again."""
        noisy = {result.job for result, _ in self.results(run_id) if was_noisy(result.disturbed)}
        with self._writing():
            for statement in schema.REMOVE_JOB:
                self._db.executemany(statement, [(run_id, job) for job in noisy])

    def finish(self, run_id: str, finished_at: str) -> None:
        """Record the end of a run. Raises UsageError if the file was damaged meanwhile."""
        with self._writing():
            self._db.execute("UPDATE run SET finished_at = ? WHERE run_id = ?", (finished_at, run_id))
        self._require_still_sound()

    def run(self, run_id: str) -> Run:
        """Return the run with this id, or the only one whose id or name begins with `run_id`. Raises UsageError."""
        return msgspec.convert(self.find_run(run_id), Run)

    def add(
        self,
        result: Result,
        dims: dict[str, Any],
        samples: Sequence[float],
        ratio: BaselineRatio | None,
        parts: Sequence[ProcessPart] = (),
        evidence: Evidence | None = None,
        place: int = 0,
    ) -> None:
        """Commit a result with its samples (seconds per call, in the order taken) and its ratio to the baseline.

        parts: the processes that the samples come from. evidence: for a result with status `mistrusted`, the facts that
        show that its time cannot be right. place: the number of the result's job in the whole plan.
        """
        values = schema.row_values(result.run_id, result, dims, samples, parts, place)
        with self._writing():
            number = self._db.execute(schema.INSERT, values).lastrowid
            if evidence:
                self._insert("evidence", {"result_id": number, "found": msgspec.json.encode(evidence).decode()})
            if ratio:
                columns = {"result_id": number, "baseline": result.baseline, **msgspec.structs.asdict(ratio)}
                interval = {"low": result.speedup_ci95_low, "high": result.speedup_ci95_high}
                self._insert("ratio", columns | interval)

    def set_aside(self, run_id: str, job: int, process: int, measured: Sequence[Measurement]) -> None:
        """Store a process's results of a job until the job's last process ends. job: the job's number in the plan."""
        row = {"run_id": run_id, "job": job, "process": process, "measured": msgspec.msgpack.encode(measured)}
        with self._writing():
            self._insert("pending", row)

    def forget(self, run_id: str, job: int) -> None:
        """Delete the pending measurements of a job whose rows are stored."""
        with self._writing():
            self._db.execute("DELETE FROM pending WHERE run_id = ? AND job = ?", (run_id, job))

    def add_ceiling(self, run_id: str, ceiling: Ceiling) -> None:
        """Record a ceiling that was measured in a run."""
        with self._writing():
            self._insert("ceiling", {"run_id": run_id, **msgspec.structs.asdict(ceiling)})

    def add_host(self, run_id: str, host: Host) -> None:
        """Record a host that measures a part of a run, unless the run has a record of this host already."""
        row = {"run_id": run_id, "host": host.host, "facts": msgspec.json.encode(host).decode()}
        with self._writing():
            self._insert("host", row, "IGNORE")

    def add_layer(self, run_id: str, layer: Layer, place: int = 0) -> None:
        """Record that a problem of the run is a layer of a network, unless this is recorded already."""
        with self._writing():
            self._insert("layer", {"run_id": run_id, **msgspec.structs.asdict(layer), "place": place}, "IGNORE")

    def add_resources(self, run_id: str, case: str, used: LaunchResources) -> None:
        """Record the resources of a case's compiled kernel, replacing earlier ones."""
        with self._writing():
            self._insert("resource", {"run_id": run_id, "case": case, **msgspec.structs.asdict(used)}, "REPLACE")

    def add_version(self, version: KernelVersion, sources: Sources) -> int:
        """Store a version of a kernel and return its number; equal sources are stored once."""
        row = {"kernel": version.kernel, "problem": version.problem, "digest": digest_of(sources)}
        with self._writing():
            self._insert("source", {"digest": row["digest"], "files": packed(sources)}, "IGNORE")
            return self._insert("version", {**row, "facts": msgspec.json.encode(version).decode()})

    def doubt_ceiling(self, run_id: str, ceiling: Ceiling, reason: str) -> None:
        """Record why a ceiling is in doubt."""
        where = "run_id = ? AND device = ? AND threads = ? AND kind = ? AND problem = ? AND measured_at = ?"
        values = reason, run_id, *ceiling.need, ceiling.measured_at
        with self._writing():
            self._db.execute(f"UPDATE ceiling SET doubt = ? WHERE {where}", values)


def _gone(db: sqlite3.Connection, path: Path, what: str, ends: Sequence[str]) -> StoreGone:
    """Save the rows in a file next to the store, and return an exception that names this file.

    what: how the store was lost. ends: the suffixes of the store's files that are still there; they are removed.
    """
    copy = _rescued(db, path)
    # Never close the connection: that would delete the log of a file that has replaced the store. Remove the old log,
    # which must not be applied to the new file.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    for end in ends:
        Path(f"{path}{end}").unlink(missing_ok=True)
    rest = f"its rows are in {copy}; `kernelmark show --db` shows them" if copy else "its rows are lost; measure again"
    return StoreGone(f"{path}: was {what} while rows were written to it; {rest}")


def _rescued(db: sqlite3.Connection, path: Path) -> Path | None:
    """Copy the rows to a file next to the store, or in another writable folder; return None if they are damaged."""
    name = f"{path.stem}-{secrets.token_hex(4)}.db"
    for copy in (path.with_name(name), Path(name).absolute(), Path(tempfile.gettempdir(), name)):
        with suppress(sqlite3.Error), closing(sqlite3.connect(copy)) as target:
            db.backup(target)
            if target.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                return copy
        with suppress(OSError):
            copy.unlink()
    return None


def _open(path: Path, create: bool) -> sqlite3.Connection:
    """Return a connection to a store of this schema, which is created or migrated if needed.

    Raises UsageError for a file that is not a store and, unless `create`, for a missing or empty file.
    """
    require_file(path)
    if not create and not (path.is_file() and (path.stat().st_size or _rows_outside(path))):
        why = "is empty, expected a store" if path.exists() else "there is no store"
        raise UsageError(f"{path}: {why}; `kernelmark run SUITE` makes one; --db names another")
    # SQLite creates two more files in the folder of the store.
    writable = not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        if writable:
            db = sqlite3.connect(path, timeout=30)
        else:  # immutable: allowed only if no rows are in a WAL
            how = "mode=ro" if _rows_outside(path) else "mode=ro&immutable=1"
            db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", timeout=30, uri=True)
        try:
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
            _prepare(db, path, writable)
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError, ValueError) as error:
        why = str(error)
        if not writable and isinstance(error, sqlite3.OperationalError) and _rows_outside(path):
            log = f"some rows are still in {path}-wal, which SQLite reads only in a writable folder"
            why = f"{log}; copy both files there"
        raise UsageError(f"{path}: cannot be used as a store: {why}; {_REMEDY}") from None
    return db


def _require_sound(db: sqlite3.Connection, path: Path) -> None:
    """Raise UsageError if the file's structure is damaged, since writing to it could lose old and new rows."""
    try:
        report = str(next(db.execute("PRAGMA quick_check(1)"))[0])
    except sqlite3.OperationalError as error:  # the system may be out of file descriptors
        raise UsageError(f"{path}: cannot be read: {error}; {_REMEDY}") from None
    except (sqlite3.Error, ValueError) as error:
        report = str(error)
    if report != "ok":
        remedy = f"`kernelmark export` saves the rows that can be read, {_REMEDY}"
        raise UsageError(f"{path}: is damaged, so nothing is written to it: {report}; {remedy}")


def _rows_outside(path: Path) -> bool:
    """Return whether committed rows are still only in the WAL."""
    with suppress(FileNotFoundError):
        return Path(f"{path}-wal").stat().st_size > 0
    return False


def _prepare(db: sqlite3.Connection, path: Path, writable: bool) -> None:
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
        raise UsageError(f"{path}: has the trigger {name!r}, which would run on writes; expected none; {_REMEDY}")
    if _tables(db) == set() and _version(db) == 0:
        schema.bring_up_to_date(db)
    version, newest = _version(db), schema.SCHEMA_VERSION
    if 0 < version <= newest and _tables(db) >= _TABLES and (version < newest or not schema.is_complete(db)):
        if not writable:
            what = f"has schema {version}, and must be writable to be migrated to schema {newest}"
            raise UsageError(f"{path}: {what}; copy it to another folder")
        _require_sound(db, path)
        schema.bring_up_to_date(db)
        version = _version(db)
    if version == 0 or not _tables(db) >= _TABLES:
        raise UsageError(f"{path}: is not a kernelmark store; {_REMEDY}")
    if version != newest:
        raise UsageError(f"{path}: has schema {version}, expected {newest}, which this kernelmark reads; {_REMEDY}")
    with suppress(sqlite3.OperationalError):  # another process is setting the mode, and SQLite does not wait for it
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
