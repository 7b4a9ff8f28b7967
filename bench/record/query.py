"""What every reader of the store needs: a query's rows one at a time, checked, and what a row of results is made of."""

import array
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
import numpy as np

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.result import COLUMNS, Result, finite
from kernelmark.bench.record.selection import Selection


def selected(names: Sequence[str]) -> str:
    """The columns as they stand in a SELECT. In quotes, one that is missing would be a text."""
    return ", ".join(f"[{name}]" for name in names)


SELECTED = selected(COLUMNS)
#: The rows of one run stand together, unless another run wrote at the same time: so they are read in the order of the
#: file. The plus keeps SQLite from going by the index, which would look up every row and sort them all.
_OF_RUN = "result_id BETWEEN :first AND :last AND +run_id = :run_id"
#: What decoding a damaged value raises.
_DAMAGE = (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
#: The dimensions of a problem by name.
Dims = dict[str, Any]
_DIMS = msgspec.json.Decoder(Dims)
_DOUBLE_BYTES = 8
_HINTS = get_type_hints(Result, include_extras=True)
Struct = TypeVar("Struct", bound=msgspec.Struct)
Read = Callable[[tuple[Any, ...]], Any]


class Query:
    """An open store that can be asked. Raises UsageError where the file cannot be read, or holds what none can hold."""

    path: Path
    _db: sqlite3.Connection

    def _rows(self, query: str, read: Read = lambda values: values, **values: Any) -> Iterator[Any]:
        """The rows of a query one at a time, each as what `read` makes of its values; it raises where they are damaged.

        read: nothing but decoding, since whatever it raises is taken for damage.
        """
        with self._guarded():
            cursor = self._db.cursor()
            cursor.row_factory = None
            yield from map(read, cursor.execute(query, values))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise UsageError(f"{self.path}: cannot be read: {error}; --db names another file") from None

    def _of_run(self, run_id: str, query: str, read: Read = lambda values: values, **values: Any) -> Iterator[Any]:
        """Yield the rows of a query that has `{of_run}` where it means the rows of this run."""
        ((first, last),) = self._rows(
            "SELECT min(result_id), max(result_id) FROM main.result WHERE run_id = :run_id", run_id=run_id
        )
        return self._rows(query.format(of_run=_OF_RUN), read, run_id=run_id, first=first, last=last, **values)

    def select(self, selection: Selection) -> None:
        """From now on whoever reads rows gets those of the selection alone, as though no others were there."""
        where = "selected(kernel, op, problem, status)"
        with self._guarded():
            self._db.create_function("selected", 4, selection.takes, deterministic=True)
            self._db.execute(f"CREATE TEMP VIEW result AS SELECT * FROM main.result WHERE {where}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything that is read meanwhile shows the store as it stands now, or as it did when an outer one began."""
        if self._db.in_transaction:
            yield
            return
        with self._guarded():
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.rollback()


def result_of(values: Sequence[Any]) -> Result:
    """The result whose columns, in their order, have these values. Raises ValueError for what no column holds."""
    try:
        return struct_of(Result, values)
    except msgspec.ValidationError:  # a number that is not finite is as good as none
        return struct_of(Result, [*map(finite, values)])


def checked(rows: list[tuple[Any, ...]], names: tuple[str, ...] = COLUMNS) -> list[tuple[Any, ...]]:
    """The values of rows that begin with these columns, in a tenth of the time of `result_of`. Raises ValueError."""
    kind, named = _kinds(names)
    try:
        msgspec.convert(rows, list[kind])  # type: ignore[valid-type]  # made from the names
        return rows
    except msgspec.ValidationError:  # a number that is not finite is as good as none
        rows = [tuple(map(finite, values)) for values in rows]
        for values in rows:
            msgspec.convert(dict(zip(names, values, strict=False)), named)
        return rows


@lru_cache
def _kinds(names: tuple[str, ...]) -> tuple[type[msgspec.Struct], type[msgspec.Struct]]:
    """The types of rows with these columns, as lists and as objects, whose complaints have the name of the column."""
    fields = [(name, _HINTS[name]) for name in names]
    return msgspec.defstruct("Listed", fields, array_like=True), msgspec.defstruct("Named", fields)


def struct_of(kind: type[Struct], values: Sequence[Any]) -> Struct:
    """The struct whose fields, in their order, have these values. Raises ValueError."""
    return msgspec.convert(dict(zip(kind.__struct_fields__, values, strict=True)), kind)


def dims_of(text: str) -> Dims:
    """The dimensions as the store keeps them. Raises ValueError."""
    return _DIMS.decode(text)


def doubles(blob: bytes) -> "array.array[float]":
    """Return what the store keeps of a list of numbers. Raises ValueError."""
    values = array.array("d")
    values.frombytes(blob)
    return values


def samples_of(blob: bytes) -> "array.array[float]":
    """Return the samples that the store keeps, seconds a call. Raises ValueError for what is no time."""
    values = doubles(blob)
    if values and not (math.isfinite(sum(values)) and min(values) >= 0):
        raise ValueError("a sample is no number of seconds")
    return values


def check_samples(blobs: Sequence[bytes]) -> None:
    """Check the samples of many rows in a tenth of the time of `samples_of`. Raises ValueError and TypeError."""
    if any(len(blob) % _DOUBLE_BYTES for blob in blobs):
        raise ValueError("samples end within a number")
    samples = np.frombuffer(b"".join(blobs))
    if not ((samples >= 0) & (samples < math.inf)).all():
        raise ValueError("a sample is no number of seconds")
