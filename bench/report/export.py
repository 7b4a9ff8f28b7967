"""Rows as CSV, JSON, Markdown or LaTeX, written as they are read from the store."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import replacing, require_file
from kernelmark.bench.plan.numbers import DECIMAL
from kernelmark.bench.record.result import COLUMNS
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.table import Table, cells
from kernelmark.bench.report.anonymity import NAMES, facts, hidden, nameless, records
from kernelmark.bench.report.latex import write_latex, write_latex_files
from kernelmark.bench.report.pivot import MOST_PROBLEMS, all_pivots, markdown
from kernelmark.bench.report.tables import ceiling_table, group_table, scope_note

Writer = Callable[[Store, str, IO[str]], None]
#: What spreadsheets take for the beginning of a formula, unless it is a number.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(DECIMAL)


def write_csv(store: Store, run_id: str, out: IO[str]) -> None:
    """Write the contract's columns, then every dimension that occurs in the run; unknown is empty."""
    with store.snapshot():
        out.writelines(map(_lines, _columns(store, run_id)))


def write_spreadsheet(store: Store, run_id: str, out: IO[str]) -> None:
    """Write CSV of which a spreadsheet executes nothing: a text that it would take for a formula begins with `'`."""
    with store.snapshot():
        out.writelines(_lines([*map(_inert, values)] for values in columns) for columns in _columns(store, run_id))


def _columns(store: Store, run_id: str) -> Iterator[list[Sequence[Any]]]:
    """Yield the names, then the rows, some at a time, by column."""
    others = [name for name in store.dimensions(run_id) if name not in COLUMNS]
    yield [[name] for name in (*COLUMNS, *others)]
    for columns, dims in store.columns(run_id):
        own = columns if store.identifies else map(_hidden, COLUMNS, columns)
        yield [*own, *([known.get(name) for known in dims] for name in others)]


def _hidden(name: str, values: Sequence[Any]) -> Sequence[Any]:
    return [hidden(name, value) for value in values] if name in NAMES else values


def _lines(columns: Iterable[Sequence[Any]]) -> str:
    return "\n".join(map(",".join, zip(*map(cells, columns), strict=True))) + "\n"


def _inert(cell: Any) -> Any:
    formula = isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def write_table(table: Table, out: IO[str]) -> None:
    """Write the CSV of a run whose rows have been read already."""
    others = list(dict.fromkeys(name for dims in table.dims.values for name in dims if name not in COLUMNS))
    known = (cells([dims.get(name) for dims in table.dims.values]) for name in others)
    own = [map(texts.__getitem__, table.dims.codes) for texts in known]
    out.write(_lines([name] for name in (*COLUMNS, *others)))
    columns = (_nameless(name, found.texts()) for name, found in table.columns.items())
    out.writelines(f"{line}\n" for line in map(",".join, zip(*columns, *own, strict=True)))


def _nameless(name: str, texts: Iterable[str]) -> Iterable[str]:
    return map(partial(hidden, name), texts) if name in NAMES else texts


def write_json(store: Store, run_id: str, out: IO[str]) -> None:
    """Write one object: the run's facts, its rows with samples (seconds a call), its ceilings (flop/s, bytes/s)."""
    with store.snapshot():
        out.write(f'{{"run": {msgspec.json.encode(facts(store, run_id)).decode()},\n"results": [')
        for i, (values, dims, samples) in enumerate(records(store, run_id, samples=True)):
            found = {**dict(zip(COLUMNS, values, strict=True)), **dims, "samples_s": samples.tolist()}
            # Several times as fast as json.dumps, for which a run's samples are most of the work.
            out.write(("" if i == 0 else ",") + "\n" + msgspec.json.encode(found).decode())
        ceilings = [{**nameless(store, found), "doubt": doubt} for found, doubt in store.ceilings(run_id)]
        out.write(f'\n],\n"ceilings": {msgspec.json.encode(ceilings).decode()}}}\n')


def write_markdown(store: Store, run_id: str, out: IO[str]) -> None:
    """Write problems x kernels of each operation, then a table a problem and the ceilings as `show` prints them.

    A run of more problems than a pivot holds has the tables alone.
    """
    note, gap = "", ""
    with store.snapshot():
        short = store.group_count(run_id) <= MOST_PROBLEMS
        for pivot in all_pivots(store, run_id) if short else ():
            out.write(gap + markdown(pivot))
            gap = "\n\n"
        for rows in store.groups(run_id):
            out.write(gap + group_table(rows, "github"))
            note, gap = note or scope_note(rows), "\n\n"
        for paragraph in filter(None, (note, ceiling_table(store.ceilings(run_id), "github"))):
            out.write(gap + paragraph)
            gap = "\n\n"
    out.write("\n")


WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "spreadsheet": write_spreadsheet,
    "json": write_json,
    "markdown": write_markdown,
    "latex": write_latex,
}


def check_writable(path: Path) -> None:
    """Raise UsageError now, and not after an hour of measuring, where a file cannot be written."""
    require_file(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()


def write_file(store: Store, run_id: str, style: str, path: Path) -> None:
    """Write a run in one of the styles of `WRITERS`; LaTeX to a file an operation besides. Raises UsageError."""
    if style == "latex":
        write_latex_files(store, run_id, path)
        return
    write_text(path, lambda out: WRITERS[style](store, run_id, out))


def write_text(path: Path, write: Callable[[IO[str]], None]) -> None:
    """Write a file that `write` fills. Raises UsageError."""
    with replacing(path) as beside, beside.open("w", newline="", encoding="utf-8") as out:
        write(out)


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """Raise UsageError, which names the path, where the system refuses to write."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}{remedy}") from None
