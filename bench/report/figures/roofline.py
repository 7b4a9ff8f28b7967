"""The roofline: each kernel's executed FLOP/s over its FLOP/byte, below the measured ceilings."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from kernelmark.bench.measure.measurement import Ceiling
from kernelmark.bench.measure.roofline import UNITS, certainty, microbenchmark
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import grouped, is_fair
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import count, digits, figure_names, flop_rate, flop_unit, short
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData, flop_and_bytes, numbers

TITLE = "Roofline"
MOST, MOST_LABELS, MOST_POINTS = 8, 12, 1500


class Roof(NamedTuple):
    """A compute and a memory ceiling, and the rows of an operation below them. points: (flop/byte, flop/s, row)."""

    op: str
    compute: Ceiling
    memory: Ceiling
    points: list[tuple[float, float, Result]]

    @property
    def unit(self) -> tuple[str, float]:
        name, unit = flop_unit([self.compute.rate * 1e-9, *(y * 1e-9 for _, y, _ in self.points)])
        return name, unit * 1e9

    @property
    def where(self) -> str:
        threads = f", {count(self.compute.threads, 'thread')}" * (self.compute.device == "cpu")
        return f"{self.compute.device_name}{threads}, {self.compute.kind}"


def rooflines(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each operation, device, number of threads and arithmetic, those with the most rows first."""
    roofs = sorted(_roofs(data), key=lambda roof: -len(roof.points))
    figures = [
        style.Figure(
            style.file_name("roofline", roof.op, roof.compute.device, f"t{roof.compute.threads}", roof.compute.kind),
            f"Roofline of {roof.op}, {roof.where}",
            "x: executed operations per byte of compulsory traffic; y: executed operations per second. Lines: the "
            f"highest ceilings that {short(roof.compute.kernel)} and {short(roof.memory.kernel)} reached here. The "
            "slope is the bandwidth of memory, so marks of operands that stay in a cache may lie above the slope. "
            "Large marks: the best of each kernel; hollow: measured under noise.",
            partial(_draw, roof, looks),
        )
        for roof in roofs
    ]
    return style.kind(TITLE, figures, "no row with operations has a ceiling of arithmetic and one of memory", MOST)


def _roofs(data: RunData) -> Iterator[Roof]:
    fair = filter(is_fair, data.timed)
    rows = grouped(fair, lambda r: (r.op, r.device, r.threads, UNITS.get(r.numerics, r.numerics)))
    for (op, device, threads, numerics), group in rows.items():
        compute = highest(data, device, threads, numerics, microbenchmark(op, device, numerics, threads))
        memory = highest(data, device, threads, "link" if op == "transfer" else "memory")
        known = ((flop_and_bytes(r), r.time_s_median, r) for r in group)
        points = [(flop / moved, flop / time_s, r) for (flop, moved), time_s, r in known if flop and moved and time_s]
        if compute and memory and points:
            yield Roof(op, compute, memory, points)


def highest(data: RunData, device: str, threads: int, wanted: str, by: str | None = None) -> Ceiling | None:
    """Return the highest valid ceiling of kind `wanted` among those measured on the largest problem.

    For memory, this problem is larger than all caches. by: a problem; use only ceilings measured on it, if any.
    """
    ceilings = [c for c, _ in data.all_ceilings if (c.device, c.threads, c.kind) == (device, threads, wanted)]
    ceilings = [c for c in ceilings if c.problem == by] or ceilings
    largest = max((sum(numbers(c.problem)) for c in ceilings), default=0)
    valid = [c for c, doubt in data.all_ceilings if not doubt and c in ceilings and sum(numbers(c.problem)) == largest]
    return max(valid, key=lambda c: certainty((c, "")), default=None)


def _draw(roof: Roof, looks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(66, grid="both")
    xs, ys = [x for x, _, _ in roof.points], [y for _, y, _ in roof.points]
    name, unit = roof.unit
    ridge = roof.compute.rate / roof.memory.rate
    low, high = min(*xs, ridge / 15) / 2, max(*xs, ridge) * 3
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of compulsory traffic", ylabel=f"{name} executed")
    axes.set_xlim(low, high)
    axes.set_ylim(min(*ys, roof.compute.rate / 30) * 0.5 / unit, max(*ys, roof.compute.rate) * 2.2 / unit)
    style.log_ticks(axes)
    top, slope = roof.compute.rate / unit, roof.memory.rate / unit
    axes.plot([low, ridge, high], [low * slope, top, top], color=style.INK)
    texts = (
        (high, top, flop_rate(roof.compute.rate * 1e-9)),
        (ridge * 0.6, ridge * 0.6 * slope, f"{digits(roof.memory.rate * 1e-9)} GB/s"),
    )
    for x, y, text in texts:
        axes.annotate(text, (x, y), xytext=(-3, 2), textcoords="offset points", ha="right", va="bottom")
    _place(axes, roof, looks)
    return figure


def _place(axes: style.Axes, roof: Roof, looks: dict[str, style.Look]) -> None:
    by_kernel = grouped(roof.points, lambda point: point[2].kernel)
    unit = roof.unit[1]
    best = {kernel: max(points, key=lambda p: p[1]) for kernel, points in by_kernel.items()}
    for kernel, points in by_kernel.items():
        look = looks[kernel]
        rest = [p for p in points if p is not best[kernel]]
        at, many = ([x for x, _, _ in rest], [y / unit for _, y, _ in rest]), len(roof.points) > MOST_POINTS
        axes.plot(*at, look.marker, color=look.colour, markersize=1.8, alpha=0.45, markeredgewidth=0, rasterized=many)
        x, y, row = best[kernel]
        fill = "none" if is_noisy(row) else look.colour
        axes.plot([x], [y / unit], look.marker, color=look.colour, markersize=4.5, markerfacecolor=fill)
    shown = sorted(best, key=lambda kernel: -best[kernel][1])[:MOST_LABELS]
    names = figure_names(shown)
    style.label_right(axes, [style.Label(best[k][0], best[k][1] / unit, names[k], looks[k]) for k in shown])
