"""Tables for people, from the rows of a store."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate

from bench.measure.ceiling import Ceiling
from bench.measure.measurement import WITHIN
from bench.plan.status import Status
from bench.record.reader import KernelTotal
from bench.record.result import Result
from bench.report.contest import speedup_of
from bench.report.format import count, digits, factor, row_time, seconds, short, size, spread
from bench.report.noise import MARK, marked, noise_of
from bench.report.terminal import TERMINAL, with_bars, with_best

HEADERS = ("kernel", "time", "95 %", "GFLOP/s", "GB/s", "roof %", "speedup", "scratch", "by")
NOTE = "intervals within one process; --processes 5 gives ones that hold for the next"
_ALIGN = ("left", "right", "right", "right", "right", "right", "left", "right", "left")


def run_table(results: Iterable[Result], style: str = "simple") -> str:
    """Return a table for each problem, mode and isa: its kernels fastest first, then those without a time and why."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.problem, result.mode, result.isa), []).append(result)
    return "\n\n".join(group_table(rows, style) for rows in groups.values())


def group_table(rows: Sequence[Result], style: str = "simple") -> str:
    """Return the table of rows that share problem, mode and isa."""
    timed = [r for r in rows if r.time_s_median]
    parts = [_title(rows)]
    if timed:
        several = len({r.threads for r in rows}) > 1
        lines = [(r.time_s_median or 0.0, _cells(r, several)) for r in timed] + list(_limits(timed, several))
        parts.append(_filled([cells for _, cells in sorted(lines, key=lambda line: line[0])], style))
    if sentence := noise_of(timed).sentence:
        parts.append(f"  {MARK} {sentence}")
    if any(by_name_only(r) for r in timed):
        parts.append("  * scratch of more than a tenth of the matrix: in place by name only")
    means = [r for r in rows if r.status == Status.OK and not r.time_s_median and r.time_s_mean]
    parts += [f"  mean {seconds(r.time_s_mean)}: {r.kernel} (no median known)" for r in means]
    right = [r for r in rows if r.status == Status.OK and not r.time_s_median and not r.time_s_mean]
    parts += [
        f"  right: {r.kernel} (largest error {_small(r.max_error)}, bound {_small(r.error_bound)})" for r in right
    ]
    parts += [f"  {r.status}: {r.kernel}: {r.reason}" for r in rows if r.status != Status.OK]
    # In Markdown a line right below a table would be another row of it.
    return ("\n\n" if style == "github" else "\n").join(parts)


def scope_note(results: Iterable[Result]) -> str:
    """Return the note on intervals within one process, if any of the rows has one; else nothing."""
    return NOTE if any(r.interval == WITHIN for r in results) else ""


def _filled(cells: Sequence[Sequence[str]], style: str) -> str:
    """Return a table without its empty columns; tabulate would take several times as long."""
    if style == TERMINAL:
        cells = with_bars(cells, HEADERS.index("roof %"))
    columns = [(header, *column) for header, column in zip(HEADERS, zip(*cells, strict=True), strict=True)]
    filled = [(column, align) for column, align in zip(columns, _ALIGN, strict=True) if any(column[1:])]
    header, *lines = zip(*(_padded(column, align) for column, align in filled), strict=True)
    if style == "github":
        rule = "|".join(_github_rule(len(name), align) for name, (_, align) in zip(header, filled, strict=True))
        drawn = [f"| {' | '.join(line)} |" for line in (header, *lines)]
        return "\n".join([drawn[0], f"|{rule}|", *drawn[1:]])
    drawn = ["  ".join(line).rstrip() for line in (header, ["-" * len(name) for name in header], *lines)]
    return "\n".join(with_best(drawn, cells) if style == TERMINAL else drawn)


def _padded(column: Sequence[str], align: str) -> list[str]:
    """Return the cells of a column, all equally wide."""
    width = max(map(len, column))
    return [cell.ljust(width) if align == "left" else cell.rjust(width) for cell in column]


def _github_rule(width: int, align: str) -> str:
    return f":{'-' * (width + 1)}" if align == "left" else f"{'-' * (width + 1)}:"


def _title(rows: Sequence[Result]) -> str:
    threads, processes = max(r.threads for r in rows), max(r.processes for r in rows)
    facts = [*filter(None, [rows[0].mode]), count(threads, "thread")]
    facts += [rows[0].isa] if rows[0].isa else []
    facts += [f"{processes} processes"] if processes > 1 else []
    baseline = next((r.baseline for r in rows if r.baseline), "")
    against = f"; speedup against {baseline}" if baseline else ""
    return f"{rows[0].problem}   {', '.join(facts)}{against}"


