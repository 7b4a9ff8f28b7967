"""Read kernelmark's CSV: the columns of rows, then dimensions. Exporting the imported run gives the same rows."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice, repeat
from typing import IO, Annotated, Any

import msgspec

from kernelmark.bench.plan.case import case_key
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.numbers import DECIMAL
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.record.columns import COLUMNS, DEFAULTS, KINDS, REQUIRED
from kernelmark.bench.record.foreign.source import ForeignRow, ForeignRun, unsound
from kernelmark.bench.record.schema import OWN
from kernelmark.bench.record.table import CHUNK, Builder, Floats, Table

KIND = "kernelmark CSV"
_NUMBER = re.compile(DECIMAL)
_INTEGER, _COUNT = re.compile("-?[0-9]{1,19}"), re.compile("[0-9]{1,19}")
#: Texts of only these characters can be parsed as JSON, five times as fast as with `_COUNT` and `_NUMBER`.
_DIGITS, _PLAIN = re.compile("[0-9]*"), re.compile("[0-9.eE-]*")
_WHOLE = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(le=2**63 - 1)] | None])
_NUMBERS = msgspec.json.Decoder(list[float | None])
_EMPTY = {None: "null", 0: "0", 1: "1"}


#: A record of the CSV file: the number of its last line, and its fields.
CsvRecord = tuple[int, list[str]]


class Rows(Sequence[ForeignRow]):
    """The rows of a file. Each row object is created when it is read."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table.rows)

    def __getitem__(self, at: Any) -> Any:
        return ForeignRow(self._table.rows[at], self._table.dims.values[self._table.dims.codes[at]])

    def cases(self) -> Iterator[str]:
        """Yield the case of each row."""
        return map(case_key, *(self._table.columns[name] for name in ("kernel", "problem", "mode", "threads", "isa")))

    def stored(self, run_id: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of `INSERT` for each row. Creating the row objects first would take twice as long."""
        columns = (self._table.columns[name] for name in OWN)
        # SQLite stores NaN as NULL.
        arrays = (column.numbers if isinstance(column, Floats) else column for column in columns)
        texts = list(map(json.dumps, self._table.dims.values))
        dims = map(texts.__getitem__, self._table.dims.codes)
        return zip(repeat(run_id), self.cases(), *arrays, dims, repeat(b""), repeat(b""), repeat(0), strict=False)


def recognise(header: str) -> bool:
    """Return whether a file's first line is a header of kernelmark's CSV, complete or not."""
    return len({"run_id", "kernel", "problem", "status", "time_s_median"} & set(header.split(","))) >= 3


def read(lines: IO[str], file: str) -> list[ForeignRun]:
    """Return one run with a row for each line; the rows' device names become the run's machine. Raises UsageError."""
    reader, builder = csv.reader(lines, strict=True), Builder()
    records = ((reader.line_num, fields) for fields in reader if fields)
    try:
        parse = _parser(next(records)[1], file)
        while chunk := list(islice(records, CHUNK)):
            builder.add(parse(chunk))
    except csv.Error as error:
        expected = "expected a file that `kernelmark export` wrote"
        raise UsageError(f"{file}: cannot be read as CSV: {error}; {expected}") from None
    table = builder.table()
    names = {"cpu": "cpu", "gpu": "cuda"}
    seen = set(zip(table.columns["device"], table.columns["device_name"], strict=True))
    machine = {fact: ", ".join(sorted(name for device, name in seen if device == kind)) for fact, kind in names.items()}
    commits = set(table.columns["git_commit"])
    commit = commits.pop() if len(commits) == 1 else ""
    return [ForeignRun(KIND, {fact: name for fact, name in machine.items() if name}, {}, commit, Rows(table))]


def _parser(header: list[str], file: str) -> Callable[[list[CsvRecord]], list[Sequence[Any]]]:
    if missing := [name for name in REQUIRED if name not in header]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UsageError(f"{file}: has no column {', '.join(missing[:3])}{more}; every row of kernelmark has it")
    for name in header:
        if not name or "," in name or header.count(name) > 1:
            raise UsageError(f"{file}: column {name!r}: expected a unique name without commas; rename it")
    others, width = tuple(name for name in header if name not in COLUMNS), len(header)

    def parse(chunk: list[CsvRecord]) -> list[Sequence[Any]]:
        for line, fields in chunk:
            if len(fields) != width:
                raise UsageError(f"{file}, line {line}: {len(fields)} values, expected {width}, as in the first line")
        texts = dict(zip(header, zip(*(fields for _, fields in chunk), strict=True), strict=True))
        where = [f"{file}, line {line}" for line, _ in chunk]
        columns = {name: _values(name, texts.get(name), where) for name in COLUMNS}
        if complaint := unsound(columns):
            at, name, expected = complaint
            raise UsageError(f"{where[at]}: {name} is {columns[name][at]!r}, expected {expected}")
        dims = zip(*(texts[name] for name in others), strict=True) if others else ((),) * len(chunk)
        return [*columns.values(), [_dims(others, cells) for cells in dims]]

    return parse


def _values(name: str, texts: tuple[str, ...] | None, where: list[str]) -> Sequence[Any]:
    """Return the values of a column, or its default if the file does not have it. Raises UsageError."""
    kind, default = KINDS[name], DEFAULTS[name]
    if texts is None or name == "run_id":
        return ["" if kind is str else default] * len(where)
    if kind is str:
        return [one_line(text) for text in texts] if name == "reason" else texts
    if name in REQUIRED and "" in texts:
        raise UsageError(f"{where[texts.index('')]}: {name} is empty; every row of kernelmark has it")
    whole = kind is int
    if (_DIGITS if whole else _PLAIN).fullmatch("".join(texts)):
        known = [text or _EMPTY[default] for text in texts] if "" in texts else texts
        with suppress(msgspec.DecodeError):  # the last line of this function finds the wrong value
            return (_WHOLE if whole else _NUMBERS).decode(f"[{','.join(known)}]")
    return [_number(text, name, place) if text else default for text, place in zip(texts, where, strict=True)]


def _number(text: str, column: str, where: str) -> int | float:
    whole = KINDS[column] is int
    valid = (_COUNT if whole else _NUMBER).fullmatch(text) and abs(float(text)) < (2**63 if whole else math.inf)
    if not valid:
        expected = "an integer from 0, or an empty cell" if whole else "a finite number, or an empty cell"
        raise UsageError(f"{where}: {column} is {text!r}, expected {expected}")
    return int(text) if whole else float(text)


@lru_cache(maxsize=4096)
def _dims(names: tuple[str, ...], texts: tuple[str, ...]) -> str:
    """Return a row's dimensions as the JSON that the store holds. Cached: consecutive rows often share the problem."""
    return json.dumps({name: _dimension(text) for name, text in zip(names, texts, strict=True) if text})


def _dimension(text: str) -> int | float | str:
    """Return a number if it converts back to the same text, otherwise the text."""
    if _INTEGER.fullmatch(text) and str(int(text)) == text and abs(int(text)) < 2**63:
        return int(text)
    if _NUMBER.fullmatch(text) and repr(float(text)) == text:
        return float(text)
    return text
