r"""Write tables for papers: LaTeX with booktabs, captions and labels, for columns of 85 mm in \scriptsize.

An operation with several problems becomes a pivot, problems x kernels; an operation with one problem becomes a list of
kernels. A long table is a `longtable`, which two-column pages do not allow; others are floats.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from kernelmark.bench.plan.files import replacing
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import count, digits, rounded, short, unit
from kernelmark.bench.report.method import software
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.pivot import ALL, METRICS, Cell, Options, Pivot, PivotLine, chunks, pivots
from kernelmark.bench.report.variants import ratio_of, variant_pairs

#: The mark before the time of a noisy row (`~` in other formats), and its explanation in captions.
MARKED = r"$\sim$"
NOISE = r"$\sim$: the machine was disturbed during a tenth of the sampling or more."
_SIZE = r"\scriptsize\setlength{\tabcolsep}{3pt}"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After a line break, LaTeX would read these characters as options of the break.
    "[": "{[}",
    "*": "{*}",
} | {char: f"\\{char}" for char in "#$%&_{}"}


def table(layout: str, head: str, body: Sequence[str], caption: str, key: str, most_lines: int) -> str:
    """Return a table as a float, or as a `longtable` if its body has more than `most_lines` lines."""
    words = f"\\caption{{{caption}}}\\label{{tab:{key}}}"
    form = f"{{@{{}}{layout}@{{}}}}"
    if len(body) <= most_lines:
        top = [r"\begin{table}", r"\centering", words, _SIZE, rf"\begin{{tabular}}{form}", r"\toprule", head]
        top += [r"\midrule"]
        end = [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    else:
        top = [rf"{{{_SIZE}\setlength{{\LTcapwidth}}{{\linewidth}}", rf"\begin{{longtable}}{form}", words + r"\\"]
        top += [r"\toprule", head, r"\midrule\endfirsthead", r"\toprule", head, r"\midrule\endhead"]
        top += [r"\bottomrule\endfoot"]
        end = [r"\end{longtable}}"]
    return "\n".join([*top, *body, *end]) + "\n"


def unused(name: str, used: dict[str, int]) -> str:
    """Return a label that no table has yet, and add it to `used`. used: the last number appended to each label."""
    candidate = base = label(name)
    while candidate in used:
        used[base] += 1
        candidate = f"{base}-{used[base]}"
    used[candidate] = 1
    return candidate


def label(text: str) -> str:
    """Convert a text to a label or a part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "table"


def escape(text: str) -> str:
    r"""Return text escaped for LaTeX; a character without a glyph in pdflatex is written as `\u4e2d`."""
    return "".join(_SPECIAL.get(char, char) for char in comment(text))


def comment(text: str) -> str:
    """Return a text as printable ASCII on one line."""
    plain = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return plain.encode("ascii", "backslashreplace").decode()


#: The most lines of a page with a caption.
PAGE_LINES = 45


class LatexColumn(NamedTuple):
    """A column: its header (or unit), alignment, and a function from a row to a number, or to a number and a text."""

    header: str
    align: str
    cells: Callable[[Result], Sequence[str]]

    @property
    def layout(self) -> str:
        return "@{ }".join(self.align)

    @property
    def head(self) -> str:
        return _unit(self.header) if len(self.align) == 1 else f"\\multicolumn{{2}}{{c}}{{{self.header}}}"


def listed(suite: str, op: str, groups: Sequence[list[Result]], source: str, used: dict[str, int]) -> Iterator[str]:
    """Yield tables that list the rows of each problem, with as many problems as fit on a page."""
    part: list[list[Result]] = []
    for rows in groups:
        if part and sum(len(other) + 1 for other in (*part, rows)) > PAGE_LINES:
            yield _table(suite, op, part, source, used)
            part = []
        part.append(rows)
    yield _table(suite, op, part, source, used)


