r"""Tables for papers: LaTeX with booktabs, with captions and labels, each fit for a column of 85 mm in \scriptsize.

An operation with several problems is a pivot, problems x kernels; one with a single problem is a list of its kernels.
A long table is a `longtable`, which has to stand outside of two columns; others are floats.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import short
from kernelmark.bench.report.latex_list import listed
from kernelmark.bench.report.latex_text import MARKED, MICRO, NOISE, comment, escape, label, provenance, table, unused
from kernelmark.bench.report.pivot import Cell, Pivot, PivotLine, chunks, pivots

PREAMBLE = r"\usepackage{booktabs,graphicx,longtable}"
COLUMN_MM = 85.0
#: Lines of a float; a longer table is broken across pages.
FLOAT_LINES = 40
#: Widths in millimetres: of a letter or digit in \scriptsize and in \tiny, of punctuation in \tiny, between columns.
LETTER_MM, WIDE_MM, TINY_MM, POINT_MM, GAP_MM, HEAD_MM = 1.45, 2.25, 1.22, 0.8, 2.12, 3.2
_WORDS = "Median times in the unit of the line, the fastest in bold; below them their 95\\,\\% intervals."


class LatexTable(NamedTuple):
    """A table of an operation as LaTeX."""

    op: str
    text: str


def write_latex(store: Store, run_id: str, out: IO[str]) -> None:
    """Write all tables of a run."""
    with store.snapshot():
        out.write(_head(store, run_id))
        gap = ""
        for found in _tables(store, run_id):
            out.write(gap + found.text)
            gap = "\n"
        out.write("" if gap else "% no rows\n")


def write_latex_files(store: Store, run_id: str, path: Path) -> None:
    """Write all tables of a run to `NAME.tex`, and those of each operation to `NAME-OPERATION.tex` beside it."""
    with store.snapshot(), ExitStack() as stack:
        head = _head(store, run_id)
        files: dict[str, IO[str]] = {}

        def file(target: Path) -> IO[str]:
            opened = stack.enter_context(target.open("w", newline="", encoding="utf-8"))
            opened.write(head)
            return opened

        whole = file(path)
        for found in _tables(store, run_id):
            if found.op not in files:
                files[found.op] = file(path.with_name(f"{path.stem}-{label(found.op)}{path.suffix}"))
            for out in (whole, files[found.op]):
                out.write(found.text + "\n")
        whole.write("" if files else "% no rows\n")


def _head(store: Store, run_id: str) -> str:
    run = store.run(run_id)
    machine = ", ".join(str(run.machine[name]) for name in ("cpu", "gpu") if name in run.machine)
    lines = [f"kernelmark run {comment(run.run_id)}; needs {PREAMBLE}", *([comment(machine)] if machine else [])]
    return "".join(f"% {line}\n" for line in lines)


def _tables(store: Store, run_id: str) -> Iterator[LatexTable]:
    source = provenance(store.run(run_id))
    used: set[str] = set()
    for suite, op, groups in chunks(store.groups(run_id)):
        found = pivots(suite, op, groups, store)
        texts = chain.from_iterable(_panels(pivot, source, used) for pivot in found) if found else None
        for text in texts if texts is not None else listed(suite, op, groups, source, used):
            yield LatexTable(op, text)


def _panels(pivot: Pivot, source: str, used: set[str]) -> Iterator[str]:
    """Yield a table for as many kernels at a time as a column has room for; those after the first refer to it."""
    name, parts, first = f"{pivot.suite}-{pivot.op}", _parted(pivot), ""
    title = f"{escape(pivot.title)}, suite {escape(pivot.suite)}"
    for part in parts:
        lines = [PivotLine(line.label, line.unit, [line.cells[i] for i in part]) for line in pivot.lines]
        shown = [line for line in lines if any(line.cells)]
        which = f", kernels {part[0] + 1} to {part[-1] + 1} of {len(pivot.kernels)}" * (len(parts) > 1)
        about = [rf"As in Table~\ref{{tab:{first}}}."] if first else [_WORDS, *_notes(shown), _setting(pivot), source]
        key = unused(name, used)
        first = first or key
        heads = " & ".join(rf"\rotatebox{{90}}{{{escape(short(pivot.kernels[i]))}}}" for i in part)
        body = [text for line in shown for text in _lines(line)]
        caption = " ".join([f"{title}{which}.", *about, *(_notes(shown) if key != first else ())])
        yield table("ll" + "r" * len(part), rf"problem & & {heads} \\", body, caption, key, FLOAT_LINES)


def _setting(pivot: Pivot) -> str:
    scope = f"in {pivot.processes} processes each" if pivot.processes > 1 else "in one process"
    return f"{escape(pivot.setting.title)}, {scope}."


def _notes(lines: Sequence[PivotLine]) -> Iterator[str]:
    """Yield what the marks in a table mean."""
    cells = [cell for line in lines for cell in line.cells if cell]
    if any(cell.noisy for cell in cells):
        yield NOISE
    if any(cell.text == "--" for cell in cells):
        yield "--: unsupported."


def _lines(line: PivotLine) -> Iterator[str]:
    """Yield the times of a problem, and their intervals below, on the same page."""
    unit = line.unit.replace("u", MICRO)
    below = any(cell and cell.interval for cell in line.cells)
    yield " & ".join([escape(line.label), unit, *map(_time, line.cells)]) + (r" \\*" if below else r" \\")
    if below:
        yield " & ".join(["", "", *map(_interval, line.cells)]).strip() + r" \\[1.5pt]"


def _time(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = escape(cell.text) if cell.text[:1].isdigit() or cell.text == "--" else rf"{{\tiny {escape(cell.text)}}}"
    return MARKED * cell.noisy + (rf"\textbf{{{text}}}" if cell.best else text)


def _interval(cell: Cell | None) -> str:
    return rf"{{\tiny {cell.interval}}}" if cell and cell.interval else ""


def _parted(pivot: Pivot) -> list[range]:
    """Return the kernels, as many at a time as fit in a column beside the names of the problems."""
    units = max(len(line.unit) for line in pivot.lines)
    names = max(_wide(line.label) for line in pivot.lines)
    room = COLUMN_MM - names - units * WIDE_MM - GAP_MM
    parts, begin, taken = [], 0, 0.0
    for i in range(len(pivot.kernels)):
        width = GAP_MM + max(HEAD_MM, *(_cell_mm(line.cells[i]) for line in pivot.lines))
        if i > begin and taken + width > room:
            parts.append(range(begin, i))
            begin, taken = i, 0.0
        taken += width
    return [*parts, range(begin, len(pivot.kernels))]


def _cell_mm(cell: Cell | None) -> float:
    if cell is None:
        return 0.0
    below = sum(TINY_MM if char.isalnum() else POINT_MM for char in cell.interval)
    digit = cell.text[:1].isdigit()
    own = _wide(cell.text) if digit else TINY_MM * len(cell.text)
    return max(below, own * (1.16 if cell.best else 1.0) + 2 * cell.noisy)


def _wide(text: str) -> float:
    return sum(WIDE_MM if char in "mwMW" or char.isupper() else LETTER_MM for char in text)
