"""Run queries on all or selected rows of a store, with limits on size and time; rows are yielded one by one."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.selection import Selection

Read = Callable[[tuple[Any, ...]], Any]
#: The exceptions that decoding a damaged value may raise.
_DAMAGE = (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
#: The rows of a run are contiguous in the file unless another run wrote at the same time, so they are read in file
#: order. The plus sign keeps SQLite from using the index, which would look up every row and sort them all.
OF_RUN = "result_id BETWEEN :first AND :last AND +run_id = :run_id"
#: Limits for stores that other users wrote: the largest value that is read, SQLite's steps between two checks of a
#: query, and the maximum number of these checks. A query of a million rows takes half of the steps allowed.
MOST_BYTES = 32 * 2**20
STEPS, MOST_LOOKS = 10**6, 300


class Queries:
    """An open store. Its methods raise UsageError if the file cannot be read or holds invalid values."""

    path: Path
    _db: sqlite3.Connection
    _looks = 0

    def _is_endless(self) -> bool:
        self._looks += 1
        return self._looks > MOST_LOOKS

    def _rows(self, query: str, read: Read = lambda values: values, **values: Any) -> Iterator[Any]:
        """Yield the rows of a query, each converted by `read`. Raises UsageError for damaged values.

        read: must only decode, since every exception that it raises counts as damage.
        """
        with self._guarded():
            self._looks = 0
            cursor = self._db.cursor()
            cursor.row_factory = None
            yield from map(read, cursor.execute(query, values))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            reason = str(error)
            if self._looks > MOST_LOOKS:
                reason = f"a query took more than {STEPS * MOST_LOOKS:.0e} steps"
            elif isinstance(error, sqlite3.DataError):
                reason += f", expected at most {MOST_BYTES >> 20} MiB"
            raise UsageError(f"{self.path}: cannot be read: {reason}; --db names another file") from None

    def _of_run(self, run_id: str, query: str, read: Read = lambda values: values, **values: Any) -> Iterator[Any]:
        """Yield the rows of a query whose condition `OF_RUN` selects the rows of this run."""
        ends = "SELECT min(result_id), max(result_id) FROM main.result WHERE run_id = :run_id"
        ((first, last),) = self._rows(ends, run_id=run_id)
        return self._rows(query, read, run_id=run_id, first=first, last=last, **values)

    def _in_order(
        self, run_id: str, columns: str, read: Read = lambda values: values, among: str = "TRUE", **values: Any
    ) -> Iterator[Any]:
        """Yield columns of the rows of a run in the order in which they were recorded."""
        query = f"SELECT {columns} FROM result WHERE {OF_RUN} AND {among} ORDER BY result_id"
        return self._of_run(run_id, query, read, **values)

    def _of_case(self, columns: str, read: Read, run_id: str, case: str) -> Any:
        """Return columns of a case's row, or an empty list if there is none."""
        query = f'SELECT {columns} FROM result WHERE run_id = :run_id AND "case" = :case'
        return next(self._rows(query, read, run_id=run_id, case=case), [])

    def select(self, selection: Selection) -> None:
        """Restrict later reads to the rows of the selection."""
        where = "selected(kernel, op, problem, status)"
        with self._guarded():
            self._db.create_function("selected", 4, selection.takes, deterministic=True)
            self._db.execute(f"CREATE TEMP VIEW result AS SELECT * FROM main.result WHERE {where}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads in the context see the store as it was when the outermost context began."""
        if self._db.in_transaction:
            yield
            return
        with self._guarded():
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.rollback()
