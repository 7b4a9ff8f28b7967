"""The store: SQLite in WAL mode, a commit a result."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.measure.ceiling import Ceiling
from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.measure.host import Host
from kernelmark.bench.measure.measurement import Evidence, Measurement, Part
from kernelmark.bench.measure.stats import Ratio
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.opening import open_store, require_sound
from kernelmark.bench.record.reader import Layer as Layer
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.schema import INSERT, REMOVE, REMOVE_JOB, row_values
from kernelmark.bench.record.versions import KernelVersion, Resources, Sources, digest_of, packed


def default_store() -> Path:
    """`$XDG_DATA_HOME/kernelmark/results.db`."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "kernelmark" / "results.db"


class Run(msgspec.Struct, frozen=True):
    """What was asked for, where and with what; immutable once it has begun.

    name: the user's own, unique in the store, or "". planned: how many cases it has when it is complete, if known.
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
    """Rows on disk; a row that was acknowledged outlives the process. Raises UsageError for files it cannot use."""

    def __init__(self, path: Path, create: bool = True) -> None:
        self.path = path
        self._db = open_store(path, create)

    def require_sound(self) -> None:
        """Raise UsageError for a damaged file, to which nothing must be added."""
        require_sound(self._db, self.path)

    def close(self) -> None:
        """Give the file back."""
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Open one transaction. Raises UsageError for a full disk and the like; what was committed before stays."""
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            raise UsageError(f"{self.path}: cannot be written: {error}; rows recorded so far are safe") from None

    def begin(self, run: Run) -> None:
        """Record a run before its first result. Raises UsageError for a name that another run has, and for damage."""
        self.require_sound()
        facts = json.dumps(run.machine, sort_keys=True)
        machine_id = hashlib.sha256(facts.encode()).hexdigest()[:16]
        with self._writing():
            self._db.execute("INSERT OR IGNORE INTO machine VALUES (?, ?)", (machine_id, facts))
            self._refuse_name(run.name)
            self._db.execute(
                "INSERT INTO run VALUES (?, ?, ?, NULL, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.run_id,
                    machine_id,
                    run.started_at,
                    json.dumps(run.suites),
                    run.command,
                    json.dumps(run.environment, sort_keys=True),
                    run.git_commit,
                    json.dumps(run.plan, sort_keys=True),
                    run.name,
                    run.planned,
                ),
            )

    def _refuse_name(self, name: str) -> None:
        for (taken,) in self._rows("SELECT run_id FROM run WHERE name = :name AND name != ''", name=name):
            remedy = f"take another, or remove that run: `kernelmark runs --delete {name}`"
            raise UsageError(f"--name {name}: run {taken} has this name; {remedy}")

    def remove(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all that belongs to them; all or none. The file shrinks, unless another has it open."""
        self.require_sound()
        with self._writing():
            for statement in REMOVE:
                self._db.executemany(statement, [(run_id,) for run_id in run_ids])
            self._db.execute("DELETE FROM machine WHERE machine_id NOT IN (SELECT machine_id FROM run)")
        with suppress(sqlite3.Error):  # another reads, or the disk is full: then new rows take the space
            self._db.execute("VACUUM")

    def remove_noisy(self, run_id: str) -> None:
        """Delete the rows of all that was measured in turn with a disturbed case, for it to be measured again."""
        noisy = {result.job for result, _ in self.results(run_id) if was_noisy(result.disturbed)}
        with self._writing():
            for statement in REMOVE_JOB:
                self._db.executemany(statement, [(run_id, job) for job in noisy])

    def finish(self, run_id: str, finished_at: str) -> None:
        """Note when a run ended."""
        with self._writing():
            self._db.execute("UPDATE run SET finished_at = ? WHERE run_id = ?", (finished_at, run_id))

    def run(self, run_id: str) -> Run:
        """Return a run: the one with this id, or the only one that begins with it. Raises UsageError."""
        return msgspec.convert(self.find_run(run_id), Run)

    def has(self, run_id: str, case: str) -> bool:
        """Return whether the run has a row for this case."""
        query = 'SELECT 1 FROM result WHERE run_id = :run_id AND "case" = :case'
        return any(self._rows(query, run_id=run_id, case=case))

    def add(
        self,
        result: Result,
        dims: dict[str, Any],
        samples: Sequence[float],
        ratio: Ratio | None,
        parts: Sequence[Part] = (),
        evidence: Evidence | None = None,
        place: int = 0,
    ) -> None:
        """Commit one result with its samples (seconds a call, in the order taken) and its ratio to the baseline.

        parts: the processes that the samples come from. evidence: what accuses a result that is mistrusted. place: the
        number of its job in the whole plan.
        """
        with self._writing():
            cursor = self._db.execute(INSERT, row_values(result.run_id, result, dims, samples, parts, place))
            if evidence:
                found = msgspec.json.encode(evidence).decode()
                self._db.execute("INSERT INTO evidence VALUES (?, ?)", (cursor.lastrowid, found))
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

    def set_aside(self, run_id: str, job: int, process: int, measured: Sequence[Measurement]) -> None:
        """Keep what one process found of a job, by its place in the plan, until its last one has been asked."""
        values = (run_id, job, process, msgspec.msgpack.encode(measured))
        with self._writing():
            self._db.execute("INSERT INTO pending VALUES (?, ?, ?, ?)", values)

    def forget(self, run_id: str, job: int) -> None:
        """Drop what was kept of a job whose rows stand by now."""
        with self._writing():
            self._db.execute("DELETE FROM pending WHERE run_id = ? AND job = ?", (run_id, job))

    def add_ceiling(self, run_id: str, ceiling: Ceiling) -> None:
        """Record a ceiling that was measured in a run."""
        values = {"run_id": run_id, **msgspec.structs.asdict(ceiling)}
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with self._writing():
            self._db.execute(f"INSERT INTO ceiling ({names}) VALUES ({marks})", tuple(values.values()))

    def add_host(self, run_id: str, host: Host) -> None:
        """Record where a part of a run is measured; a host that is known stays."""
        facts = msgspec.json.encode(host).decode()
        with self._writing():
            self._db.execute("INSERT OR IGNORE INTO host VALUES (?, ?, ?)", (run_id, host.host, facts))

    def add_layer(self, run_id: str, layer: Layer, place: int = 0) -> None:
        """Note that a suite of the run has this problem as a layer; known ones stay."""
        with self._writing():
            self._db.execute(
                "INSERT OR IGNORE INTO layer VALUES (?, ?, ?, ?, ?, ?)",
                (run_id, *msgspec.structs.astuple(layer), place),
            )

    def add_resources(self, run_id: str, case: str, used: Resources) -> None:
        """Note what a tile of a run takes; what is known of it already is replaced."""
        with self._writing():
            values = (run_id, case, *msgspec.structs.astuple(used))
            self._db.execute("INSERT OR REPLACE INTO resource VALUES (?, ?, ?, ?)", values)

    def add_version(self, version: KernelVersion, sources: Sources) -> int:
        """Keep a version of a kernel, whose sources are kept once however often they are tried; return its number."""
        digest = digest_of(sources)
        with self._writing():
            self._db.execute("INSERT OR IGNORE INTO source VALUES (?, ?)", (digest, packed(sources)))
            values = (version.kernel, version.problem, digest, msgspec.json.encode(version).decode())
            cursor = self._db.execute("INSERT INTO version VALUES (NULL, ?, ?, ?, ?)", values)
        return int(cursor.lastrowid or 0)

    def doubt_ceiling(self, run_id: str, ceiling: Ceiling, reason: str) -> None:
        """Note why a ceiling does not hold."""
        where = "run_id = ? AND device = ? AND threads = ? AND kind = ? AND problem = ? AND measured_at = ?"
        with self._writing():
            self._db.execute(
                f"UPDATE ceiling SET doubt = ? WHERE {where}", (reason, run_id, *ceiling.need, ceiling.measured_at)
            )
