"""The command `export`; bench/report/export.py has the exporters."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kernelmark.bench.cli import shared
from kernelmark.bench.cli.output import print_or_write, selected
from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.report.export import WRITERS, check_writable, write_file
from kernelmark.bench.report.parquet import write_parquet_file
from kernelmark.bench.report.pivot import COLUMN_MM, METRICS, Options
from kernelmark.bench.report.runs import summary_of
from kernelmark.bench.tune.tuned import AUTO, adopted, file_of, header

_TABLES = ("markdown", "latex")
#: The least width of a page, in millimetres; a narrower one has no room for a table.
LEAST_MM = 40


def _millimetres(text: str) -> float:
    if re.fullmatch("[0-9]{2,3}", text) and int(text) >= LEAST_MM:
        return float(text)
    raise ValueError(f"is {text!r}, expected whole millimetres from {LEAST_MM} to 999")


@click.command()
@click.argument("run_id", nargs=-1, metavar="[RUN]...", shell_complete=shared.complete_runs)
@shared.value_option(
    "--format",
    "style",
    default="csv",
    kind=shared.Choice(["csv", "json", "markdown", "latex", "parquet", "c", "github", "bencher", "asv"]),
    text="c: a header with the tiles that tuning has adopted. github: for github-action-benchmark.",
)
@click.option(
    "--columns",
    type=shared.Read(lambda text: tuple(filter(None, map(str.strip, text.split(","))))),
    default="",
    metavar="A,B,..",
    help="Write only these columns of CSV or JSON.",
)
@click.option("--no-empty", is_flag=True, help="Leave out columns of CSV that are empty in all rows.")
@shared.value_option(
    "--metric",
    kind=shared.Choice(list(METRICS)),
    default="time",
    text="The metric in tables of problems x kernels, in Markdown and LaTeX.",
)
@click.option("--sizes", is_flag=True, help="Add a column for each size of a problem (M, N, K), in Markdown and LaTeX.")
@click.option("--siunitx", is_flag=True, help="In LaTeX, write numbers with the commands of siunitx 3.")
@shared.value_option(
    "--width",
    kind=shared.Read(_millimetres),
    metavar="MM",
    default=f"{COLUMN_MM:g}",
    text="Width of the page; wider LaTeX tables are split.",
)
@shared.file_option("-o", "--output", text="[default: standard output]")
@click.option(
    "--spreadsheet",
    is_flag=True,
    help="Write CSV that is safe to open in a spreadsheet: put a ' before each cell that begins like a formula.",
)
@click.option(
    "--tuned",
    "where",
    metavar="FILE",
    help="With --format c: the tuning file to read; RUN selects the tiles of one race. [default: this machine's file]",
)
@click.option("--identify", is_flag=True, help="Write the names of hosts and devices instead of hashes of them.")
@shared.select_options
@shared.db_option
def export(
    run_id: tuple[str, ...],
    style: str,
    columns: tuple[str, ...],
    no_empty: bool,
    metric: str,
    sizes: bool,
    siunitx: bool,
    width: float,
    output: Path | None,
    spreadsheet: bool,
    where: str | None,
    identify: bool,
    selection: Selection,
    db: Path | None,
) -> None:
    """Write the rows of a run for other programs and papers.

    Without RUN, writes the rows of the latest run. Several runs, of any machines and commits, go into one file.
    """
    restricted = {
        "--columns": (bool(columns), ("csv", "json")),
        "--no-empty": (no_empty, ("csv",)),
        "--metric": (metric != "time", _TABLES),
        "--sizes": (sizes, _TABLES),
        "--siunitx": (siunitx, ("latex",)),
        "--width": (width != COLUMN_MM, ("latex",)),
        "--spreadsheet": (spreadsheet, ("csv",)),
        "--tuned": (where is not None, ("c",)),
    }
    _require_applicable(style, restricted)
    if style == "c":
        print_or_write(_tuned_header(run_id, where, selection, db), output)
        return
    style = "spreadsheet" if spreadsheet else style
    store, first = selected(db, next(iter(run_id), None), selection)
    runs = list(dict.fromkeys([first, *(store.find_run(text)["run_id"] for text in run_id[1:])]))
    store.identifies = identify
    options = Options(columns, no_empty, metric, sizes, width, siunitx)
    partial = "\n".join(filter(None, (summary_of(store, run).partial(store.path) for run in runs)))
    if style == "parquet":
        if output is None:
            raise UsageError("--format parquet: is binary; name a file with -o FILE")
        write_parquet_file(store, runs, output)
    elif output is None:
        WRITERS[style](store, runs, sys.stdout, options)
        sys.stdout.flush()  # a full disk makes this fail
    else:
        check_writable(output)
        write_file(store, runs, style, output, options)
    if partial:  # last, because an error above must be the only line printed
        click.echo(partial, err=True)


def _require_applicable(style: str, restricted: Mapping[str, tuple[bool, Sequence[str]]]) -> None:
    """Raise UsageError for an option that the format lacks. restricted: options, whether given, and their formats."""
    for name, (given, styles) in restricted.items():
        if given and style not in styles:
            applies = f"applies to --format {' and '.join(styles)}, not to {style}"
            raise UsageError(f"{name}: {applies}; leave one of the two out")


def _tuned_header(run_id: tuple[str, ...], where: str | None, selection: Selection, db: Path | None) -> str:
    """Return the C header of the adopted tiles. Raises UsageError."""
    if len(run_id) > 1:
        raise UsageError("--format c: takes one run, the race of a tuning; name only one RUN")
    named = where not in (None, AUTO)
    files = [file_of(where or AUTO, device) for device in (("cpu",) if named else devices_present())]
    race = selected(db, run_id[0], Selection())[1] if run_id else None
    return header(adopted(files, named, selection, race))
