"""Copying of rows from one store to another, in SQL: they never become objects."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.records import RunFacts
from kernelmark.bench.record.schema import OWN
from kernelmark.bench.record.store import Run, Store
from kernelmark.bench.record.versions import KernelVersion

#: Of a row, all but its own id and its run's.
_ROW = ("case", *OWN, "dims", "place", "part_blob", "sample_blob")
_NAMES = ", ".join(f'"{name}"' for name in _ROW)
#: Rows of a job in a merged run have ids so far from those of the job before: those of a shard that is still missing
#: find theirs free.
ROOM = 2**20
_BEGAN = ("machine_id", "started_at", "suites", "command", "environment", "git_commit", "plan")
_RUN = ("run_id", *_BEGAN, "finished_at", "name", "planned")
_APART = "; one of the two was changed: merge it into another file (--db)"
_CEILING = (
    "device", "threads", "kind", "problem", "kernel", "device_name", "rate", "low", "high", "best", "measured_at",
    "clock_mhz", "host", "device_uuid",
)  # fmt: skip
#: Rows that were there before keep their ids; a new one has its own by its place, or comes after all that are there.
_MOVED = """
CREATE TEMP TABLE moved AS
WITH ranked AS (
    SELECT result_id, "case", {number} AS number FROM shard.result WHERE run_id = :run_id
)
SELECT result_id AS old, number AS new FROM ranked
WHERE NOT EXISTS (SELECT 1 FROM main.result there WHERE there.run_id = :target AND there."case" = ranked."case")
"""
_BY_PLACE = ":first + place * :room + row_number() OVER (PARTITION BY place ORDER BY result_id)"
_AT_THE_END = ":first + row_number() OVER (ORDER BY result_id)"


def _aliased(table: str, names: Sequence[str]) -> str:
    return ", ".join(f'{table}."{name}"' for name in names)


class Copying(Store):
    """A store to which the rows of another, attached under the name `shard`, are copied."""

    @contextmanager
    def attached(self, path: Path) -> Iterator[None]:
        """Have the tables of another store at hand. Raises UsageError where they cannot be read."""
        with self._guarded():
            self._db.execute("ATTACH DATABASE ? AS shard", (str(path),))
        try:
            yield
        finally:
            self._db.execute("DETACH DATABASE shard")

    def copy_whole(self, runs: Sequence[RunFacts], path: Path) -> int:
        """Copy runs that are no shards, and the versions of kernels; return the number of new rows."""
        with self._writing():
            self._copy_versions()
            return sum(self._copy_run(run, path) for run in runs)

    def _copy_run(self, run: RunFacts, path: Path) -> int:
        run_id = run["run_id"]
        names, began = ", ".join(_RUN), ", ".join(_BEGAN)
        same = f"({_aliased('there', _BEGAN)}) IS ({_aliased('own', _BEGAN)})"
        query = f"SELECT {same} FROM main.run there JOIN shard.run own USING (run_id) WHERE run_id = ?"
        for (is_same,) in self._db.execute(query, (run_id,)).fetchall():
            if not is_same:
                raise UsageError(f"{path}: its run {run_id} began otherwise than that of {self.path} ({began}){_APART}")
        self._refuse_taken(run["name"], run_id, path)
        self._db.execute("INSERT OR IGNORE INTO main.machine SELECT * FROM shard.machine")
        self._db.execute(
            f"INSERT INTO main.run ({names}) SELECT {names} FROM shard.run WHERE run_id = ? "
            "ON CONFLICT DO UPDATE SET finished_at = coalesce(excluded.finished_at, finished_at)",
            (run_id,),
        )
        last = self._db.execute("SELECT coalesce(max(result_id), 0) FROM main.result").fetchone()[0]
        return self._copy_rows(_AT_THE_END, run_id, run_id, path, last)

    def join(self, run: Run, finished_at: str | None, run_id: str, path: Path, first: int) -> int:
        """Copy a shard's rows, those of `run_id`, into the merged run; return the number of new rows."""
        with self._writing():
            self._refuse_taken(run.name, run.run_id, path)
            self._record(run, finished_at)
            return self._copy_rows(_BY_PLACE, run_id, run.run_id, path, first)

    def _record(self, run: Run, finished_at: str | None) -> None:
        """Record the merged run as its shards stand now."""
        facts = json.dumps(run.machine, sort_keys=True)
        machine_id = hashlib.sha256(facts.encode()).hexdigest()[:16]
        self._db.execute("INSERT OR IGNORE INTO main.machine VALUES (?, ?)", (machine_id, facts))
        texts = {name: json.dumps(getattr(run, name), sort_keys=True) for name in ("suites", "environment", "plan")}
        values: Mapping[str, Any] = {**msgspec.structs.asdict(run), **texts, "machine_id": machine_id}
        changed = ", ".join(f"{name} = excluded.{name}" for name in _RUN if name != "run_id")
        self._db.execute(
            f"INSERT INTO main.run ({', '.join(_RUN)}) VALUES ({', '.join(f':{name}' for name in _RUN)}) "
            f"ON CONFLICT DO UPDATE SET {changed}",
            {**{name: values.get(name) for name in _RUN}, "finished_at": finished_at},
        )

    def room(self, run_id: str) -> int:
        """Return from where on the rows of a merged run have their ids; no other run has any above that."""
        with self._writing():
            query = """
                SELECT min(result_id - place * :room) FILTER (WHERE run_id = :run_id) / :room * :room,
                    coalesce(max(result_id) FILTER (WHERE run_id != :run_id), 0), coalesce(max(result_id), 0)
                FROM main.result"""
            first, others, last = self._db.execute(query, {"run_id": run_id, "room": ROOM}).fetchone()
            if first is not None and others < first:
                return int(first)
            free = int((last // ROOM + 1) * ROOM)
            for table in ("ratio", "evidence", "result") if first is not None else ():
                where = "result_id IN (SELECT result_id FROM main.result WHERE run_id = ?)"
                update = f"UPDATE main.{table} SET result_id = result_id + ? WHERE {where}"
                self._db.execute(update, (free - first, run_id))
            return free

    def _refuse_taken(self, name: str, run_id: str, path: Path) -> None:
        query = "SELECT run_id FROM main.run WHERE name = ? AND name != '' AND run_id != ?"
        for (taken,) in self._db.execute(query, (name, run_id)).fetchall():
            remedy = f"remove that run: `kernelmark runs --delete {name}`"
            raise UsageError(f"{path}: run {taken} of {self.path} has its name, {name}; {remedy}")

    def _copy_rows(self, number: str, run_id: str, target: str, path: Path, first: int) -> int:
        """Copy what a run has measured and `target` has not yet. Raises UsageError for a row with other content."""
        values = {"run_id": run_id, "target": target, "first": first, "room": ROOM}
        self._refuse_other(values, path)
        self._db.execute(_MOVED.format(number=number), values)
        self._db.execute(
            f"INSERT INTO main.result (result_id, run_id, {_NAMES}) SELECT new, :target, {_aliased('own', _ROW)} "
            "FROM moved JOIN shard.result own ON own.result_id = old ORDER BY new",
            values,
        )
        for table, rest in (("ratio", "baseline, median, low, high, method, minima"), ("evidence", "found")):
            self._db.execute(
                f"INSERT INTO main.{table} (result_id, {rest}) SELECT new, {rest} "
                f"FROM moved JOIN shard.{table} own ON own.result_id = old"
            )
        (rows,) = self._db.execute("SELECT count(*) FROM moved").fetchone()
        self._db.execute("DROP TABLE moved")
        self._copy_rest(values)
        return int(rows)

    def _refuse_other(self, values: Mapping[str, Any], path: Path) -> None:
        query = f"""
            SELECT own."case" FROM main.result there
            JOIN shard.result own ON own.run_id = :run_id AND own."case" = there."case"
            WHERE there.run_id = :target AND ({_aliased("own", _ROW)}) IS NOT ({_aliased("there", _ROW)}) LIMIT 1"""
        for (case,) in self._db.execute(query, values).fetchall():
            raise UsageError(f"{path}: its run {values['run_id']} has another row of {case} than {self.path}{_APART}")

    def _copy_rest(self, values: Mapping[str, Any]) -> None:
        """Copy layers, ceilings, hosts and resources, each once."""
        names = "network, problem, part, count, place"
        self._db.execute(
            f"INSERT OR IGNORE INTO main.layer (run_id, {names}) SELECT :target, {names} FROM shard.layer "
            "WHERE run_id = :run_id ORDER BY rowid",
            values,
        )
        same = f"there.run_id = :target AND ({_aliased('there', _CEILING)}) IS ({_aliased('own', _CEILING)})"
        absent = f"NOT EXISTS (SELECT 1 FROM main.ceiling there WHERE {same})"
        names = ", ".join((*_CEILING, "doubt"))
        self._db.execute(
            f"INSERT INTO main.ceiling (run_id, {names}) SELECT :target, {names} FROM shard.ceiling own "
            f"WHERE run_id = :run_id AND {absent} ORDER BY ceiling_id",
            values,
        )
        self._db.execute(
            "INSERT OR IGNORE INTO main.host SELECT :target, host, facts FROM shard.host WHERE run_id = :run_id "
            "ORDER BY rowid",
            values,
        )
        names = '"case", registers, spill_bytes'
        self._db.execute(
            f"INSERT OR IGNORE INTO main.resource (run_id, {names}) SELECT :target, {names} FROM shard.resource "
            "WHERE run_id = :run_id",
            values,
        )

    def _copy_versions(self) -> None:
        """Copy the versions of kernels that `watch` and `tune` tried, each once; those that they name go along."""
        self._db.execute("INSERT OR IGNORE INTO main.source SELECT * FROM shard.source")
        numbers: dict[int | None, int | None] = {None: None}
        query = "SELECT version_id, kernel, problem, digest, facts FROM shard.version ORDER BY version_id"
        for number, names, version in list(self._rows(query, _version)):
            compared = tuple(msgspec.structs.replace(c, version=numbers.get(c.version)) for c in version.compared)
            told = msgspec.json.encode(msgspec.structs.replace(version, compared=compared)).decode()
            where = "kernel = ? AND problem = ? AND digest = ? AND facts = ?"
            there = self._db.execute(f"SELECT version_id FROM main.version WHERE {where}", (*names, told)).fetchone()
            if there is None:
                insert = "INSERT INTO main.version (kernel, problem, digest, facts) VALUES (?, ?, ?, ?)"
                there = (self._db.execute(insert, (*names, told)).lastrowid,)
            numbers[number] = there[0]


def _version(values: tuple[Any, ...]) -> tuple[int, tuple[str, ...], KernelVersion]:
    number, *names, facts = values
    return int(number), tuple(names), msgspec.json.decode(facts, type=KernelVersion)
