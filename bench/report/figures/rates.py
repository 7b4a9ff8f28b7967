"""GFLOP/s over size: a line for each kernel, for problems that differ only in their sizes."""

from functools import partial
from itertools import pairwise
from operator import le
from statistics import geometric_mean

from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Contest, Ratio, grouped, slowdowns
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import digits, figure_names, flop_unit, other_flop
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.pivot import measured
from kernelmark.bench.report.run_data import RunData, numbers, sizes, variant, work

MOST, MOST_KERNELS, LEAST_SIZES, MOST_SIZES = 4, 8, 3, 48
#: The least ratio of the largest to the smallest size; over a narrower range, rates hardly depend on the size.
LEAST_RANGE = 10.0


def rates(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each kind of problem with at least three sizes, those with the most sizes first."""
    by_kind = grouped(data.contests, lambda c: (c.op, variant(c.problem), c.setting))
    ranging = sorted(filter(_ranges, by_kind.values()), key=lambda contests: -len(contests))
    figures = [figure for contests in ranging if (figure := _figure(contests, looks))]
    lacking = f"no kernel has {LEAST_SIZES} sizes of a problem over a range of {LEAST_RANGE:g}x or more"
    return style.kind("Rate over size", figures, lacking, MOST)


def _ranges(contests: list[Contest]) -> bool:
    amounts = [work(c.fastest) for c in contests]
    return len(amounts) >= LEAST_SIZES and max(amounts) >= LEAST_RANGE * min(amounts) > 0


def _thinned(contests: list[Contest]) -> list[Contest]:
    steps = min(len(contests), MOST_SIZES) - 1
    return [contests[round(i * (len(contests) - 1) / steps)] for i in range(steps + 1)]


def _figure(given: list[Contest], looks: dict[str, style.Look]) -> style.Figure | None:
    contests = _thinned(sorted(given, key=lambda c: (work(c.fastest), c.problem)))
    every = slowdowns(contests)
    several = {kernel: values for kernel, values in every.items() if len(values) >= LEAST_SIZES}
    kernels = sorted(several, key=lambda k: (-len(several[k]), geometric_mean(several[k])))[:MOST_KERNELS]
    if not kernels:
        return None
    first = contests[0]
    shown = f" The {len(kernels)} fastest of {len(every)} kernels." * (len(kernels) < len(every))
    shown += f" {len(contests)} of {len(given)} sizes." * (len(contests) < len(given))
    return style.Figure(
        style.file_name("rate", first.op, variant(first.problem), *style.of_setting(first.setting)),
        f"{'Rate' if first.fastest.gflop_per_s else 'Bandwidth'} over size: {first.op} {variant(first.problem)}",
        f"{first.setting.title}. Whiskers: the 95 % interval. Hollow: measured under noise.{shown}",
        partial(_draw, contests, kernels, looks),
    )


def _draw(contests: list[Contest], kernels: list[str], looks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(58, grid="both")
    moves, dims = not contests[0].fastest.gflop_per_s, [numbers(sizes(c.problem)) for c in contests]
    rows = [r for c in contests for r in c.ranked]
    name, unit = ("GB/s", 1.0) if moves else flop_unit(r.gflop_per_s for r in rows)
    is_square = contests[0].op == "gemm" and all(len(set(each)) == 1 for each in dims)
    places = [each[0] if is_square else work(c.fastest) for c, each in zip(contests, dims, strict=True)]
    # If any size shrinks from one point to the next, no line joins the points.
    joined = "-" if all(all(map(le, small, large)) for small, large in pairwise(dims)) else ""
    labels, names = [], figure_names(kernels)
    for kernel in kernels:
        sized = [(x, r) for x, c in zip(places, contests, strict=True) for r in c.ranked if r.kernel == kernel]
        points = [(x, (measured(r, "rate") or Ratio(0.0)).scaled(1 / unit), is_noisy(r)) for x, r in sized]
        labels.append(style.line(axes, points, names[kernel], looks[kernel], joined))
    size = "m = n = k" if is_square else "bytes moved" if moves else "nominal FLOP of the problem"
    axes.set(xscale="log", yscale="log", xlabel=size, ylabel=name)
    if not moves:
        _ceiling(axes, [r for r in rows if r.kernel in kernels], unit)
    style.log_ticks(axes)
    if is_square:
        values = sorted(set(places))
        style.ticks(axes.xaxis, values[:: 1 + len(values) // 9])
    style.label_right(axes, labels)
    return figure


def _ceiling(axes: style.Axes, shown: list[Result], unit: float) -> None:
    """Draw the ceiling if all rows shown have the same one and execute the nominal number of operations."""
    rates = {r.ceiling_gflop_per_s for r in shown}
    if len(rates) == 1 and None not in rates and not any(map(other_flop, shown)):
        rate = (rates.pop() or 0.0) / unit
        axes.axhline(rate, color=style.GREY, linestyle="--", linewidth=0.8)
        text, place = f"ceiling {digits(rate)}", ("axes fraction", "data")
        axes.annotate(text, (0.02, rate), xycoords=place, va="bottom", color=style.GREY)
