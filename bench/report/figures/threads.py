"""Figures of thread scaling: speedup by number of threads on one problem, and speedup by size of the problem."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kernelmark.bench.measure.roofline import UNITS
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Ratio, grouped, is_fair, time_of
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.figures.roofline import highest
from kernelmark.bench.report.format import count, short
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData, flop_and_bytes, work

MOST, MOST_KERNELS = 3, 10
Scaling = dict[str, list[Result]]


def thread_scaling(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each operation, on the problem with the most thread counts; in a tie, on the largest one."""
    by_op = grouped((r for r in data.timed if r.device == "cpu" and is_fair(r)), lambda r: (r.op, r.mode, r.isa))
    figures = []
    for (op, mode, isa), group in by_op.items():
        scalings = {problem: _scaling(rows) for problem, rows in grouped(group, lambda r: r.problem).items()}
        problem = max(scalings, key=lambda p: _rank(scalings[p]))
        if scalings[problem]:
            figures.append(_figure(op, problem, mode, isa, scalings[problem], looks))
    lacking = "no kernel was measured at two thread counts; `--threads 1,2` measures two"
    return style.kind("Thread scaling", figures, lacking, MOST)


def _scaling(rows: Sequence[Result]) -> Scaling:
    """Return the rows of each kernel with several thread counts, the fewest threads first."""
    by_kernel = grouped(rows, lambda r: r.kernel)
    several = {kernel: group for kernel, group in by_kernel.items() if len({r.threads for r in group}) > 1}
    return {kernel: sorted(group, key=lambda r: r.threads) for kernel, group in several.items()}


def _rank(scaling: Scaling) -> tuple[int, float, int]:
    counts = max((len(rows) for rows in scaling.values()), default=0)
    return counts, max((work(rows[0]) for rows in scaling.values()), default=0.0), len(scaling)


def _figure(op: str, problem: str, mode: str, isa: str, scaling: Scaling, looks: dict[str, style.Look]) -> style.Figure:
    best = sorted(scaling, key=lambda k: min(r.time_s_median or 0.0 for r in scaling[k]))[:MOST_KERNELS]
    shown = f" The {len(best)} fastest of {len(scaling)} kernels." * (len(best) < len(scaling))
    return style.Figure(
        style.file_name("threads", op, mode, isa),
        f"Thread scaling: {problem}",
        f"{scaling[best[0]][0].device_name}, {mode}. Speedup over the fewest threads. Whiskers: the 95 % interval, "
        "computed from the intervals of both times, since thread counts are not measured in turn. Dashed: linear "
        f"speedup. Hollow: measured under noise.{shown}",
        partial(_draw, {k: scaling[k] for k in best}, looks),
    )


