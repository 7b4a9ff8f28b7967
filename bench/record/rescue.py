"""Rescue rows if the store's file is removed, moved, replaced or truncated while rows are written to it."""

import ctypes
import secrets
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from kernelmark.bench.plan.errors import StoreGone


def gone(db: sqlite3.Connection, path: Path, what: str, own: Sequence[str]) -> StoreGone:
    """Write the rows to a file beside the store, and return a complaint that names it.

    what: how the store was lost. own: the suffixes of its files in this place, which are removed.
    """
    kept = _rescued(db, path)
    # A file that has replaced the store must not be combined with the old log, and closing would delete the new file's
    # log.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    for end in own:
        Path(f"{path}{end}").unlink(missing_ok=True)
    rest = f"its rows are in {kept}; `kernelmark show --db` shows them" if kept else "its rows are lost; measure again"
    return StoreGone(f"{path}: was {what} while rows were written to it; {rest}")


def _rescued(db: sqlite3.Connection, path: Path) -> Path | None:
    """Copy the rows to a file beside the store, or in another writable folder; None if they are damaged."""
    name = f"{path.stem}-{secrets.token_hex(4)}.db"
    for copy in (path.with_name(name), Path(name).absolute(), Path(tempfile.gettempdir(), name)):
        with suppress(sqlite3.Error), closing(sqlite3.connect(copy)) as target:
            db.backup(target)
            if target.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                return copy
        with suppress(OSError):
            copy.unlink()
    return None
