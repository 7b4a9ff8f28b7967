"""Our own CSV: the contract's columns, then dimensions. What is read gives the same rows again."""

import csv
import io
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

from bench.plan.errors import UsageError
from bench.record.foreign.own import HINTS, REQUIRED, unsound
from bench.record.foreign.source import Row, Source
from bench.record.result import COLUMNS, Result

KIND = "kernelmark CSV"
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_INTEGER = re.compile(r"-?\d{1,19}")


def recognise(header: str) -> bool:
    """Return whether a file's first line is the header of our CSV, whole or not."""
    return len({"run_id", "kernel", "problem", "status", "time_s_median"} & set(header.split(","))) >= 3


def read(text: str, file: str) -> list[Source]:
    """Return one source with a row a line; the machine is taken from the rows' devices. Raises UsageError."""
    try:
        rows = [_row(fields, f"{file}, line {line}") for line, fields in _records(text, file)]
    except csv.Error as error:
        raise UsageError(f"{file}: cannot be read as CSV: {error}; expected what `kernelmark export` writes") from None
    names = {"cpu": "cpu", "gpu": "cuda"}
    machine = {fact: _devices(rows, device) for fact, device in names.items()}
    commits = {row.result.git_commit for row in rows}
    commit = commits.pop() if len(commits) == 1 else ""
    return [Source(KIND, {fact: name for fact, name in machine.items() if name}, {}, commit, rows)]


def _devices(rows: list[Row], device: str) -> str:
    return ", ".join(sorted({row.result.device_name for row in rows if row.result.device == device}))


def _records(text: str, file: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Each record by the names of the header, and the line it ends on."""
    # Not a StringIO, which takes four bytes a character.
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", newline=""), strict=True)
    header = next(reader)
    if missing := [name for name in REQUIRED if name not in header]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UsageError(f"{file}: has no column {', '.join(missing[:3])}{more}; every row of kernelmark has it")
    for name in header:
        if not name or "," in name or header.count(name) > 1:
            raise UsageError(f"{file}: column {name!r} is no name of its own; expected each column named once")
    for fields in filter(None, reader):
        if len(fields) != len(header):
            where = f"{file}, line {reader.line_num}"
            raise UsageError(f"{where}: {len(fields)} values, expected {len(header)}, as many as the first line names")
        yield reader.line_num, dict(zip(header, fields, strict=True))


def _row(fields: dict[str, str], where: str) -> Row:
    values: dict[str, Any] = {}
    for name in COLUMNS:
        text = fields.pop(name, "")
        if HINTS[name] is str:
            values[name] = sys.intern(text)  # the same few words in all rows
        elif text:
            values[name] = _number(text, name, where)
        elif name in REQUIRED:
            raise UsageError(f"{where}: {name} is empty; every row of kernelmark has it")
    if complaint := unsound(values):
        name, expected = complaint
        raise UsageError(f"{where}: {name} is {values.get(name)!r}, expected {expected}")
    return Row(Result(**{**values, "run_id": ""}), {name: _dimension(text) for name, text in fields.items() if text})


def _number(text: str, column: str, where: str) -> int | float:
    whole = HINTS[column] in (int, int | None)
    kept = (_INTEGER if whole else _NUMBER).fullmatch(text) and abs(float(text)) < (2**63 if whole else math.inf)
    if not kept:
        expected = f"{'a whole' if whole else 'a finite'} number or nothing"
        raise UsageError(f"{where}: {column} is {text!r}, expected {expected}")
    return int(text) if whole else float(text)


def _dimension(text: str) -> int | float | str:
    """Return a number where writing it again gives the same text, otherwise the text."""
    if _INTEGER.fullmatch(text) and str(int(text)) == text and abs(int(text)) < 2**63:
        return int(text)
    if _NUMBER.fullmatch(text) and repr(float(text)) == text:
        return float(text)
    return text
