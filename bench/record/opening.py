"""How a file becomes an open store: made, brought up to date, or opened to be read alone where it cannot be written."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.record.schema import CREATE, MIGRATE, SCHEMA_VERSION

_TABLES = frozenset({"machine", "run", "result", "ratio"})
_REMEDY = "--db names another file"


def open_store(path: Path, create: bool) -> sqlite3.Connection:
    """Return a connection to a store of this schema, made or migrated where that is needed.

    Raises UsageError for a file that is none, and for one that is not there unless `create`.
    """
    require_file(path)
    if not create and not path.is_file():
        raise UsageError(f"{path}: there is no store; `kernelmark run SUITE` makes one, --db names another")
    writable = _may_be_written(path)
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=30) if writable else _connect_to_read(path)
        try:
            _prepare(db, path, writable)
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be used as a store: {_why(path, writable, error)}; {_REMEDY}") from None
    return db


def require_sound(db: sqlite3.Connection, path: Path) -> None:
    """Raise UsageError for a file whose structure is damaged: what is added to it may be lost, and more with it."""
    try:
        found = str(next(db.execute("PRAGMA quick_check(1)"))[0])
    except (sqlite3.Error, ValueError) as error:
        found = str(error)
    if found != "ok":
        remedy = f"`kernelmark export` saves what can be read of it, {_REMEDY}"
        raise UsageError(f"{path}: is damaged, so nothing is written to it: {found}; {remedy}")


def _may_be_written(path: Path) -> bool:
    """Whether the file and the two that SQLite puts beside it can be written; true of what is still to be made."""
    return not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a file beside which nothing can be written; the file alone, where it is all that there is."""
    alone = "" if _rows_outside(path) else "&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{alone}", uri=True, timeout=30)


def _rows_outside(path: Path) -> bool:
    """Whether rows were committed that have not reached the file itself."""
    try:
        return Path(f"{path}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _why(path: Path, writable: bool, error: Exception) -> str:
    if not writable and isinstance(error, sqlite3.OperationalError) and _rows_outside(path):
        return f"{path}-wal has rows of it and cannot be read where nothing can be written; copy both elsewhere"
    return str(error)


def _prepare(db: sqlite3.Connection, path: Path, writable: bool) -> None:
    if _tables(db) == set() and _version(db) == 0:
        _create(db)
    version = _version(db)
    if version in MIGRATE and _tables(db) >= _TABLES:
        if not writable:
            what = f"has schema {version}, which becomes {SCHEMA_VERSION} only where it can be written"
            raise UsageError(f"{path}: {what}; copy it to another folder")
        require_sound(db, path)
        _migrate(db)
        version = _version(db)
    if version == 0 or not _tables(db) >= _TABLES:
        raise UsageError(f"{path}: is no kernelmark store; {_REMEDY}")
    if version != SCHEMA_VERSION:
        raise UsageError(f"{path}: has schema {version}, this kernelmark reads {SCHEMA_VERSION}; {_REMEDY}")
    with suppress(sqlite3.OperationalError):  # locked by another that switches it, for which SQLite does not wait
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")


def _create(db: sqlite3.Connection) -> None:
    """Make the tables, unless another process was first."""
    db.execute("BEGIN IMMEDIATE")
    if _tables(db):
        db.rollback()
    else:
        for statement in CREATE.split(";"):
            db.execute(statement)
        db.commit()


def _migrate(db: sqlite3.Connection) -> None:
    """Bring an older store up to date, unless another process was first."""
    db.execute("BEGIN IMMEDIATE")
    while (version := _version(db)) in MIGRATE:
        for statement in MIGRATE[version].split(";"):
            db.execute(statement)
    db.commit()


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