def _draw(scaling: Scaling, looks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(52, grid="y")
    labels = []
    for kernel, rows in scaling.items():
        gains = [Ratio(1.0), *(time_of(rows[0]).over(time_of(r)) for r in rows[1:])]
        points = [(r.threads, gain, is_noisy(r)) for r, gain in zip(rows, gains, strict=True)]
        labels.append(style.line(axes, points, short(kernel), looks[kernel]))
    counts = sorted({r.threads for rows in scaling.values() for r in rows})
    linear = [threads / counts[0] for threads in counts]
    axes.plot(counts, linear, color=style.GREY, linestyle="--", linewidth=0.8, zorder=0)
    axes.set(xlabel="threads", ylabel=f"speedup over {count(counts[0], 'thread')}", xscale="log")
    style.ticks(axes.xaxis, counts)
    axes.set_ylim(bottom=0)
    style.label_right(axes, labels)
    return figure


TITLE = "Thread scaling over size"


class Gain(NamedTuple):
    """A kernel's speedup over one thread. row: its row with most threads; allowed: the speedup that ceilings allow."""

    row: Result
    ratio: Ratio
    allowed: float | None


def gains_over_size(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each operation whose kernels ran on one thread and on several, at two sizes or more."""
    by_op = grouped(gains(data), lambda gain: (gain.row.op, gain.row.mode, gain.row.isa))
    figures = [
        _size_figure(op, mode, isa, group, looks)
        for (op, mode, isa), group in by_op.items()
        if len({f"{work(gain.row):.3g}" for gain in group}) > 1
    ]
    lacking = "no operation has two sizes on one thread and on several; `--threads 1,2` measures both"
    return style.kind(TITLE, figures, lacking, MOST)


def gains(data: RunData) -> Iterator[Gain]:
    """Yield the gain of each CPU kernel on each problem that it ran on one thread and on more."""
    rows = (r for r in data.timed if r.device == "cpu" and is_fair(r) and work(r))
    for group in grouped(rows, lambda r: (r.op, r.mode, r.isa, r.problem, r.kernel)).values():
        fewest, most = (pick(group, key=lambda r: r.threads) for pick in (min, max))
        if fewest.threads == 1 < most.threads:
            times = [_least_s(data, row) for row in (fewest, most)]
            yield Gain(most, time_of(fewest).over(time_of(most)), times[0] / times[1] if all(times) else None)


def _least_s(data: RunData, r: Result) -> float:
    """Return the least time in seconds that ceilings allow for a row's work; 0 if a ceiling is unknown."""
    flop, traffic = flop_and_bytes(r)
    compute = highest(data, r.device, r.threads, UNITS.get(r.numerics, r.numerics))
    memory = highest(data, r.device, r.threads, "link" if r.op == "transfer" else "memory")
    if not memory or (flop and not compute):
        return 0.0
    return max(traffic / memory.rate, flop / compute.rate if compute else 0.0)


def _size_figure(op: str, mode: str, isa: str, gains: list[Gain], looks: dict[str, style.Look]) -> style.Figure:
    threads, first = max(gain.row.threads for gain in gains), gains[0].row
    most = Counter(gain.row.kernel for gain in gains)
    kernels = sorted(most, key=lambda kernel: -most[kernel])[:MOST_KERNELS]
    shown = f" {len(kernels)} of {len(most)} kernels." * (len(kernels) < len(most))
    return style.Figure(
        style.file_name("threads-over-size", op, mode, isa),
        f"{TITLE}: {op}, {count(threads, 'thread')} against one",
        f"{first.device_name}, {mode}. Speedup of {threads} threads over one, by the operations of a problem (bytes if "
        "it has none). Whiskers: the 95 % interval, computed from the intervals of both times, since thread counts are "
        "not measured in turn. Dashes: the speedup that the ceilings of arithmetic and memory allow, if both are "
        f"known. Hollow: measured under noise.{shown}",
        partial(_draw_sizes, [gain for gain in gains if gain.row.kernel in kernels], threads, looks),
    )


def _draw_sizes(gains: list[Gain], threads: int, looks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(66, grid="y")
    unit = "FLOP" if gains[0].row.gflop_per_s else "bytes"
    axes.set(xlabel=f"{unit} of the problem", ylabel=f"speedup of {count(threads, 'thread')} over 1")
    axes.set(xscale="log", yscale="log")
    labels = []
    for kernel, group in grouped(gains, lambda gain: gain.row.kernel).items():
        ordered = sorted(group, key=lambda gain: work(gain.row))
        points = [(work(gain.row), gain.ratio, is_noisy(gain.row)) for gain in ordered]
        labels.append(style.line(axes, points, short(kernel), looks[kernel], "none"))
    allowed = {(work(gain.row), gain.allowed) for gain in gains if gain.allowed}
    axes.plot([x for x, _ in allowed], [y for _, y in allowed], "_", color=style.INK, markersize=7, zorder=3)
    axes.axhline(1, color=style.GREY, linewidth=0.8, zorder=0)
    style.ticks(axes.xaxis, style.round_ticks(*axes.get_xlim()))
    style.ticks(axes.yaxis, style.ratio_ticks(*axes.get_ylim()))
    style.label_right(axes, labels)
    return figure
