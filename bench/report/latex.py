r"""Tables for papers: LaTeX with booktabs, a `tabular` for each operation of a suite, to be put into a `table`.

In \footnotesize a table fits the 178 mm of a page; in \scriptsize with \tabcolsep at 3pt, short names also fit a
column of 85 mm. A long suite is parted between problems, so that no part is longer than a page. What belongs in the
caption stands in comments above.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO, NamedTuple

from bench.plan.status import Status
from bench.record.result import Result
from bench.record.store import Store
from bench.report.format import count, decimals, digits, interval, short, unit

#: Lines that leave room for a caption on a page.
PAGE_LINES = 45
MICRO = r"$\mu$"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After the end of a line these two would be read as its options.
    "[": "{[}",
    "*": "{*}",
} | {char: f"\\{char}" for char in "#$%&_{}"}


class Column(NamedTuple):
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


def write_latex(store: Store, run_id: str, out: IO[str]) -> None:
    r"""Write a `tabular` for each operation of a suite; the preamble needs \usepackage{booktabs}."""
    with store.snapshot():
        run = store.run(run_id)
        out.write(f"% kernelmark run {comment(run.run_id)}; needs \\usepackage{{booktabs}}\n")
        machine = ", ".join(str(run.machine[name]) for name in ("cpu", "gpu") if name in run.machine)
        out.write(f"% {comment(machine)}\n" if machine else "")
        gap = ""
        for suite, groups in _parts(store.groups(run_id)):
            out.write(gap + _tabular(suite, groups))
            gap = "\n\\bigskip\n\n"
        out.write("" if gap else "% no rows\n")


def _parts(groups: Iterable[list[Result]]) -> Iterator[tuple[str, list[list[Result]]]]:
    """Yield the groups of rows of each suite and operation, as many at a time as a page holds."""
    for (suite, _), found in groupby(groups, key=lambda rows: (rows[0].suite, rows[0].op)):
        part: list[list[Result]] = []
        for rows in found:
            if part and sum(len(other) + 1 for other in (*part, rows)) > PAGE_LINES:
                yield suite, part
                part = []
            part.append(rows)
        yield suite, part


def _tabular(suite: str, groups: list[list[Result]]) -> str:
    rows = [r for group in groups for r in group]
    columns = [column for column in _COLUMNS if any(any(column.cells(r)) for r in rows)] or [_VERDICT]
    facts = list(map(_facts, groups))
    shared = facts[0] if len(set(facts)) == 1 else ""
    baselines = ", ".join(dict.fromkeys(r.baseline for r in rows if r.baseline))
    lines = [
        f"% suite {comment(suite)}" + (f"; {comment(shared)}" if shared else ""),
        "% time: median with its 95 % interval" + (f"; speedup against {comment(baselines)}" if baselines else ""),
        f"\\begin{{tabular}}{{@{{}}l{''.join(column.layout for column in columns)}@{{}}}}",
        r"\toprule",
        " & ".join(["kernel", *(column.head for column in columns)]) + r" \\",
    ]
    for group, fact in zip(groups, facts, strict=True):
        lines += _group_lines(group, "" if shared else fact, columns)
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _group_lines(rows: list[Result], fact: str, columns: list[Column]) -> Iterator[str]:
    """Yield the problem, then its kernels: fastest first, then those without a time."""
    width = sum(len(column.align) for column in columns)
    title = f"\\texttt{{{escape(rows[0].problem)}}}" + (f", {escape(fact)}" if fact else "")
    several = len({r.threads for r in rows}) > 1
    yield r"\midrule"
    yield f"\\multicolumn{{{1 + width}}}{{@{{}}l@{{}}}}{{{title}}} \\\\"
    for r in sorted(rows, key=lambda r: _time(r) or math.inf):
        name = escape(short(r.kernel)) + (f" ({r.threads} thr.)" if several else "")
        yield " & ".join([name, *_cells(r, columns, width)]) + r" \\"


def _cells(r: Result, columns: list[Column], width: int) -> Iterator[str]:
    """Yield the cells after a kernel's name, or the status where there is no time."""
    if _time(r) is not None:
        yield from (cell for column in columns for cell in column.cells(r))
    else:
        yield f"\\multicolumn{{{width}}}{{l@{{}}}}{{{_verdict(r)}}}"


def _verdict(r: Result) -> str:
    return "right" if r.status == Status.OK else escape(r.status)


def _facts(rows: list[Result]) -> str:
    threads = max(r.threads for r in rows)
    facts = (rows[0].mode, count(threads, "thread"), rows[0].isa)
    return ", ".join(filter(None, facts))


def _time(r: Result) -> float | None:
    """Return the median, or the mean, which may be all that is known of results from elsewhere."""
    return r.time_s_median or r.time_s_mean


def _time_cells(r: Result) -> tuple[str, str]:
    found = _time(r)
    if found is None:
        return "", ""
    name, factor = unit(found)
    low, high = (end and end / factor for end in (r.time_s_ci95_low, r.time_s_ci95_high))
    after = "(mean)" if r.time_s_median is None else _interval(low, high, decimals(found / factor))
    return f"{digits(found / factor)}\\,{name.replace('u', MICRO)}", after


def _speedup_cells(r: Result) -> tuple[str, str]:
    if r.speedup is None:
        return "", "baseline" if r.kernel == r.baseline and _time(r) else ""
    return digits(r.speedup), _interval(r.speedup_ci95_low, r.speedup_ci95_high, decimals(r.speedup))


def _interval(low: float | None, high: float | None, places: int) -> str:
    return interval(low, high, lambda end: f"{end:.{places}f}")


_COLUMNS = (
    Column(r"time [95\,\%]", "rl", _time_cells),
    Column("GFLOP/s", "r", lambda r: (digits(r.gflop_per_s),)),
    Column("GB/s", "r", lambda r: (digits(None if r.gflop_per_s else r.gbyte_per_s),)),
    Column(r"speedup [95\,\%]", "rl", _speedup_cells),
)
#: The only column of a table without a single time.
_VERDICT = Column("verdict", "l", lambda r: (_verdict(r),))


def escape(text: str) -> str:
    r"""Return text escaped for LaTeX; what pdflatex has no glyph for is written as `\u4e2d`."""
    return "".join(_SPECIAL.get(char, char) for char in comment(text))


def comment(text: str) -> str:
    """Return a text as printable ASCII on one line."""
    plain = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return plain.encode("ascii", "backslashreplace").decode()
