"""The rows of a run as columns, which need a tenth of the memory of objects."""

import csv
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from math import nan
from types import NoneType, SimpleNamespace
from typing import Any, cast

import msgspec

from kernelmark.bench.record.columns import COLUMNS, KINDS, Result
from kernelmark.bench.record.records import dims_of

#: The number of rows that are converted to columns at a time; so many fit into the processor's caches.
CHUNK = 100
_FLOATS = frozenset(name for name, kind in KINDS.items() if kind is float)
#: A text with one of these characters is quoted.
_SPECIAL = ',"\r\n'
_NUMBERS = frozenset((int, float, NoneType))


class Coded:
    """A column with repeated values: the distinct values, and a code for each row."""

    def __init__(self) -> None:
        self._index: defaultdict[Any, int] = defaultdict()
        self._index.default_factory = self._index.__len__  # a new value gets the next code
        self.codes = array("I")
        self.values: list[Any] = []

    def extend(self, values: Sequence[Any]) -> None:
        if values.count(values[0]) == len(values):  # as in most columns; looking up each value would take longer
            self.codes.extend(array("I", [self._index[values[0]]]) * len(values))
        else:
            self.codes.extend(map(self._index.__getitem__, values))

    def close(self) -> None:
        """Free the structures that are needed only for adding, and store the codes in the smallest type that fits."""
        self.values = list(self._index)
        self._index.clear()
        kind = "B" if len(self.values) <= 2**8 else "H" if len(self.values) <= 2**16 else "I"
        self.codes = array(kind, self.codes)

    def __iter__(self) -> Iterator[Any]:
        return map(self.values.__getitem__, self.codes)

    def texts(self) -> Iterator[str]:
        """Yield the values as CSV cells."""
        texts = cells(self.values)
        return repeat(texts[0], len(self.codes)) if len(texts) == 1 else map(texts.__getitem__, self.codes)

    def attribute(self) -> Any:
        """Return a class attribute for row objects: the value that all rows share, or a property that looks it up."""
        values, codes = self.values, self.codes
        if len(values) == 1:
            return values[0]
        return property(lambda row: values[codes[row.at]])


class Floats:
    """A column of mostly different numbers; None is stored as NaN, which the store never contains."""

    def __init__(self) -> None:
        self.numbers = array("d")

    def extend(self, values: Sequence[Any]) -> None:
        try:
            self.numbers.fromlist([*values])
        except TypeError:  # a value is None, and `fromlist` has added nothing
            self.numbers.fromlist([nan if value is None else value for value in values])

    def __iter__(self) -> Iterator[Any]:
        return (None if number != number else number for number in self.numbers)

    def texts(self) -> Iterator[str]:
        starts = range(0, len(self.numbers), CHUNK)
        return chain.from_iterable(number_cells(self.numbers[start : start + CHUNK].tolist()) for start in starts)

    def attribute(self) -> Any:
        """Return a class attribute for row objects: a property that looks up the row's value."""
        numbers = self.numbers
        return property(lambda row: None if (number := numbers[row.at]) != number else number)


class Table:
    """Rows, stored by column. rows: objects with the attributes of a Result, looked up in the columns."""

    def __init__(self, columns: dict[str, Coded | Floats], dims: Coded, count: int) -> None:
        self.columns, self.dims = columns, dims
        kind = _row_class(columns)
        self.rows = cast(Sequence[Result], [kind(at) for at in range(count)])

    def records(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row's values, in the order of the columns."""
        return zip(*self.columns.values(), strict=True)


class Builder:
    """Collects chunks of rows into columns. constants: the value of each column that is the same in all rows."""

    def __init__(self, names: Sequence[str] = COLUMNS, constants: Mapping[str, Any] = {}) -> None:
        self._columns = {name: Floats() if name in _FLOATS - constants.keys() else Coded() for name in names}
        self._dims, self._count, self._constants = Coded(), 0, constants
        self._added = [*(column for name, column in self._columns.items() if name not in constants), self._dims]

    def add(self, columns: Iterable[Sequence[Any]]) -> None:
        """Add rows, given as columns: all columns but `constants`, then the dimensions as text. Raises TypeError."""
        for column, values in zip(self._added, columns, strict=True):
            column.extend(values)
        self._count += len(values)

    def table(self) -> Table:
        """Return the table; nothing can be added afterwards. Raises ValueError for dimensions that are not JSON."""
        for name, value in self._constants.items():
            self._columns[name].extend([value] * self._count)
        for column in (*self._columns.values(), self._dims):
            if isinstance(column, Coded):
                column.close()
        self._dims.values = [dims_of(text) for text in self._dims.values]
        return Table(self._columns, self._dims, self._count)


def _row_class(columns: dict[str, Coded | Floats]) -> Callable[[int], Any]:
    """Return a class whose objects store only an index, and look up their values in the columns."""

    def begin(row: Any, at: int) -> None:
        row.at = at

    derived = {name: value for name, value in vars(Result).items() if isinstance(value, property)}
    attributes = {name: column.attribute() for name, column in columns.items()}
    return type("Row", (), {"__slots__": ("at",), "__init__": begin, **derived, **attributes})


def cells(values: Sequence[Any]) -> Sequence[str]:
    """Return a column's cells as csv.writer writes them; "" for None and NaN. This is faster than row by row."""
    kinds = set(map(type, values))
    if kinds == {str}:
        joined = "".join(values)
        return _written(values) if any(mark in joined for mark in _SPECIAL) else values
    return number_cells(values) if kinds <= _NUMBERS else _written(values)


def number_cells(values: Sequence[float | None]) -> list[str]:
    """Return numbers as `repr` writes them; "" for None and NaN. JSON encoding is four times as fast as `repr`."""
    joined = msgspec.json.encode(values).decode()[1:-1].replace("null", "")
    texts = joined.split(",") if values else []
    if "e" not in joined and "0.0000" not in joined:
        return texts
    # JSON and `repr` differ in when they use an exponent and how they write it.
    return [repr(value) if "e" in text or "0.0000" in text else text for value, text in zip(values, texts, strict=True)]


def _written(values: Iterable[Any]) -> list[str]:
    """Return cells as csv.writer writes them in rows of several cells; alone in a row, an empty cell would be `""`."""
    lines: list[str] = []
    # A writer that ends rows with only a line feed leaves carriage returns in a cell unquoted.
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n").writerows(zip(values, repeat(None)))
    return [line[:-3] for line in lines]
