"""Speedups over a baseline as dots with intervals: a lane for each row or, if there are too many, for each kernel."""

import math
from collections import defaultdict
from functools import partial
from itertools import zip_longest
from statistics import geometric_mean
from typing import NamedTuple

from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Ratio, Setting, grouped, speedup_of
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import factor, figure_names, short
from kernelmark.bench.report.noise import MARK, is_noisy
from kernelmark.bench.report.run_data import RunData

TITLE = "Speedup"
MOST, MOST_LANES, MOST_KERNELS, MOST_DOTS = 8, 14, 12, 48
WHISKERS = "Grey: a tie (the interval includes 1). Hollow, ~: measured under noise. Whiskers: the 95 % interval."


class Dot(NamedTuple):
    """The speedup of a row."""

    problem: str
    kernel: str
    ratio: Ratio
    noisy: bool

    @property
    def span(self) -> tuple[float, float]:
        """Return the ends of the whisker; both are the median if there is no interval."""
        return style.ends(*self.ratio[:3])


class Lane(NamedTuple):
    """One line of a plot: either one row's dot, below its problem's heading, or all dots of a kernel and their mean."""

    head: str
    name: str
    dots: list[Dot]
    mean: float | None

    @property
    def middle(self) -> float:
        return self.dots[0].ratio.median if self.mean is None else self.mean

    @property
    def text(self) -> str:
        if self.mean is not None:
            return f"mean {factor(self.mean)}"
        return f"{MARK * self.dots[0].noisy}{self.dots[0].ratio}"


class Plot(NamedTuple):
    """The lanes of one operation in one setting with one baseline; the lanes of a problem are sorted, fastest first."""

    op: str
    setting: Setting
    baseline: str
    lanes: list[Lane]
    note: str

    @property
    def dots(self) -> list[Dot]:
        return [dot for lane in self.lanes for dot in lane.dots]

    @property
    def range(self) -> tuple[float, float]:
        """Return the axis ends: they enclose 1 and the whiskers between half the least median and twice the largest."""
        medians, spans = [1.0, *(dot.ratio.median for dot in self.dots)], [dot.span for dot in self.dots]
        low = max(min(low for low, _ in spans), min(medians) / 2)
        high = min(max(high for _, high in spans), max(medians) * 2)
        return min(1.0, low) / 1.06, max(1.0, high) * 1.06

    @property
    def caption(self) -> str:
        """Return the caption: the setting, the legend, and remarks on cut or omitted parts."""
        low, high = self.range
        cut = any(dot.span[0] < low or dot.span[1] > high for dot in self.dots)
        parts = (f"{self.setting.title}.", WHISKERS, "Long ones are cut at the edge." * cut, self.note)
        return " ".join(filter(None, parts))


def plots(data: RunData) -> list[Plot]:
    """Return a plot for each operation, setting and baseline: one of each operation, then a second of each, and so on.

    Operations with the longest problems come first: if a run has many small problems and a large one, the large one
    matters most.
    """
    longest_s: dict[str, float] = defaultdict(float)
    groups: dict[tuple[str, Setting, str], list[Result]] = defaultdict(list)
    for c in data.contests:
        op = c.op
        longest_s[op] = max(longest_s[op], c.fastest.time_s_median or 0.0)
        by_baseline = grouped((r for r in c.ranked if 0 < (r.speedup or 0.0) < math.inf), lambda r: r.baseline)
        for baseline, rows in by_baseline.items():  # by baseline first, since look-ups by setting are slow
            groups[op, c.setting, baseline] += rows
    ordered = sorted(groups.items(), key=lambda item: (-longest_s[item[0][0]], -len(item[1])))
    by_op = grouped((Plot(*key, *_lanes(rows)) for key, rows in ordered), lambda plot: plot.op)
    return [plot for nth in zip_longest(*by_op.values()) for plot in nth if plot]


def _lanes(rows: list[Result]) -> tuple[list[Lane], str]:
    problems = grouped(rows, lambda r: r.problem)
    if len(rows) + len(problems) <= MOST_LANES:
        names = figure_names(r.kernel for r in rows)
        return [
            Lane(problem, names[r.kernel], [_dot(r)], None)
            for problem, group in problems.items()
            for r in sorted(group, key=lambda r: -(r.speedup or 0.0))
        ], ""
    return _by_kernel(rows, len(problems))


def _dot(r: Result) -> Dot:
    return Dot(r.problem, r.kernel, speedup_of(r), is_noisy(r))


