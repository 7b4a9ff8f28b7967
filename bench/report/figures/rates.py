"""GFLOP/s over size: a line for each kernel, for problems that differ only in their sizes."""

from functools import partial
from itertools import pairwise
from operator import le
from statistics import geometric_mean
from typing import NamedTuple

from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Contest, Ratio, grouped, slowdowns, time_of
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import digits, figure_names, flop_unit, other_flop
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData, numbers, sizes, variant, work

MOST, MOST_KERNELS, LEAST_SIZES, MOST_SIZES = 4, 8, 3, 48
#: The least ratio of the largest to the smallest size; over a narrower range, rates hardly depend on the size.
LEAST_RANGE = 10.0


class Lines(NamedTuple):
    """Contests that differ only in size, smallest first, and the kernels to show. sizes: how many were measured."""

    contests: list[Contest]
    kernels: list[str]
    sizes: int

    @property
    def moves(self) -> bool:
        return not self.contests[0].fastest.gflop_per_s

    @property
    def unit(self) -> tuple[str, float]:
        """Return the unit of the rates and its value in GFLOP/s (or in GB/s): `("TFLOP/s", 1000.0)`."""
        return ("GB/s", 1.0) if self.moves else flop_unit(r.gflop_per_s for c in self.contests for r in c.ranked)

    @property
    def one_dimensional(self) -> bool:
        """Return whether no size shrinks from one point to the next. If one shrinks, no line joins the points."""
        dims = [numbers(sizes(c.problem)) for c in self.contests]
        return all(all(map(le, small, large)) for small, large in pairwise(dims))


def rates(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each kind of problem with at least three sizes, those with the most sizes first."""
    by_kind = grouped(data.contests, lambda c: (c.op, variant(c.problem), c.setting))
    lines = [_lines(contests) for contests in by_kind.values() if _ranges(contests)]
    lines = sorted((each for each in lines if each.kernels), key=lambda each: -each.sizes)
    lacking = f"no kernel has {LEAST_SIZES} sizes of a problem over a range of {LEAST_RANGE:g}x and more"
    return style.kind("Rate over size", [_figure(each, looks) for each in lines], lacking, MOST)


def _ranges(contests: list[Contest]) -> bool:
    amounts = [work(c.fastest) for c in contests]
    return len(amounts) >= LEAST_SIZES and max(amounts) >= LEAST_RANGE * min(amounts) > 0


def _lines(contests: list[Contest]) -> Lines:
    shown = _thinned(sorted(contests, key=lambda c: (work(c.fastest), c.problem)))
    several = {kernel: values for kernel, values in slowdowns(shown).items() if len(values) >= LEAST_SIZES}
    kernels = sorted(several, key=lambda k: (-len(several[k]), geometric_mean(several[k])))
    return Lines(shown, kernels[:MOST_KERNELS], len(contests))


def _thinned(contests: list[Contest]) -> list[Contest]:
    steps = min(len(contests), MOST_SIZES) - 1
    return [contests[round(i * (len(contests) - 1) / steps)] for i in range(steps + 1)]


def _figure(lines: Lines, looks: dict[str, style.Look]) -> style.Figure:
    first = lines.contests[0]
    every = {r.kernel for c in lines.contests for r in c.ranked}
    shown = f" The {len(lines.kernels)} fastest of {len(every)} kernels." * (len(lines.kernels) < len(every))
    shown += f" {len(lines.contests)} of {lines.sizes} sizes." * (len(lines.contests) < lines.sizes)
    return style.Figure(
        style.file_name("rate", first.op, variant(first.problem), *style.of_setting(first.setting)),
        f"{'Bandwidth' if lines.moves else 'Rate'} over size: {first.op} {variant(first.problem)}",
        f"{first.setting.title}. Whiskers: the 95 % interval. Hollow: measured under noise.{shown}",
        partial(_draw, lines, looks),
    )


def _draw(lines: Lines, looks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(58, grid="both")
    labels = []
    name, unit = lines.unit
    names = figure_names(lines.kernels)
    joined = "-" if lines.one_dimensional else ""
    for kernel in lines.kernels:
        sized = [(_size(lines, c), r) for c in lines.contests for r in c.ranked if r.kernel == kernel]
        points = [(x, _rate(r).scaled(1 / unit), is_noisy(r)) for x, r in sized]
        labels.append(style.line(axes, points, names[kernel], looks[kernel], joined))
    axes.set(xscale="log", yscale="log", xlabel=_size_name(lines), ylabel=name)
    _ceiling(axes, lines)
    style.log_ticks(axes)
    if _square(lines):
        values = sorted({_size(lines, c) for c in lines.contests})
        style.ticks(axes.xaxis, values[:: 1 + len(values) // 9])
    style.label_right(axes, labels)
    return figure


def _rate(r: Result) -> Ratio:
    work = (r.gflop_per_s or r.gbyte_per_s or 0.0) * (r.time_s_median or 0.0)
    return Ratio(work, work, work).over(time_of(r))


def _ceiling(axes: style.Axes, lines: Lines) -> None:
    """Draw the ceiling if all rows shown execute the nominal operations under the same ceiling."""
    shown = [r for c in lines.contests for r in c.ranked if r.kernel in lines.kernels]
    rates = {r.ceiling_gflop_per_s for r in shown}
    if len(rates) == 1 and None not in rates and not lines.moves and not any(map(other_flop, shown)):
        rate = (rates.pop() or 0.0) / lines.unit[1]
        axes.axhline(rate, color=style.GREY, linestyle="--", linewidth=0.8)
        text, place = f"ceiling {digits(rate)}", ("axes fraction", "data")
        axes.annotate(text, (0.02, rate), xycoords=place, va="bottom", color=style.GREY)


def _square(lines: Lines) -> bool:
    return all(len(set(numbers(sizes(c.problem)))) == 1 for c in lines.contests) and lines.contests[0].op == "gemm"


def _size(lines: Lines, contest: Contest) -> float:
    if _square(lines):
        return numbers(sizes(contest.problem))[0]
    return work(contest.fastest)


def _size_name(lines: Lines) -> str:
    if _square(lines):
        return "m = n = k"
    return "bytes moved" if lines.moves else "nominal FLOP of the problem"
