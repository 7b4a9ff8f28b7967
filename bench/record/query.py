"""What every reader of the store needs: a query's rows one at a time, and what a row of results is made of."""

import array
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.plan.errors import UsageError
from bench.record.result import COLUMNS, Result
from bench.record.selection import Selection

#: The columns of a result as they stand in a SELECT.
SELECTED = ", ".join(f'"{name}"' for name in COLUMNS)
#: The rows of one run stand together, unless another run wrote at the same time: so they are read in the order of the
#: file. The plus keeps SQLite from going by the index, which would look up every row and sort them all.
_OF_RUN = "result_id BETWEEN :first AND :last AND +run_id = :run_id"


class Query:
    """An open store that can be asked. Raises UsageError where the file cannot be read."""

    path: Path
    _db: sqlite3.Connection

    def _rows(self, query: str, **values: Any) -> Iterator[Any]:
        """The rows of a query as plain tuples, one at a time."""
        try:
            cursor = self._db.cursor()
            cursor.row_factory = None
            yield from cursor.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{self.path}: cannot be read: {error}; --db names another file") from None

    def _of_run(self, run_id: str, query: str, **values: Any) -> Iterator[Any]:
        """Yield the rows of a query that has `{of_run}` where it means the rows of this run."""
        ((first, last),) = self._rows(
            "SELECT min(result_id), max(result_id) FROM result WHERE run_id = :run_id", run_id=run_id
        )
        return self._rows(query.format(of_run=_OF_RUN), run_id=run_id, first=first, last=last, **values)

    def select(self, selection: Selection) -> None:
        """From now on whoever reads rows gets those of the selection alone, as though no others were there."""
        self._db.create_function("selected", 4, selection.takes, deterministic=True)
        where = "selected(kernel, op, problem, status)"
        self._db.execute(f"CREATE TEMP VIEW result AS SELECT * FROM main.result WHERE {where}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything that is read meanwhile shows the store as it stands now, or as it did when an outer one began."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.rollback()


def result_of(values: Any) -> Result:
    """The result whose columns, in their order, have these values."""
    return Result(**dict(zip(COLUMNS, values, strict=True)))


def doubles(blob: bytes) -> "array.array[float]":
    """Return what the store keeps of a list of numbers."""
    values = array.array("d")
    values.frombytes(blob)
    return values
