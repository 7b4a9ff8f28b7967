"""Values as the cells of CSV, formed a column at a time, which takes less time than row by row."""

import csv
from collections.abc import Iterable, Sequence
from itertools import repeat
from types import NoneType, SimpleNamespace
from typing import Any

import msgspec

#: A text with one of these stands in quotes.
_SPECIAL = ',"\r\n'
_NUMBERS = frozenset((int, float, NoneType))


def cells(values: Sequence[Any]) -> Sequence[str]:
    """Return the cells of a column, as csv.writer writes them; nothing for None and for NaN."""
    kinds = set(map(type, values))
    if kinds == {str}:
        joined = "".join(values)
        return _written(values) if any(mark in joined for mark in _SPECIAL) else values
    return number_cells(values) if kinds <= _NUMBERS else _written(values)


def number_cells(values: Sequence[float | None]) -> list[str]:
    """Return numbers as `repr` writes them, which the writer of JSON does in a quarter of the time; NaN is empty."""
    joined = msgspec.json.encode(values).decode()[1:-1].replace("null", "")
    texts = joined.split(",") if values else []
    if "e" not in joined and "0.0000" not in joined:
        return texts
    # The two differ in when they write an exponent, and how.
    return [repr(value) if "e" in text or "0.0000" in text else text for value, text in zip(values, texts, strict=True)]


def _written(values: Iterable[Any]) -> list[str]:
    """Return what csv.writer writes; a cell beside it keeps it from quoting an empty line."""
    lines: list[str] = []
    # A writer that ends rows with a line feed alone leaves carriage returns in a cell unquoted.
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n").writerows(zip(values, repeat(None)))
    return [line[:-3] for line in lines]