def _table(suite: str, op: str, groups: list[list[Result]], source: str, used: dict[str, int]) -> str:
    rows = [r for group in groups for r in group]
    verdict = LatexColumn("verdict", "l", lambda r: (_verdict(r),))
    columns = [column for column in _COLUMNS if any(any(column.cells(r)) for r in rows)] or [verdict]
    facts = list(map(_facts, groups))
    shared = facts[0] if len(set(facts)) == 1 else ""
    body = [
        line
        for group, fact in zip(groups, facts, strict=True)
        for line in _group(group, "" if shared else fact, columns)
    ]
    head = " & ".join(["kernel", *(column.head for column in columns)]) + r" \\"
    caption = " ".join(filter(None, (*_words(suite, op, rows, shared), source)))
    layout = f"l{''.join(column.layout for column in columns)}"
    return table(layout, head, body[1:], caption, unused(f"{suite}-{op}", used), PAGE_LINES + 2 * len(groups))


def _words(suite: str, op: str, rows: Sequence[Result], facts: str) -> Iterator[str]:
    baselines = ", ".join(dict.fromkeys(short(r.baseline) for r in rows if r.baseline))
    yield f"{escape(op)}, suite {escape(suite)}" + (f"; {escape(facts)}." if facts else ".")
    if any(_known_time(r) for r in rows):
        against = f"; speedup over {escape(baselines)}" if any(r.speedup for r in rows) else ""
        yield f"Median time with its 95\\,\\% interval{against}."
    if variants := list(dict.fromkeys(" over ".join(pair.names) for pair in variant_pairs(rows))):
        yield f"Variant: speed of {escape(', '.join(variants))}, measured in turn."
    if any(map(is_noisy, rows)):
        yield NOISE


def _group(rows: list[Result], fact: str, columns: list[LatexColumn]) -> Iterator[str]:
    width = sum(len(column.align) for column in columns)
    title = f"\\texttt{{{escape(rows[0].problem)}}}" + (f", {escape(fact)}" if fact else "")
    several = len({r.threads for r in rows}) > 1
    yield r"\midrule"
    yield f"\\multicolumn{{{1 + width}}}{{@{{}}l@{{}}}}{{{title}}} \\\\"
    for r in sorted(rows, key=lambda r: _known_time(r) or math.inf):
        name = escape(short(r.kernel)) + (f" ({r.threads} thr.)" if several else "")
        cells = [f"\\multicolumn{{{width}}}{{l@{{}}}}{{{_verdict(r)}}}"]
        if _known_time(r) is not None:
            cells = [_numbers(cell) for column in columns for cell in column.cells(r)]
        yield " & ".join([name, *cells]) + r" \\"


def _verdict(r: Result) -> str:
    return "right" if r.status == Status.OK else escape(r.status)


def _facts(rows: list[Result]) -> str:
    threads = max(r.threads for r in rows)
    facts = (rows[0].device_name, rows[0].mode, count(threads, "thread"), rows[0].isa)
    return ", ".join(filter(None, facts))


def _known_time(r: Result) -> float | None:
    """Return the median, or the mean of an imported result that has no median."""
    return r.time_s_median or r.time_s_mean


def _time_cells(r: Result) -> tuple[str, str]:
    time_s = _known_time(r)
    if time_s is None:
        return "", ""
    name, factor = unit(time_s)
    ends = (None, None) if r.time_s_median is None else (r.time_s_ci95_low, r.time_s_ci95_high)
    text, after = rounded(time_s / factor, *(end and end / factor for end in ends))
    mark = MARKED if is_noisy(r) else ""
    return f"{mark}{text}\\,{_unit(name)}", "(mean)" if r.time_s_median is None else after


def _speedup_cells(r: Result) -> tuple[str, str]:
    if r.speedup is None:
        return "", "baseline" if r.kernel == r.baseline and _known_time(r) else ""
    return rounded(r.speedup, r.speedup_ci95_low, r.speedup_ci95_high)


_COLUMNS = (
    LatexColumn(r"time [95\,\%]", "rl", _time_cells),
    LatexColumn("GFLOP/s", "r", lambda r: (digits(r.gflop_per_s),)),
    LatexColumn("GB/s", "r", lambda r: (digits(None if r.gflop_per_s else r.gbyte_per_s),)),
    LatexColumn(r"speedup [95\,\%]", "rl", _speedup_cells),
    LatexColumn(r"variant [95\,\%]", "rl", lambda r: rounded(*ratio[:3]) if (ratio := ratio_of(r)) else ("", "")),
)


