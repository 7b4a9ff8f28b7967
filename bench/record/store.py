"""The store: SQLite in WAL mode, a commit a result."""

import array
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.measure.measurement import Part
from bench.measure.roofline import Ceiling
from bench.measure.stats import Ratio
from bench.plan.errors import UsageError
from bench.record.result import COLUMNS, Result
from bench.record.schema import CREATE, MIGRATE, SCHEMA_VERSION


class Layer(msgspec.Struct, frozen=True):
    """A problem that a network has `count` times in a part of it, `forward` or `backward`."""

    network: str
    problem: str
    part: str
    count: int


class Run(msgspec.Struct, frozen=True):
    """What was asked for, where and with what; immutable once it has begun."""

    run_id: str
    machine: dict[str, Any]
    started_at: str
    suites: tuple[str, ...]
    command: str
    environment: dict[str, Any]
    git_commit: str
    plan: dict[str, Any]


class Store:
    """Rows on disk; a row that was acknowledged outlives the process. Raises UsageError for files it cannot use."""

    def __init__(self, path: Path, create: bool = True) -> None:
        self.path = path
        if not create and not path.is_file():
            raise UsageError(f"{path}: there is no store; `kernelmark run SUITE` makes one, --db names another")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30)
            self._db.row_factory = sqlite3.Row
            self._open()
        except (sqlite3.Error, OSError) as error:
            raise UsageError(f"{path}: cannot be used as a store: {error}; --db names another") from None

    def _open(self) -> None:
        if self._tables() == set() and self._version() == 0:
            self._create()
        version = self._version()
        if version in MIGRATE and self._tables() >= {"machine", "run", "result", "ratio"}:
            self._migrate()
            version = self._version()
        if version == 0 or not self._tables() >= {"machine", "run", "result", "ratio"}:
            raise UsageError(f"{self.path}: is no kernelmark store; --db names another file")
        if version != SCHEMA_VERSION:
            what = f"has schema {version}, this kernelmark reads {SCHEMA_VERSION}"
            raise UsageError(f"{self.path}: {what}; --db names another file")
        with suppress(sqlite3.OperationalError):  # locked by another that switches it, for which SQLite does not wait
            self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")

    def _create(self) -> None:
        """Make the tables, unless another process was first."""
        self._db.execute("BEGIN IMMEDIATE")
        if self._tables():
            self._db.rollback()
        else:
            for statement in CREATE.split(";"):
                self._db.execute(statement)
            self._db.commit()

    def _migrate(self) -> None:
        """Bring an older store up to date, unless another process was first."""
        self._db.execute("BEGIN IMMEDIATE")
        while (version := self._version()) in MIGRATE:
            for statement in MIGRATE[version].split(";"):
                self._db.execute(statement)
        self._db.commit()

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _tables(self) -> set[str]:
        return {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}

    def close(self) -> None:
        """Give the file back."""
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction. Raises UsageError for a full disk and the like; what was committed before stays."""
        try:
            with self._db:
                yield
        except sqlite3.OperationalError as error:
            raise UsageError(f"{self.path}: cannot be written: {error}; rows recorded so far are safe") from None

    def begin(self, run: Run) -> None:
        """Record a run before its first result."""
        facts = json.dumps(run.machine, sort_keys=True)
        machine_id = hashlib.sha256(facts.encode()).hexdigest()[:16]
        with self._writing():
            self._db.execute("INSERT OR IGNORE INTO machine VALUES (?, ?)", (machine_id, facts))
            self._db.execute(
                "INSERT INTO run VALUES (?, ?, ?, NULL, ?, ?, ?, ?, ?)",
                (
                    run.run_id,
                    machine_id,
                    run.started_at,
                    json.dumps(run.suites),
                    run.command,
                    json.dumps(run.environment, sort_keys=True),
                    run.git_commit,
                    json.dumps(run.plan, sort_keys=True),
                ),
            )

    def finish(self, run_id: str, finished_at: str) -> None:
        """Note when a run ended."""
        with self._writing():
            self._db.execute("UPDATE run SET finished_at = ? WHERE run_id = ?", (finished_at, run_id))

    def has(self, run_id: str, case: str) -> bool:
        """Whether the run has a row for this case."""
        query = 'SELECT 1 FROM result WHERE run_id = ? AND "case" = ?'
        return self._db.execute(query, (run_id, case)).fetchone() is not None

    def add(
        self,
        result: Result,
        dims: dict[str, Any],
        samples: Sequence[float],
        ratio: Ratio | None,
        parts: Sequence[Part] = (),
    ) -> None:
        """Commit one result with its samples (seconds a call, in the order taken) and its ratio to the baseline.

        parts: the processes that the samples come from.
        """
        values = {"run_id": result.run_id, "case": result.case, **{c: getattr(result, c) for c in COLUMNS}}
        blobs = {
            "sample_blob": array.array("d", samples).tobytes(),
            "part_blob": array.array(
                "d", [value for part in parts for value in (part.samples, part.median_s)]
            ).tobytes(),
        }
        values |= {"dims": json.dumps(dims), **blobs}
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        with self._writing():
            cursor = self._db.execute(f"INSERT INTO result ({names}) VALUES ({marks})", tuple(values.values()))
            if ratio:
                self._db.execute(
                    "INSERT INTO ratio VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        cursor.lastrowid,
                        result.baseline,
                        ratio.median,
                        result.speedup_ci95_low,
                        result.speedup_ci95_high,
                        ratio.method,
                        ratio.minima,
                    ),
                )

    def add_ceiling(self, run_id: str, ceiling: Ceiling) -> None:
        """Record a ceiling that was measured in a run."""
        values = {"run_id": run_id, **msgspec.structs.asdict(ceiling)}
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with self._writing():
            self._db.execute(f"INSERT INTO ceiling ({names}) VALUES ({marks})", tuple(values.values()))

    def add_layer(self, run_id: str, layer: Layer) -> None:
        """Note that a suite of the run has this problem as a layer; known ones stay."""
        with self._writing():
            self._db.execute(
                "INSERT OR IGNORE INTO layer VALUES (?, ?, ?, ?, ?)", (run_id, *msgspec.structs.astuple(layer))
            )

    def layers(self, run_id: str) -> list[Layer]:
        """The layers of the networks of a run, in the order in which they were measured."""
        query = "SELECT network, problem, part, count FROM layer WHERE run_id = ? ORDER BY rowid"
        return [Layer(*found) for found in self._db.execute(query, (run_id,))]

    def doubt_ceiling(self, run_id: str, ceiling: Ceiling, reason: str) -> None:
        """Note why a ceiling does not hold."""
        where = "run_id = ? AND device = ? AND threads = ? AND kind = ? AND problem = ? AND measured_at = ?"
        with self._writing():
            self._db.execute(
                f"UPDATE ceiling SET doubt = ? WHERE {where}", (reason, run_id, *ceiling.need, ceiling.measured_at)
            )

    def ceilings(self, run_id: str) -> list[tuple[Ceiling, str]]:
        """The ceilings of a run, in the order in which they were measured, each with why it does not hold (or "")."""
        names = ", ".join(Ceiling.__struct_fields__)
        query = f"SELECT {names}, doubt FROM ceiling WHERE run_id = ? ORDER BY ceiling_id"
        return [(Ceiling(*found), doubt) for *found, doubt in self._db.execute(query, (run_id,))]

    def run_ids(self) -> list[str]:
        """The ids of all runs, the latest last."""
        return [run_id for (run_id,) in self._db.execute("SELECT run_id FROM run ORDER BY rowid")]

    def find_run(self, run_id: str | None) -> sqlite3.Row:
        """The run with this id (or the only one that begins with it), or the latest. Raises UsageError."""
        columns = "SELECT run.*, machine.facts FROM run JOIN machine USING (machine_id)"
        if run_id is None:
            found = self._db.execute(f"{columns} ORDER BY run.rowid DESC LIMIT 1").fetchall()
        else:
            pattern = run_id.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            found = self._db.execute(f"{columns} WHERE run_id LIKE ? ESCAPE '\\' LIMIT 2", (pattern,)).fetchall()
        if len(found) == 1:
            return found[0]  # type: ignore[no-any-return]  # rows of sqlite3 are untyped
        if run_id is None:
            raise UsageError(f"{self.path}: holds no run yet; `kernelmark run SUITE` makes one")
        latest = [r[0] for r in self._db.execute("SELECT run_id FROM run ORDER BY rowid DESC LIMIT 3")]
        what = "is not a run of" if not found else "begins more than one run of"
        raise UsageError(f"run {run_id!r}: {what} {self.path}; the latest are {', '.join(latest) or 'none'}")

    def results(self, run_id: str) -> Iterator[tuple[Result, dict[str, Any]]]:
        """The rows of a run with their dimensions, in the order in which they were recorded, one at a time."""
        query = "SELECT * FROM result WHERE run_id = ? ORDER BY result_id"
        for found in self._db.execute(query, (run_id,)):
            yield Result(**{name: found[name] for name in COLUMNS}), json.loads(found["dims"])

    def dimensions(self, run_id: str) -> list[str]:
        """The names of all dimensions that occur in a run, in the order of their first appearance."""
        query = "SELECT DISTINCT op, (SELECT group_concat(key) FROM json_each(dims)) FROM result WHERE run_id = ?"
        names = [name for _, keys in self._db.execute(query, (run_id,)) for name in (keys or "").split(",") if name]
        return list(dict.fromkeys(names))

    def samples(self, run_id: str, case: str) -> list[float]:
        """The samples of a case, seconds a call, in the order in which they were taken."""
        query = 'SELECT sample_blob FROM result WHERE run_id = ? AND "case" = ?'
        found = self._db.execute(query, (run_id, case)).fetchone()
        return _doubles(found[0] if found else b"")

    def parts(self, run_id: str, case: str) -> list[Part]:
        """The processes that the samples of a case come from."""
        query = 'SELECT part_blob FROM result WHERE run_id = ? AND "case" = ?'
        found = self._db.execute(query, (run_id, case)).fetchone()
        return parts_of(found[0] if found else b"")


def parts_of(blob: bytes) -> list[Part]:
    """The processes of a case from what the store keeps of them."""
    values = _doubles(blob)
    return [Part(int(count), median) for count, median in zip(values[::2], values[1::2], strict=True)]


def _doubles(blob: bytes) -> list[float]:
    values = array.array("d")
    values.frombytes(blob)
    return values.tolist()