def _cells(r: Result, several: bool) -> Sequence[str]:
    speedup = "baseline" if r.kernel == r.baseline else ""
    return (
        short(r.kernel) + (f" (t{r.threads})" if several else ""),
        marked(seconds(r.time_s_median), r),
        spread(*row_time(r)),
        digits(r.gflop_per_s),
        digits(r.gbyte_per_s),
        digits(r.roofline_pct),
        speedup if r.speedup is None else str(speedup_of(r)),
        size(r.scratch_bytes) + ("*" if by_name_only(r) else ""),
        ", ".join(filter(None, (r.stopped_by, str(r.samples)))),
    )


def by_name_only(r: Result) -> bool:
    """Whether an in-place kernel took scratch of more than a tenth of the matrix, which is read and written once."""
    if "in" not in r.problem.split("/") or not (r.time_s_median and r.gbyte_per_s and r.scratch_bytes):
        return False
    return r.scratch_bytes > r.time_s_median * r.gbyte_per_s * 1e9 / 2 / 10


def _limits(timed: list[Result], several: bool) -> Iterator[tuple[float, Sequence[str]]]:
    """Yield what the ceilings of these rows allow, each once, as a line among those it bounds."""
    seen = set()
    for r in timed:
        rate = r.ceiling_gflop_per_s if r.bound_by == "compute" else r.ceiling_gbyte_per_s
        limit = (r.device, r.threads, r.bound_by, rate)
        if r.roofline_pct and r.time_s_median and limit not in seen:
            seen.add(limit)
            least, room = r.time_s_median * r.roofline_pct / 100, 100 / r.roofline_pct
            name = f"limit: {r.device} {r.bound_by}" + (f" (t{r.threads})" if several else "")
            rates = [digits(one and one * room) for one in (r.gflop_per_s, r.gbyte_per_s or 0.0)]
            yield least, (name, seconds(least), "", *rates, "100", "", "", "")


def ceiling_table(ceilings: Iterable[tuple[Ceiling, str]], style: str = "simple") -> str:
    """Return the ceilings of a run, the latest of each, with the kernel that reached it and any reason against it."""
    latest = {ceiling.need: (ceiling, doubt) for ceiling, doubt in ceilings}
    cells = []
    for c, doubt in latest.values():
        unit = "GB/s" if c.kind == "memory" else "GFLOP/s"
        rate = f"{digits(c.rate * 1e-9)} {unit}"
        around = spread(c.rate, c.low, c.high)
        cells.append((c.device, str(c.threads), c.kind, rate, around, c.kernel, c.problem, doubt))
    return filled_table(("device", "threads", "ceiling", "rate", "95 %", "by", "on", "does not hold"), cells, style)


def filled_table(headers: Sequence[str], cells: Sequence[Sequence[str]], style: str = "simple") -> str:
    """Return a table without the columns that are empty throughout."""
    keep = [i for i in range(len(headers)) if any(row[i] for row in cells)]
    rows = [[row[i] for i in keep] for row in cells]
    table: str = tabulate(rows, [headers[i] for i in keep], tablefmt=style, disable_numparse=True)
    return table


def _small(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"


def totals_table(totals: Iterable[KernelTotal]) -> str:
    """Return a line for each kernel: rows by status, geometric mean and range of the speedups, the best roofline."""
    cells = [
        (
            t.kernel,
            str(sum(t.statuses.values())),
            str(t.statuses.get(Status.OK, 0)),
            ", ".join(f"{count} {status}" for status, count in t.statuses.items() if status != Status.OK),
            factor(t.speedup, t.speedup_min, t.speedup_max) if t.speedup is not None else "",
            digits(t.roofline_pct),
        )
        for t in totals
    ]
    headers = ("kernel", "rows", "ok", "others", "speedup, mean [range]", "best roof %")
    aligns = ("left", "right", "right", "left", "left", "right")
    table: str = tabulate(cells, headers, colalign=aligns if cells else None, disable_numparse=True)
    return table


def summary(results: Iterable[Result]) -> str:
    """Return `91 rows: 89 ok, 2 unsupported`."""
    return status_line(Counter(r.status for r in results))


def status_line(statuses: Counter[str]) -> str:
    """Return `91 rows: 89 ok, 2 unsupported` from the counts, or `no rows`."""
    if not statuses:
        return "no rows"
    counts = ", ".join(f"{number} {status}" for status, number in statuses.most_common())
    return f"{count(statuses.total(), 'row')}: {counts}"