PREAMBLE = r"\usepackage{booktabs,graphicx,longtable}"
#: The most lines of a LaTeX float; a longer table is broken across pages.
FLOAT_LINES = 40
#: Widths in millimetres: a letter and a wide letter in \scriptsize; a letter and a point in \tiny; a gap; a header.
LETTER_MM, WIDE_MM, TINY_MM, POINT_MM, GAP_MM, HEAD_MM = 1.45, 2.25, 1.22, 0.8, 2.12, 3.2


def write_latex(store: Store, run_ids: Sequence[str], out: IO[str], options: Options = ALL) -> None:
    """Write all tables of these runs; comments above a run's tables name its machine and cite it."""
    used: dict[str, int] = {}
    with store.snapshot():
        for run_id in run_ids:
            out.write(_head(store, run_id, options))
            gap = ""
            for _, text in _tables(store, run_id, options, used):
                out.write(gap + text)
                gap = "\n"
            out.write("" if gap else "% no rows\n")


def write_latex_files(store: Store, run_ids: Sequence[str], path: Path, options: Options = ALL) -> None:
    """Write all tables of runs to `NAME.tex`, and each operation's to `NAME-OPERATION.tex`. Raises UsageError."""
    with store.snapshot(), ExitStack() as stack:
        head = "".join(_head(store, run_id, options) for run_id in run_ids)
        files: dict[str, IO[str]] = {}
        used: dict[str, int] = {}

        def file(target: Path) -> IO[str]:
            beside = stack.enter_context(replacing(target))
            opened = stack.enter_context(beside.open("w", newline="", encoding="utf-8"))
            opened.write(head)
            return opened

        whole = file(path)
        for op, text in chain.from_iterable(_tables(store, run_id, options, used) for run_id in run_ids):
            if op not in files:
                files[op] = file(path.with_name(f"{path.stem}-{label(op)}{path.suffix}"))
            for out in (whole, files[op]):
                out.write(text + "\n")
        whole.write("" if files else "% no rows\n")


def _head(store: Store, run_id: str, options: Options) -> str:
    """Return LaTeX comments: the run, the packages that its tables need, the machine, and BibTeX to cite the run."""
    run = store.run(run_id)
    machine = ", ".join(str(run.machine[name]) for name in ("cpu", "gpu") if name in run.machine)
    cite = (
        f"@misc{{kernelmark-{run.run_id}, author = {{The kernelmark authors}}, title = {{{escape(software(run))}}}, "
        f"year = {{{escape(run.started_at[:4])}}}, note = {{Run {escape(run.run_id)}}}}}"
    )
    needs = PREAMBLE + r"\usepackage{siunitx}" * options.siunitx
    lines = (f"kernelmark run {comment(run.run_id)}; needs {needs}", comment(machine), f"to cite: {cite}")
    return "".join(f"% {line}\n" for line in lines if line)


