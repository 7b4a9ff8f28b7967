"""Tables of rows, ceilings and totals."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kernelmark.bench.measure.disturbance import low_ceilings
from kernelmark.bench.measure.measurement import WITHIN, Ceiling
from kernelmark.bench.measure.roofline import in_force
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.text import escaped
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.records import KernelTotal
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import grouped, speedup_of, why_unranked
from kernelmark.bench.report.layout import (
    GAP,
    TERMINAL,
    TableColumn,
    in_markdown,
    natural_width,
    paragraph,
    table,
    table_of,
    width,
    with_bars,
)
from kernelmark.bench.report.noise import MARK, marked, noise_of, share

COLUMNS = (
    TableColumn("kernel"),
    TableColumn("numerics", spare=7),
    TableColumn("time", "right"),
    TableColumn("95 %", "right", spare=3),
    TableColumn("GFLOP/s", "right", spare=2),
    TableColumn("GB/s", "right", spare=4),
    TableColumn("roof %", "right", spare=1),
    TableColumn("speedup"),
    TableColumn("scratch", "right", spare=5),
    TableColumn("by", spare=6),
)
_RATE, _BANDWIDTH, _ROOF = 4, 5, 6
CEILING_COLUMNS = (
    TableColumn("device"),
    TableColumn("threads"),
    TableColumn("ceiling"),
    TableColumn("rate"),
    TableColumn("95 %", spare=3),
    TableColumn("by", spare=1),
    TableColumn("on", spare=2),
    TableColumn("does not hold", wraps=28),
)
TOTAL_COLUMNS = (
    TableColumn("kernel", cell=lambda t: t.kernel),
    TableColumn("rows", "right", cell=lambda t: str(sum(t.statuses.values()))),
    TableColumn("ok", "right", cell=lambda t: str(t.statuses.get(Status.OK, 0))),
    TableColumn(
        "others", wraps=16, cell=lambda t: ", ".join(f"{n} {s}" for s, n in t.statuses.items() if s != Status.OK)
    ),
    TableColumn("speedup, mean [range]", spare=2, cell=lambda t: "" if t.speedup is None else fmt.factor(*t[2:5])),
    TableColumn("best roof %", "right", spare=1, cell=lambda t: fmt.digits(t.roofline_pct)),
)
NOTE = "one process cannot show run-to-run variation; --processes 5 does"


def run_table(results: Iterable[Result], style: str = "simple") -> str:
    """Return a table for each problem, mode and isa: rows with a time, fastest first, then the others with reasons."""
    groups = grouped(results, lambda r: (r.problem, r.mode, r.isa))
    return "\n\n".join(group_table(rows, style) for rows in groups.values())


def group_table(rows: Sequence[Result], style: str) -> str:
    """Return the table of rows that share problem, mode and isa, followed by the rows without a time."""
    timed = [r for r in rows if r.time_s_median]
    parts = [kernel_table(rows, style), *(paragraph(line, "  ", style=style) for line in _below(rows, timed))]
    # In Markdown a line directly below a table would become a row of it.
    return ("\n\n" if style == "github" else "\n").join(parts)


def kernel_table(rows: Sequence[Result], style: str, most: int = sys.maxsize) -> str:
    """Return the title and the timed rows of a table, fastest first; most: the most rows to show."""
    timed = sorted((r for r in rows if r.time_s_median), key=lambda r: r.time_s_median or 0.0)
    parts = [_title(rows, style)]
    if timed:
        threads, numerics = {r.threads for r in timed if r.device == "cpu"}, {r.numerics for r in timed}
        shown = _Shown(len(threads) > 1, len(numerics) > 1, *fmt.flop_unit(r.gflop_per_s for r in timed))
        lines = [(r.time_s_median or 0.0, _cells(r, shown)) for r in timed[:most]] + list(_bounds(timed, shown))
        cells = [cells for _, cells in sorted(lines, key=lambda line: line[0])]
        ranked = min(timed, key=lambda r: (why_unranked(r) != "", r.time_s_median))
        best = _cells(ranked, shown)
        parts.append(_drawn(cells, style, shown.unit, cells.index(best) if best in cells else -1))
    if len(timed) > most:
        parts.append(paragraph(f"{len(timed) - most} slower kernels are left out", GAP))
    return ("\n\n" if style == "github" else "\n").join(parts)


class _Shown(NamedTuple):
    """Whether a table's cells show threads and numerics. unit: the unit of its rates; gflop: this unit in GFLOP/s."""

    threads: bool
    numerics: bool
    unit: str
    gflop: float


