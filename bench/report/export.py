"""Export rows as CSV, JSON, Markdown or LaTeX; trackers.py and parquet.py have the other formats."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from msgspec.structs import asdict

from kernelmark.bench.plan.errors import UsageError, meant
from kernelmark.bench.plan.files import replacing, require_file
from kernelmark.bench.plan.numbers import DECIMAL
from kernelmark.bench.plan.text import as_json
from kernelmark.bench.record.columns import COLUMNS
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.table import Table, cells
from kernelmark.bench.report.anonymity import NAMES, facts, hidden, nameless, records
from kernelmark.bench.report.latex import write_latex, write_latex_files
from kernelmark.bench.report.pivot import ALL, MOST_PROBLEMS, Options, all_pivots, markdown
from kernelmark.bench.report.tables import ceiling_table, group_table, scope_note
from kernelmark.bench.report.trackers import write_asv, write_bencher, write_github

Writer = Callable[[Store, Sequence[str], IO[str], Options], None]
#: Beginnings of texts that spreadsheets read as formulas, unless the text is a number.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(DECIMAL)


def write_csv(
    store: Store, run_ids: Sequence[str], out: IO[str], options: Options = ALL, *, inert: bool = False
) -> None:
    """Write rows as CSV: their columns, then every dimension in the runs; cells of unknown values are empty.

    inert: put the prefix `'` before text that a spreadsheet would read as a formula.
    """
    with store.snapshot():
        for columns in _columns(store, run_ids, options):
            out.write(_lines([*map(_inert, values)] for values in columns) if inert else _lines(columns))


def _columns(store: Store, run_ids: Sequence[str], options: Options) -> Iterator[list[Sequence[Any]]]:
    """Yield the names of the columns, then the rows in chunks; each chunk is a list of columns."""
    names = _wanted(store, run_ids, options)
    yield [[name] for name in names]
    for columns, dims in (chunk for run_id in run_ids for chunk in store.columns(run_id)):
        by_name = dict(zip(COLUMNS, columns, strict=True))
        if not store.identifies:
            by_name |= {name: [hidden(name, value) for value in by_name[name]] for name in NAMES}
        yield [by_name[name] if name in by_name else [known.get(name) for known in dims] for name in names]


def _wanted(store: Store, run_ids: Sequence[str], options: Options) -> Sequence[str]:
    """Return the names of the columns to write. Raises UsageError for a column that no row has."""
    dims = dict.fromkeys(name for run_id in run_ids for name in store.dimensions(run_id) if name not in COLUMNS)
    names = [*COLUMNS, *dims]
    for name in options.columns:
        if name not in names:
            message = f"--columns {name}: these rows have no such column{meant(name, names)}"
            raise UsageError(f"{message}; docs/columns.md lists all")
    if not options.filled:
        return options.columns or names
    full = set(dims).union(*(_filled(store, run_id) for run_id in run_ids))
    return [name for name in options.columns or names if name in full]


def _filled(store: Store, run_id: str) -> set[str]:
    """Return the columns with a value in any row; only columns that are empty in the first chunk are read in full."""
    first, _ = next(store.columns(run_id), ([], []))
    full = {name for name, values in zip(COLUMNS, first, strict=False) if any(map(_is_known, values))}
    left = tuple(name for name in COLUMNS if name not in full)
    return full | {name for name, column in store.table(run_id, left).columns.items() if any(map(_is_known, column))}


def _is_known(value: Any) -> bool:
    return value not in (None, "")


def _lines(columns: Iterable[Sequence[Any]]) -> str:
    return "\n".join(map(",".join, zip(*map(cells, columns), strict=True))) + "\n"


def _inert(cell: Any) -> Any:
    formula = isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def write_table(table: Table, out: IO[str]) -> None:
    """Write the CSV of a run whose rows have been read already."""
    others = list(dict.fromkeys(name for dims in table.dims.values for name in dims if name not in COLUMNS))
    known = (cells([dims.get(name) for dims in table.dims.values]) for name in others)
    dim_columns = [map(texts.__getitem__, table.dims.codes) for texts in known]
    out.write(_lines([name] for name in (*COLUMNS, *others)))
    columns = (
        map(partial(hidden, name), column.texts()) if name in NAMES else column.texts()
        for name, column in table.columns.items()
    )
    out.writelines(f"{line}\n" for line in map(",".join, zip(*columns, *dim_columns, strict=True)))


def write_json(store: Store, run_ids: Sequence[str], out: IO[str], options: Options = ALL) -> None:
    """Write one object: the run's facts, its rows with samples (seconds per call), its ceilings (flop/s, bytes/s).

    For several runs, write a list of such objects.
    """
    several = len(run_ids) > 1
    with store.snapshot():
        names = set(_wanted(store, run_ids, options)) if options.columns else None
        for number, run_id in enumerate(run_ids):
            out.write("[" * several if number == 0 else ",\n")
            _write_run(store, run_id, out, names)
        out.write("]\n" * several)


def _write_run(store: Store, run_id: str, out: IO[str], names: set[str] | None) -> None:
    out.write(f'{{"run": {as_json(facts(store, run_id))},\n"results": [')
    for i, (values, dims, samples) in enumerate(records(store, run_id, samples=names is None)):
        fields = {**dict(zip(COLUMNS, values, strict=True)), **dims, "samples_s": samples.tolist()}
        if names is not None:
            fields = {name: value for name, value in fields.items() if name in names}
        # as_json is several times as fast as json.dumps on the samples, which are most of the work.
        out.write(("" if i == 0 else ",") + "\n" + as_json(fields))
    ceilings = [{**nameless(store, asdict(ceiling)), "doubt": doubt} for ceiling, doubt in store.ceilings(run_id)]
    out.write(f'\n],\n"ceilings": {as_json(ceilings)}}}\n')


def write_markdown(store: Store, run_ids: Sequence[str], out: IO[str], options: Options = ALL) -> None:
    """Write a pivot (problems x kernels) for each operation, a table for each problem, and the ceilings.

    Pivots are left out if the run has more problems than a pivot may have. If there are several runs, each has its id
    as a heading.
    """
    with store.snapshot():
        for number, run_id in enumerate(run_ids):
            if len(run_ids) > 1:
                out.write("\n" * (number > 0) + f"## run {run_id}\n\n")
            for i, part in enumerate(filter(None, _paragraphs(store, run_id, options))):
                out.write("\n\n" * (i > 0) + part)
            out.write("\n")


def _paragraphs(store: Store, run_id: str, options: Options) -> Iterator[str]:
    if store.group_count(run_id) <= MOST_PROBLEMS:
        yield from (markdown(pivot) for pivot in all_pivots(store, run_id, options) if pivot.lines)
    note = ""
    for rows in store.groups(run_id):
        yield group_table(rows, "github")
        note = note or scope_note(rows)
    yield note
    yield ceiling_table(store.ceilings(run_id), "github")


WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "spreadsheet": partial(write_csv, inert=True),
    "json": write_json,
    "markdown": write_markdown,
    "latex": write_latex,
    "github": lambda store, run_ids, out, _: write_github(store, run_ids, out),
    "bencher": lambda store, run_ids, out, _: write_bencher(store, run_ids, out),
    "asv": lambda store, run_ids, out, _: write_asv(store, run_ids, out),
}


def check_writable(path: Path) -> None:
    """Raise UsageError if a file cannot be written, before anything is measured."""
    require_file(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()


def write_file(store: Store, run_ids: Sequence[str], style: str, path: Path, options: Options = ALL) -> None:
    """Write runs in a style of `WRITERS`; for LaTeX, also write a file for each operation. Raises UsageError."""
    if style == "latex":
        write_latex_files(store, run_ids, path, options)
        return
    write_text(path, lambda out: WRITERS[style](store, run_ids, out, options))


def write_text(path: Path, write: Callable[[IO[str]], object]) -> None:
    """Replace a file. write: a function that writes the new text to a stream. Raises UsageError."""
    with opened(path) as out:
        write(out)


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """Open a new file, which replaces `path` at the end of the context. Raises UsageError."""
    with replacing(path) as beside, beside.open("w", newline="", encoding="utf-8") as out:
        yield out


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """Raise a UsageError that names the path if a write in the context fails. remedy: the end of the message."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}{remedy}") from None