def _tables(store: Store, run_id: str, options: Options, used: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the operation and the LaTeX of each table."""
    run = store.run(run_id)
    source = escape(f"{software(run)}, run {run.run_id}.")
    for suite, op, groups in chunks(store.groups(run_id)):
        pivot_tables = pivots(suite, op, groups, store, options)
        panels = (_panels(pivot, source, used, options) for pivot in pivot_tables if pivot.lines)
        texts = chain.from_iterable(panels) if pivot_tables else None
        for text in texts if texts is not None else listed(suite, op, groups, source, used):
            yield op, text if options.siunitx else _plain(text)


def _panels(pivot: Pivot, source: str, used: dict[str, int], options: Options) -> Iterator[str]:
    """Yield a pivot as tables, each with as many kernels as fit the width; later captions refer to the first."""
    name, parts, first = f"{pivot.suite}-{pivot.op}", _parted(pivot, options.width), ""
    certain = "certainly not 1" if pivot.words == METRICS["ratio"] else "certainly the best of the line"
    words = f"{pivot.words}. Bold: {certain}. Below: the 95\\,\\% interval."
    beside = "".join(f" & {name}" for name in pivot.sizes)
    title = f"{escape(pivot.title)}, suite {escape(pivot.suite)}"
    scope = f"in {pivot.processes} processes each" if pivot.processes > 1 else "in one process"
    setting = f"{escape(pivot.setting.title)}, {scope}."
    for part in parts:
        lines = [line._replace(cells=[line.cells[i] for i in part]) for line in pivot.lines]
        shown = [line for line in lines if any(line.cells)]
        which = f", kernels {part[0] + 1} to {part[-1] + 1} of {len(pivot.kernels)}" * (len(parts) > 1)
        about = [rf"As in Table~\ref{{tab:{first}}}."] if first else [words, *_notes(shown), setting, source]
        key = unused(name, used)
        first = first or key
        heads = " & ".join(rf"\rotatebox{{90}}{{{escape(short(pivot.kernels[i]))}}}" for i in part)
        body = [text for line in shown for text in _lines(line)]
        caption = " ".join([f"{title}{which}.", *about, *(_notes(shown) if key != first else ())])
        layout = "l" + "r" * len(pivot.sizes) + "l" + "r" * len(part)
        yield table(layout, rf"problem{beside} & & {heads} \\", body, caption, key, FLOAT_LINES)


def _notes(lines: Sequence[PivotLine]) -> Iterator[str]:
    cells = [cell for line in lines for cell in line.cells if cell]
    if any(cell.noisy for cell in cells):
        yield NOISE
    if any(cell.text == "--" for cell in cells):
        yield "--: unsupported."


#: Units as siunitx commands, which `_plain` replaces in tables without siunitx.
_UNITS = {
    "s": r"\unit{\second}",
    "ms": r"\unit{\milli\second}",
    "us": r"\unit{\micro\second}",
    "ns": r"\unit{\nano\second}",
    "%": r"\unit{\percent}",
    "GFLOP/s": r"\unit{GFLOP\per\second}",
    "TFLOP/s": r"\unit{TFLOP\per\second}",
    "GB/s": r"\unit{GB\per\second}",
}


def _plain(text: str) -> str:
    """Return a table without the commands of siunitx."""
    for name, command in _UNITS.items():
        text = text.replace(command, r"$\mu$s" if name == "us" else escape(name))
    return re.sub(r"\\num(?:\[[^]]*\])?\{([^}]*)\}", r"\1", text)


def _unit(name: str) -> str:
    return _UNITS.get(name) or escape(name)


def _numbers(text: str) -> str:
    return re.sub(r"[0-9.]+", r"\\num{\g<0>}", text)


def _lines(line: PivotLine) -> Iterator[str]:
    below = any(cell and cell.interval for cell in line.cells)
    cells = [escape(line.label), *map(escape, line.sizes), _unit(line.unit), *map(_number, line.cells)]
    yield " & ".join(cells) + (r" \\*" if below else r" \\")
    if below:
        ends = (rf"{{\tiny {_numbers(cell.interval)}}}" if cell and cell.interval else "" for cell in line.cells)
        yield " & ".join([*[""] * (2 + len(line.sizes)), *ends]).strip() + r" \\[1.5pt]"


def _number(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = escape(cell.text) if cell.text[:1].isdigit() or cell.text == "--" else rf"{{\tiny {escape(cell.text)}}}"
    if cell.number:
        bold = "[text-series-to-math]" * cell.best  # by default siunitx ignores the weight of \textbf
        text = rf"\num{bold}{{{cell.text}}}"
    return MARKED * cell.noisy + (rf"\textbf{{{text}}}" if cell.best else text)


def _parted(pivot: Pivot, width_mm: float) -> list[range]:
    """Return ranges of kernels; the columns of each range fit the width, next to the problems' names and sizes."""
    units = max(len(line.unit) for line in pivot.lines)
    names = max(_wide(line.label) for line in pivot.lines)
    columns = zip(pivot.sizes, *(line.sizes for line in pivot.lines), strict=True)
    sizes = sum(GAP_MM + max(map(_wide, column)) for column in columns)
    room = width_mm - names - sizes - units * WIDE_MM - GAP_MM
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
    width_mm = _wide(cell.text) if digit else TINY_MM * len(cell.text)
    return max(below, width_mm * (1.16 if cell.best else 1.0) + 2 * cell.noisy)


def _wide(text: str) -> float:
    return sum(WIDE_MM if char in "mwMW" or char.isupper() else LETTER_MM for char in text)
