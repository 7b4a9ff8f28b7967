"""A run of twenty small problems as a command, and what is visible of it in the store."""

import sqlite3
from contextlib import closing
from pathlib import Path

FAULTS = str(Path(__file__).with_name("faults.py"))
KERNELS = ("copy/numpy.copyto", "copy/bad.honest")
PROBLEMS = 60
SUITE = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 5\nm = {{linear = [1, {}, 1]}}\n"
QUICK = ("--mode", "hot", "--max-time", "0.01", "--no-ceilings", "--threads", "1", "--plugin", FAULTS)
WORDS = ("run", "s.toml", *QUICK, "--kernels", KERNELS[0], "--kernels", KERNELS[1], "--db", "r.db")


def query(path: Path, sql: str) -> list[sqlite3.Row]:
    """What another process reads."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
        db.row_factory = sqlite3.Row
        return db.execute(sql).fetchall()


def visible(path: Path) -> dict[str, sqlite3.Row]:
    """The rows of a store with one run, whole, by case; none where there is no store yet."""
    try:
        rows = query(path, "SELECT * FROM result")
    except sqlite3.OperationalError:
        return {}
    found = {row["case"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def all_are_there_and_ok(path: Path) -> bool:
    found = visible(path)
    return len(found) == PROBLEMS * len(KERNELS) and {row["status"] for row in found.values()} == {"ok"}
