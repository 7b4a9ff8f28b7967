r"""An operation with a single problem, or without a time, as LaTeX: its kernels below each other, fastest first."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.format import count, digits, rounded, short, unit
from kernelmark.bench.report.latex_text import MARKED, MICRO, NOISE, escape, table, unused
from kernelmark.bench.report.noise import is_noisy

#: Lines that leave room for a caption on a page.
PAGE_LINES = 45


class LatexColumn(NamedTuple):
    """A header, how its cells are aligned, and what they hold: a number, or a number and what stands right after it."""

    header: str
    align: str
    cells: Callable[[Result], Sequence[str]]

    @property
    def layout(self) -> str:
        return "@{ }".join(self.align)

    @property
    def head(self) -> str:
        return self.header if len(self.align) == 1 else f"\\multicolumn{{2}}{{c}}{{{self.header}}}"


def listed(suite: str, op: str, groups: Sequence[list[Result]], source: str, used: set[str]) -> Iterator[str]:
    """Yield tables of the rows of each problem, as many problems at a time as a page holds."""
    part: list[list[Result]] = []
    for rows in groups:
        if part and sum(len(other) + 1 for other in (*part, rows)) > PAGE_LINES:
            yield _table(suite, op, part, source, used)
            part = []
        part.append(rows)
    yield _table(suite, op, part, source, used)


def _table(suite: str, op: str, groups: list[list[Result]], source: str, used: set[str]) -> str:
    rows = [r for group in groups for r in group]
    columns = [column for column in _COLUMNS if any(any(column.cells(r)) for r in rows)] or [_VERDICT]
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
    if any(_time(r) for r in rows):
        against = f"; speedup over {escape(baselines)}" if any(r.speedup for r in rows) else ""
        yield f"Median time with its 95\\,\\% interval{against}."
    if any(map(is_noisy, rows)):
        yield NOISE


def _group(rows: list[Result], fact: str, columns: list[LatexColumn]) -> Iterator[str]:
    """Yield the problem, then its kernels: fastest first, then those without a time."""
    width = sum(len(column.align) for column in columns)
    title = f"\\texttt{{{escape(rows[0].problem)}}}" + (f", {escape(fact)}" if fact else "")
    several = len({r.threads for r in rows}) > 1
    yield r"\midrule"
    yield f"\\multicolumn{{{1 + width}}}{{@{{}}l@{{}}}}{{{title}}} \\\\"
    for r in sorted(rows, key=lambda r: _time(r) or math.inf):
        name = escape(short(r.kernel)) + (f" ({r.threads} thr.)" if several else "")
        yield " & ".join([name, *_cells(r, columns, width)]) + r" \\"


def _cells(r: Result, columns: list[LatexColumn], width: int) -> Iterator[str]:
    """Yield the cells after a kernel's name, or the status where there is no time."""
    if _time(r) is not None:
        yield from (cell for column in columns for cell in column.cells(r))
    else:
        yield f"\\multicolumn{{{width}}}{{l@{{}}}}{{{_verdict(r)}}}"


def _verdict(r: Result) -> str:
    return "right" if r.status == Status.OK else escape(r.status)


def _facts(rows: list[Result]) -> str:
    threads = max(r.threads for r in rows)
    facts = (rows[0].device_name, rows[0].mode, count(threads, "thread"), rows[0].isa)
    return ", ".join(filter(None, facts))


def _time(r: Result) -> float | None:
    """Return the median, or the mean, which may be all that is known of results from elsewhere."""
    return r.time_s_median or r.time_s_mean


def _time_cells(r: Result) -> tuple[str, str]:
    found = _time(r)
    if found is None:
        return "", ""
    name, factor = unit(found)
    ends = (None, None) if r.time_s_median is None else (r.time_s_ci95_low, r.time_s_ci95_high)
    text, after = rounded(found / factor, *(end and end / factor for end in ends))
    mark = MARKED if is_noisy(r) else ""
    return f"{mark}{text}\\,{name.replace('u', MICRO)}", "(mean)" if r.time_s_median is None else after


def _speedup_cells(r: Result) -> tuple[str, str]:
    if r.speedup is None:
        return "", "baseline" if r.kernel == r.baseline and _time(r) else ""
    return rounded(r.speedup, r.speedup_ci95_low, r.speedup_ci95_high)


_COLUMNS = (
    LatexColumn(r"time [95\,\%]", "rl", _time_cells),
    LatexColumn("GFLOP/s", "r", lambda r: (digits(r.gflop_per_s),)),
    LatexColumn("GB/s", "r", lambda r: (digits(None if r.gflop_per_s else r.gbyte_per_s),)),
    LatexColumn(r"speedup [95\,\%]", "rl", _speedup_cells),
)
#: The only column of a table without a single time.
_VERDICT = LatexColumn("verdict", "l", lambda r: (_verdict(r),))