def _below(rows: Sequence[Result], timed: Sequence[Result]) -> Iterator[str]:
    """Yield the lines below the table: noise, scratch, rows without a median, and reasons of rows that are not ok."""
    if sentence := noise_of(timed).sentence:
        yield f"{MARK} {sentence}"
    low = dict.fromkeys(ceiling for r in timed for ceiling in low_ceilings(r.disturbed))
    yield from (f"{MARK} roof %: {ceiling}" for ceiling in low)
    first = min(timed, key=lambda r: r.time_s_median or 0.0, default=None)
    if first and (why := why_unranked(first)) and not all(map(why_unranked, timed)):
        yield f"not ranked: {fmt.short(first.kernel)} {why}"
    if names := ", ".join(dict.fromkeys(fmt.short(r.kernel) for r in timed if by_name_only(r))):
        yield f"* in place in name only, since scratch exceeds a tenth of the matrix: {names}"
    yield from filter(None, map(correct, rows))
    threads = _titled_threads(rows)
    for r in (r for r in rows if r.status != Status.OK):
        where = f" (t{r.threads})" * (r.device == "cpu" and r.threads != threads)
        yield f"{r.status}: {r.kernel}{where}: {r.reason}"


def correct(r: Result) -> str:
    """Return, for an ok row without a median, its mean or `correct: a.b (largest error 1e-7, bound 2e-6)`; else ""."""
    if r.status != Status.OK or r.time_s_median:
        return ""
    if r.time_s_mean:
        return f"mean {fmt.seconds(r.time_s_mean)}: {r.kernel} (no median was recorded)"
    return f"correct: {r.kernel} (largest error {_small(r.max_error)}, bound {_small(r.error_bound)})"


def scope_note(results: Iterable[Result]) -> str:
    """Return `NOTE` if any row comes from a single process, which cannot show run-to-run variation; else ""."""
    return NOTE if any(r.interval == WITHIN for r in results) else ""


def _drawn(cells: Sequence[Sequence[str]], style: str, unit: str, best: int) -> str:
    columns = list(COLUMNS)
    columns[_RATE] = columns[_RATE]._replace(header=unit)
    if not any(row[_RATE] for row in cells):
        columns[_BANDWIDTH] = columns[_BANDWIDTH]._replace(spare=columns[_RATE].spare)
    if style != TERMINAL:
        return table(columns, cells, style)
    barred = with_bars(cells, _ROOF)
    return table(columns, barred if natural_width(columns, barred) <= width() else cells, style, best=best)


def _titled_threads(rows: Sequence[Result]) -> int:
    return max(r.threads for r in [r for r in rows if r.time_s_median] or rows)


def _title(rows: Sequence[Result], style: str) -> str:
    timed = [r for r in rows if r.time_s_median] or rows
    threads, processes = _titled_threads(rows), min(r.processes for r in timed)
    several = f"{processes} processes" * (processes > 1)
    facts = filter(None, (rows[0].mode, fmt.count(threads, "thread"), rows[0].isa, several))
    baseline = next((r.baseline for r in rows if r.baseline and r.time_s_median), "")
    against = f"; speedup against {baseline}" if baseline else ""
    problem, shared = escaped(rows[0].problem), escaped(", ".join(facts) + against)
    line = f"{problem}   {shared}"
    if style == "github":
        return in_markdown(line)
    return line if len(line) <= width() else f"{problem}\n{paragraph(shared, GAP, GAP)}"


