"""Tables for people, from the rows of a store."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate

from bench.measure.roofline import Ceiling
from bench.record.result import Result

HEADERS = ("kernel", "time", "95 %", "GFLOP/s", "GB/s", "roof %", "speedup", "scratch", "by")
_ALIGN = ("left", "right", "right", "right", "right", "right", "left", "right", "left")


def run_table(results: Iterable[Result], style: str = "simple") -> str:
    """One table a problem: its kernels fastest first, then those without a time and why."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.problem, result.mode), []).append(result)
    return "\n\n".join(_group(problem, mode, rows, style) for (problem, mode), rows in groups.items())


def _group(problem: str, mode: str, rows: list[Result], style: str) -> str:
    timed = [r for r in rows if r.time_s_median]
    parts = [_title(problem, mode, rows)]
    if timed:
        several = len({r.threads for r in rows}) > 1
        lines = [(r.time_s_median or 0.0, _cells(r, several)) for r in timed] + list(_limits(timed, several))
        parts.append(_filled([cells for _, cells in sorted(lines, key=lambda line: line[0])], style))
    if any(by_name_only(r) for r in timed):
        parts.append("  * scratch of more than a tenth of the matrix: in place by name only")
    right = [r for r in rows if r.status == "ok" and not r.time_s_median]
    parts += [
        f"  right: {r.kernel} (largest error {_small(r.max_error)}, bound {_small(r.error_bound)})" for r in right
    ]
    parts += [f"  {r.status}: {r.kernel}: {r.reason}" for r in rows if r.status != "ok"]
    # In Markdown a line right below a table would be another row of it.
    return ("\n\n" if style == "github" else "\n").join(parts)


def _filled(cells: list[Sequence[str]], style: str) -> str:
    """The table without the columns that are empty throughout."""
    keep = [i for i in range(len(HEADERS)) if any(row[i] for row in cells)]
    table: str = tabulate(
        [[row[i] for i in keep] for row in cells],
        [HEADERS[i] for i in keep],
        tablefmt=style,
        colalign=[_ALIGN[i] for i in keep],
        disable_numparse=True,
    )
    return table


def _title(problem: str, mode: str, rows: list[Result]) -> str:
    threads = max(r.threads for r in rows)
    baseline = next((r.baseline for r in rows if r.baseline), "")
    against = f"; speedup against {baseline}" if baseline else ""
    return f"{problem}   {mode}, {threads} thread{'s' * (threads > 1)}{against}"


def _cells(r: Result, several: bool) -> Sequence[str]:
    speedup = "baseline" if r.kernel == r.baseline else ""
    if r.speedup is not None:
        speedup = f"{r.speedup:.3g}x"
        if r.speedup_ci95_low is not None and r.speedup_ci95_high is not None:
            speedup += f" [{r.speedup_ci95_low:.3g}, {r.speedup_ci95_high:.3g}]"
    name = r.kernel.partition("/")[2] + (f" (t{r.threads})" if several else "")
    return (
        name,
        seconds(r.time_s_median),
        spread(r),
        _rate(r.gflop_per_s),
        _rate(r.gbyte_per_s),
        _rate(r.roofline_pct),
        speedup,
        size(r.scratch_bytes) + ("*" if by_name_only(r) else ""),
        f"{r.stopped_by}, {r.samples}",
    )


def by_name_only(r: Result) -> bool:
    """Whether an in-place kernel took scratch of more than a tenth of the matrix, which is read and written once."""
    if "in" not in r.problem.split("/") or not (r.time_s_median and r.gbyte_per_s and r.scratch_bytes):
        return False
    return r.scratch_bytes > r.time_s_median * r.gbyte_per_s * 1e9 / 2 / 10


def _limits(timed: list[Result], several: bool) -> Iterator[tuple[float, Sequence[str]]]:
    """What the ceilings of these rows allow, each once, as a line among those it bounds."""
    seen = set()
    for r in timed:
        rate = r.ceiling_gflop_per_s if r.bound_by == "compute" else r.ceiling_gbyte_per_s
        limit = (r.device, r.threads, r.bound_by, rate)
        if r.roofline_pct and r.time_s_median and limit not in seen:
            seen.add(limit)
            least, room = r.time_s_median * r.roofline_pct / 100, 100 / r.roofline_pct
            name = f"limit: {r.device} {r.bound_by}" + (f" (t{r.threads})" if several else "")
            flop = r.gflop_per_s and r.gflop_per_s * room
            yield least, (name, seconds(least), "", _rate(flop), _rate((r.gbyte_per_s or 0) * room), "100", "", "", "")


def ceiling_table(ceilings: Iterable[tuple[Ceiling, str]], style: str = "simple") -> str:
    """The ceilings of a run, the latest of each, with who reached it and why it does not hold, if so."""
    latest = {ceiling.need: (ceiling, doubt) for ceiling, doubt in ceilings}
    cells = []
    for c, doubt in latest.values():
        unit = "GB/s" if c.kind == "memory" else "GFLOP/s"
        low, high = (100 * (rate / c.rate - 1) for rate in (c.low, c.high))
        found = f"{_digits(c.rate * 1e-9)} {unit}"
        cells.append((c.device, str(c.threads), c.kind, found, f"{low:+.1f} {high:+.1f} %", c.kernel, c.problem, doubt))
    headers = ("device", "threads", "ceiling", "rate", "95 %", "by", "on", "does not hold")
    keep = [i for i in range(len(headers)) if any(row[i] for row in cells)]
    rows = [[row[i] for i in keep] for row in cells]
    table: str = tabulate(rows, [headers[i] for i in keep], tablefmt=style, disable_numparse=True)
    return table


def spread(r: Result) -> str:
    """The interval relative to the median, `-0.4 +1.2 %`, or empty."""
    if not r.time_s_median or r.time_s_ci95_low is None or r.time_s_ci95_high is None:
        return ""
    low, high = (100 * (t / r.time_s_median - 1) for t in (r.time_s_ci95_low, r.time_s_ci95_high))
    return f"{low:+.1f} {high:+.1f} %"


def seconds(value: float | None) -> str:
    """Three significant digits with a prefix: `12.3 us`."""
    if value is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{_digits(value * 1e9)} ns"


def size(value: int | None) -> str:
    """Bytes with a decimal prefix: `219 MB`; nothing for none."""
    if not value:
        return ""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{value} B"


def _rate(value: float | None) -> str:
    return "" if value is None else _digits(value)


def _small(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    decimals = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{decimals}f}"


def summary(results: Sequence[Result]) -> str:
    """`91 rows: 89 ok, 2 unsupported`."""
    tally = Counter(r.status for r in results)
    counts = ", ".join(f"{count} {status}" for status, count in tally.most_common())
    return f"{len(results)} rows: {counts}"
