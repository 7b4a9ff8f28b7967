"""Thread scaling: how much faster a kernel gets with threads, against itself on the fewest."""

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import Ratio, time_of
from kernelmark.bench.report.figures.plan import Figure, Kind, file_name, kind
from kernelmark.bench.report.figures.style import GREY, Label, Look, label_right, mark_points, panel, ticks
from kernelmark.bench.report.format import count, short
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData, ends, work

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MOST, MOST_KERNELS = 3, 10
Scaling = dict[str, list[Result]]


def thread_scaling(data: RunData, looks: dict[str, Look]) -> Kind:
    """Return a figure for each operation, of its largest problem at the most thread counts."""
    counts: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for r in data.timed:
        if r.device == "cpu":
            counts[r.op, r.mode, r.isa].add(r.threads)
    several = {key for key, own in counts.items() if len(own) > 1}
    found: dict[tuple[str, ...], dict[str, Scaling]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for r in data.timed if several else ():
        if r.device == "cpu" and (r.op, r.mode, r.isa) in several:
            found[r.op, r.mode, r.isa][r.problem][r.kernel].append(r)
    figures = []
    for (op, mode, isa), problems in found.items():
        scalings = {problem: _scaling(rows) for problem, rows in problems.items()}
        problem = max(scalings, key=lambda p: _rank(scalings[p]))
        if scalings[problem]:
            figures.append(_figure(op, problem, mode, isa, scalings[problem], looks))
    return kind("Thread scaling", figures, "no kernel was measured at two thread counts; `--threads 1,2` does", MOST)


def _scaling(rows: Scaling) -> Scaling:
    """Return the kernels with two thread counts or more, by thread count."""
    return {
        k: sorted(found, key=lambda r: r.threads) for k, found in rows.items() if len({r.threads for r in found}) > 1
    }


def _rank(scaling: Scaling) -> tuple[int, float, int]:
    counts = max((len(rows) for rows in scaling.values()), default=0)
    return counts, max((work(rows[0]) for rows in scaling.values()), default=0.0), len(scaling)


def _figure(op: str, problem: str, mode: str, isa: str, scaling: Scaling, looks: dict[str, Look]) -> Figure:
    best = sorted(scaling, key=lambda k: min(r.time_s_median or 0.0 for r in scaling[k]))[:MOST_KERNELS]
    shown = f" The {len(best)} fastest of {len(scaling)} kernels." * (len(best) < len(scaling))
    return Figure(
        file_name("threads", op, mode, isa),
        f"Thread scaling: {problem}",
        f"{scaling[best[0]][0].device_name}, {mode}. Time on the fewest threads over time. Whiskers: the 95 % "
        "interval, formed from both times, since thread counts are not measured in turn. Dashed: as many times faster "
        f"as there are threads. Hollow: measured under noise.{shown}",
        partial(_draw, {k: scaling[k] for k in best}, looks),
    )


def _draw(scaling: Scaling, looks: dict[str, Look]) -> "Drawing":
    figure, axes = panel(52)
    labels = []
    for kernel, rows in scaling.items():
        gains = [Ratio(1.0), *(time_of(rows[0]).over(time_of(r)) for r in rows[1:])]
        xs, ys, bars = [r.threads for r in rows], [gain.median for gain in gains], [ends(*gain[:3]) for gain in gains]
        errors = [[y - low for y, (low, _) in zip(ys, bars, strict=True)]]
        errors += [[high - y for y, (_, high) in zip(ys, bars, strict=True)]]
        look = looks[kernel]
        axes.errorbar(xs, ys, yerr=errors, color=look.colour, elinewidth=0.6)
        mark_points(axes, xs, ys, look, [is_noisy(r) for r in rows])
        labels.append(Label(xs[-1], ys[-1], short(kernel), look))
    counts = sorted({r.threads for rows in scaling.values() for r in rows})
    axes.plot(counts, [count / counts[0] for count in counts], color=GREY, linestyle="--", linewidth=0.8, zorder=0)
    axes.set(xlabel="threads", ylabel=f"speedup over {count(counts[0], 'thread')}", xscale="log")
    ticks(axes.xaxis, counts)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    label_right(axes, labels)
    return figure