def _cells(r: Result, shown: _Shown) -> Sequence[str]:
    speedup = "baseline" if r.kernel == r.baseline else ""
    return (
        fmt.short(r.kernel) + _threads(r, shown),
        r.numerics * shown.numerics,
        marked(fmt.seconds(r.time_s_median), r),
        fmt.spread(*fmt.row_time(r)),
        fmt.digits(r.gflop_per_s and r.gflop_per_s / shown.gflop),
        fmt.digits(r.gbyte_per_s),
        share(r),
        speedup if r.speedup is None else str(speedup_of(r)),
        fmt.size(r.scratch_bytes) + ("*" if by_name_only(r) else ""),
        ", ".join(filter(None, (r.stopped_by, str(r.samples)))),
    )


def _threads(r: Result, shown: _Shown) -> str:
    return f" (t{r.threads})" if shown.threads and r.device == "cpu" else ""


def by_name_only(r: Result) -> bool:
    """Return whether an in-place kernel used scratch of more than a tenth of the matrix."""
    if "in" not in r.problem.split("/") or not (r.time_s_median and r.gbyte_per_s and r.scratch_bytes):
        return False
    return r.scratch_bytes > r.time_s_median * r.gbyte_per_s * 1e9 / 2 / 10


def _bounds(timed: list[Result], shown: _Shown) -> Iterator[tuple[float, Sequence[str]]]:
    """Yield the roofline bounds of these rows, without duplicates, each as its time and its line for the table.

    A bound of arithmetic holds for the operations that an algorithm executes. If these are not the nominal operations,
    the line names the kernel.
    """
    seen = set()
    for r in timed:
        rate = r.ceiling_gflop_per_s if r.bound_by == "compute" else r.ceiling_gbyte_per_s
        numerics = r.numerics * (r.bound_by == "compute")
        executed = fmt.other_flop(r) if r.bound_by == "compute" else None
        bound = (r.device, r.threads, r.bound_by, rate, numerics, executed)
        if r.roofline_pct and r.time_s_median and bound not in seen:
            seen.add(bound)
            least, room = r.time_s_median * r.roofline_pct / 100, 100 / r.roofline_pct
            of = f" of {fmt.short(r.kernel)}" if executed else ""
            name = f"bound: {r.device} {r.bound_by}{of}{_threads(r, shown)}"
            gflop, gbyte = (r.gflop_per_s or 0.0) / shown.gflop, r.gbyte_per_s or 0.0
            rates = [fmt.digits(rate * room) if rate else "" for rate in (gflop, gbyte)]
            yield least, (name, numerics * shown.numerics, fmt.seconds(least), "", *rates, "100", "", "", "")


def ceiling_table(ceilings: Iterable[tuple[Ceiling, str]], style: str = "simple") -> str:
    """Return a table of the ceilings of a run's rows, with the kernel that reached each, and any reason to doubt it."""
    cells = []
    for c, doubt in in_force(ceilings):
        rate = fmt.flop_rate(c.rate * 1e-9) if "FLOP" in c.rate_unit else f"{fmt.digits(c.rate * 1e-9)} {c.rate_unit}"
        around = fmt.spread(c.rate, c.low, c.high)
        cells.append((c.device, str(c.threads), c.kind, rate, around, c.kernel, c.problem, doubt))
    return table(CEILING_COLUMNS, cells, style)


def _small(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"


def totals_table(totals: Iterable[KernelTotal]) -> str:
    """Return a line for each kernel: rows by status, mean and range of the speedups, best share of the roofline."""
    return table_of(TOTAL_COLUMNS, totals)


def status_line(statuses: Counter[str]) -> str:
    """Return `91 rows: 89 ok, 2 unsupported` from the counts, or `no rows`."""
    if not statuses:
        return "no rows"
    counts = ", ".join(f"{number} {status}" for status, number in statuses.most_common())
    return f"{fmt.count(statuses.total(), 'row')}: {counts}"
