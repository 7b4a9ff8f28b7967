"""What the store holds of whole runs: which there are, which is meant, how many rows of which kind each has."""

import sqlite3
from typing import Any, NamedTuple

from bench.plan.errors import UsageError
from bench.record.query import Query


class Tally(NamedTuple):
    """How many rows of a run are alike in these columns; timed: whether they have a median."""

    status: str
    device_name: str
    disturbed: str
    timed: bool
    rows: int


class RunReader(Query):
    """Queries for runs. They count all rows, whatever part of them was selected."""

    def run_ids(self) -> list[str]:
        """The ids of all runs, the latest last."""
        return [run_id for (run_id,) in self._rows("SELECT run_id FROM run ORDER BY rowid")]

    def runs(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """The runs as they stand in the store, with the facts of their machines, the latest last; or this one alone."""
        query = f"{_RUNS} WHERE :run_id IS NULL OR run_id = :run_id ORDER BY run.rowid"
        return [dict(row) for row in self._db.execute(query, {"run_id": run_id})]

    def tallies(self, run_id: str | None = None) -> dict[str, list[Tally]]:
        """Return the counts of the rows of each run that has any, or of this one alone."""
        columns = "run_id, status, device_name, disturbed, time_s_median IS NOT NULL"
        where = "WHERE run_id = :run_id" if run_id is not None else ""
        query = f"SELECT {columns}, count(*) FROM main.result {where} GROUP BY {columns}"
        found: dict[str, list[Tally]] = {}
        for own, *values in self._rows(query, **({"run_id": run_id} if run_id is not None else {})):
            found.setdefault(own, []).append(Tally(*values))
        return found

    def find_run(self, run_id: str | None) -> sqlite3.Row:
        """The run with this id or name, or the only one with an id or name that begins so, or the latest.

        Raises UsageError.
        """
        if run_id is None:
            found = self._db.execute(f"{_RUNS} ORDER BY run.rowid DESC LIMIT 1").fetchall()
        else:
            begins = "substr(run_id, 1, length(:text)) = :text OR substr(name, 1, length(:text)) = :text"
            query = f"{_RUNS} WHERE :text != '' AND ({begins}) ORDER BY :text IN (run_id, name) DESC LIMIT 2"
            found = self._db.execute(query, {"text": run_id}).fetchall()
            found = found[:1] if found and run_id in (found[0]["run_id"], found[0]["name"]) else found
        if len(found) == 1:
            return found[0]  # type: ignore[no-any-return]  # rows of sqlite3 are untyped
        if run_id is None:
            raise UsageError(f"{self.path}: holds no run yet; `kernelmark run SUITE` makes one")
        latest = [row["run_id"] for row in self._db.execute(f"{_RUNS} ORDER BY run.rowid DESC LIMIT 3")]
        what = "is not a run of" if not found else "begins more than one run of"
        raise UsageError(f"run {run_id!r}: {what} {self.path}; the latest are {', '.join(latest) or 'none'}")


_RUNS = "SELECT run.*, machine.facts FROM run JOIN machine USING (machine_id)"