def _by_kernel(rows: list[Result], problems: int) -> tuple[list[Lane], str]:
    kernels = grouped(rows, lambda r: r.kernel)
    names = figure_names(kernels)
    lanes = []
    for kernel, group in kernels.items():
        mean = geometric_mean(r.speedup or 0.0 for r in group)
        lanes.append(Lane("", f"{names[kernel]} ({len(group)})", [*map(_dot, _thinned(group))], mean))
    lanes = sorted(lanes, key=lambda lane: -lane.middle)[:MOST_KERNELS]
    notes = [f"A dot for each of {problems} problems; the vertical stroke is their geometric mean."]
    notes += [f"The {MOST_KERNELS} fastest of {len(kernels)} kernels."] * (len(kernels) > MOST_KERNELS)
    most = max(map(len, kernels.values()))
    notes += [f"At most {MOST_DOTS} dots of a kernel are shown, evenly over the problems."] * (most > MOST_DOTS)
    return lanes, " ".join(notes)


def _thinned(rows: list[Result]) -> list[Result]:
    count = min(len(rows), MOST_DOTS)
    return [rows[i * len(rows) // count] for i in range(count)]


def speedups(data: RunData) -> style.Kind:
    """Return a figure for each plot of `plots`."""
    figures = [_figure(plot) for plot in plots(data)]
    return style.kind(TITLE, figures, "no row has a speedup: no kernel was measured in turn with a baseline", MOST)


def _figure(plot: Plot) -> style.Figure:
    return style.Figure(
        style.file_name("speedup", plot.op, *style.of_setting(plot.setting), "over", short(plot.baseline)),
        f"Speedup over {plot.baseline}",
        plot.caption,
        partial(_draw, plot),
        plot,
    )


def _draw(plot: Plot) -> style.Drawing:
    lines: list[Lane | str] = []
    for lane in plot.lanes:
        if lane.head and lane.head not in lines:
            lines.append(lane.head)
        lines.append(lane)
    figure, axes = style.panel(12 + 4.4 * len(lines), grid="x")
    low, high = plot.range
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.axvline(1, color=style.INK, linewidth=0.8)
    for y, line in enumerate(lines):
        if isinstance(line, Lane):
            _draw_number(axes, y, line)
        else:
            # At the edge of the figure, since an id may be as long as the figure is wide.
            place = figure.transSubfigure, axes.transData
            axes.annotate(short(line), (0.004, y), xycoords=place, va="center", weight="bold",
                          annotation_clip=False).set_in_layout(False)  # fmt: skip
    _draw_dots(axes, [(y, line) for y, line in enumerate(lines) if isinstance(line, Lane)])
    names = [(y, line.name) for y, line in enumerate(lines) if isinstance(line, Lane)]
    axes.set_yticks([y for y, _ in names], [name for _, name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    style.ticks(axes.xaxis, style.ratio_ticks(low, high))
    axes.set_xlabel(f"speed over {short(plot.baseline)}")
    return figure


def _draw_number(axes: style.Axes, y: int, lane: Lane) -> None:
    noisy = lane.mean is None and lane.dots[0].noisy
    text, place = f"{MARK * noisy}{factor(lane.middle)}", axes.get_yaxis_transform()
    axes.annotate(text, (1.01, y), xycoords=place, va="center", annotation_clip=False)
    if lane.mean is not None:
        axes.plot([lane.mean] * 2, [y - 0.4, y + 0.4], color=style.INK, linewidth=1.2)


def _draw_dots(axes: style.Axes, lanes: list[tuple[int, Lane]]) -> None:
    """Draw the dots of all lanes, with one plot call for dots of the same look: a call for each dot takes seconds."""
    alike: dict[tuple[str, bool, bool], list[tuple[float, Dot]]] = defaultdict(list)
    for y, lane in lanes:
        alone, count = lane.mean is None, len(lane.dots)
        for i, dot in enumerate(lane.dots):
            height = y + (0.0 if alone else 0.6 * ((i + 0.5) / count - 0.5))
            alike[style.SIDES.get(dot.ratio.side, style.GREY), dot.noisy, alone].append((height, dot))
    for (colour, noisy, alone), dots in alike.items():
        heights, spans = [height for height, _ in dots], [dot.span for _, dot in dots]
        width, alpha = (0.9, 1.0) if alone else (0.6, 0.5)
        axes.hlines(heights, *zip(*spans, strict=True), color=colour, linewidth=width, alpha=alpha)
        axes.plot([dot.ratio.median for _, dot in dots], heights, "o", color=colour,
                  markerfacecolor="none" if noisy else colour, markersize=3)  # fmt: skip
