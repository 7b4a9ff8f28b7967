"""The dot plots and heat maps of the page, which are elements of it: they follow its width and its colours."""

import math
from collections.abc import Callable
from typing import NamedTuple

from kernelmark.bench.report.figures.heat import SLOWEST, SlowdownMap, caption
from kernelmark.bench.report.figures.speedups import Dot, Lane, Plot
from kernelmark.bench.report.figures.style import ratio_ticks
from kernelmark.bench.report.format import short


class DotMark(NamedTuple):
    """A dot with its whisker: places from the left in per cent of the lane, from above in per cent of its height."""

    at: float
    low: float
    high: float
    top: float
    side: str
    noisy: bool
    words: str


class DotRow(NamedTuple):
    """A lane of a dot plot, below a head where that is new."""

    head: str
    name: str
    text: str
    side: str
    marks: list[DotMark]
    mean: float | None
    height: int


class DotPlot(NamedTuple):
    """A dot plot of the page; ticks: their places with their texts."""

    title: str
    caption: str
    rows: list[DotRow]
    ticks: list[tuple[float, str]]
    one: float


class HeatRow(NamedTuple):
    """A problem of a heat map; cells: (text, how dark in per cent, `wins`, `ties` or empty), or None."""

    problem: str
    cells: list[tuple[str, int, str] | None]


class HeatMap(NamedTuple):
    """A heat map of the page; kernels: their providers and their names."""

    title: str
    caption: str
    kernels: list[tuple[str, str]]
    rows: list[HeatRow]


def dot_plot(plot: Plot) -> DotPlot:
    """Lay out a dot plot on an axis of speedups, which is logarithmic."""
    low, high = plot.range

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, math.log(value / low) / math.log(high / low))), 2)

    heads = [lane.head for lane in plot.lanes]
    rows = [_row(lane, place, lane.head if lane.head not in heads[:i] else "") for i, lane in enumerate(plot.lanes)]
    ticks = [(place(value), f"{value:g}x") for value in ratio_ticks(low, high)]
    return DotPlot(f"{plot.op}: speed over {short(plot.baseline)}", plot.caption, rows, ticks, place(1.0))


def _row(lane: Lane, place: Callable[[float], float], head: str) -> DotRow:
    alone, count = lane.mean is None, len(lane.dots)
    marks = [_mark(dot, place, 50.0 if alone else round(100 * (i + 0.5) / count, 1)) for i, dot in enumerate(lane.dots)]
    side = marks[0].side if alone else ""
    mean = None if lane.mean is None else place(lane.mean)
    return DotRow(head, lane.name, lane.text, side, marks, mean, 22 if alone else min(60, max(26, 3 * count)))


def _mark(dot: Dot, place: Callable[[float], float], top: float) -> DotMark:
    low, high = dot.span
    words = f"{dot.problem}: {dot.ratio.words}"
    return DotMark(place(dot.ratio.median), place(low), place(high), top, _side(dot.ratio.side), dot.noisy, words)


def _side(side: str) -> str:
    """Return the class of a dot; one without an interval is as grey as a tie."""
    return side if side in ("faster", "slower") else "tie"


def heat_map(m: SlowdownMap) -> HeatMap:
    """Lay out a heat map; a cell is as dark as the logarithm of its slowdown."""
    rows = []
    for c in m.contests:
        found = [m.cell(c, kernel) for kernel in m.kernels]
        rows.append(
            HeatRow(short(c.problem), [cell and (cell.text, _dark(cell.slowdown), cell.outline) for cell in found])
        )
    names = [short(kernel).partition(".") for kernel in m.kernels]
    kernels = [(provider + dot, name) for provider, dot, name in names]
    return HeatMap(f"{m.op}: problems x kernels", caption(m), kernels, rows)


def _dark(slowdown: float) -> int:
    return round(100 * math.log(min(max(slowdown, 1.0), SLOWEST)) / math.log(SLOWEST))
