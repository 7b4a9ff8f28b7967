"""Ratios of variants by the swept size: NT over NN, in place over out of place, FFT over direct."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

from kernelmark.bench.report.contest import Setting, by_setting, grouped, why_unranked
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import figure_names
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import Dims, RunData, variant, work
from kernelmark.bench.report.variants import VariantPair, variant_pairs

MOST, MOST_KERNELS, LEAST_SIZES = 4, 8, 2
TITLE = "Ratios of variants"
#: The sizes that may label the axis, in order of preference.
_SWEPT = ("r", "n", "m", "k", "c", "h", "w", "b", "batch")


class RatioLines(NamedTuple):
    """Kernels' ratios between two variants, with positions on the axis. total: the number of kernels, shown or not."""

    setting: Setting
    axis: str
    kernels: dict[str, list[tuple[float, VariantPair]]]
    total: int

    @property
    def first(self) -> VariantPair:
        return next(iter(self.kernels.values()))[0][1]


def ratio_lines(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each kind of variant with at least two sizes, those with the most ratios first."""
    pairs = {id(pair.row): pair for pair in variant_pairs(r for r in data.timed if not why_unranked(r))}
    groups: dict[tuple[object, ...], list[VariantPair]] = defaultdict(list)
    for setting, rows in by_setting([pair.row for pair in pairs.values()], data.threaded).items():
        for pair in (pairs[id(r)] for r in rows):
            groups[pair.row.op, variant(pair.row.problem), pair.names, setting].append(pair)
    lines = [ratio_places(data, key[-1], group) for key, group in groups.items()]  # type: ignore[arg-type]  # the setting is last
    lines = [each for each in lines if each.kernels]
    lines.sort(key=lambda each: -sum(map(len, each.kernels.values())))
    lacking = f"no kernel has {LEAST_SIZES} sizes of a problem on which two variants were measured in turn"
    return style.kind(TITLE, [_figure(each, looks) for each in lines], lacking, MOST)


def ratio_places(data: RunData, setting: Setting, pairs: Sequence[VariantPair]) -> RatioLines:
    """Return the ratios of kernels measured at several sizes; pairs of two kernels only if no pair is of one kernel."""
    axis = _axis([data.dims_of[pair.row.problem] for pair in pairs])
    preferred = [pair for pair in pairs if not pair.by] or pairs
    size, dims_of = axis.partition(" ")[0], data.dims_of
    placed = ((float(dims_of[pair.row.problem][size]) if axis else work(pair.row), pair) for pair in preferred)
    by_kernel = grouped(placed, lambda each: each[1].row.kernel)
    several = {k: sorted(v, key=lambda each: each[0]) for k, v in by_kernel.items() if len(v) >= LEAST_SIZES}
    ranked = sorted(several, key=lambda k: (-len(several[k]), fmean(p.row.time_s_median or 0.0 for _, p in several[k])))
    return RatioLines(setting, axis, {kernel: several[kernel] for kernel in ranked[:MOST_KERNELS]}, len(several))


def _axis(dims: Sequence[Dims]) -> str:
    """Return the size on the axis: `r` if it differs, the only one that differs, equal ones (`m = n = k`), or ""."""
    several = [axis for axis in _SWEPT if len({str(sizes.get(axis)) for sizes in dims}) > 1]
    if len(several) == 1 or several[:1] == ["r"]:
        return several[0]
    square = len(several) > 1 and all(len({sizes.get(axis) for axis in several}) == 1 for sizes in dims)
    return " = ".join(sorted(several, key="mnk".find)) if square else ""


def _figure(lines: RatioLines, looks: dict[str, style.Look]) -> style.Figure:
    first = lines.first
    name, other = first.names
    by = ", each by its fastest kernel" if first.by else " by the same kernel"
    shown = f" {len(lines.kernels)} of {lines.total} kernels." * (len(lines.kernels) < lines.total)
    about = (first.row.op, f"{name}-over-{other}", variant(first.row.problem))
    return style.Figure(
        style.file_name("ratio", *about, *style.of_setting(lines.setting)),
        f"{name} over {other}: {first.row.op} {variant(first.row.problem)}",
        f"{lines.setting.title}. Speed on {name} over speed on {other}{by}, from samples taken in turn; below 1, "
        f"{name} is slower. Whiskers: the 95 % interval. Hollow: measured under noise.{shown}",
        partial(_draw, lines, looks),
    )


def _draw(lines: RatioLines, looks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(58, grid="both")
    labels, spans = [], [1.0]
    names = figure_names(lines.kernels)
    for kernel, pairs in lines.kernels.items():
        points = [(x, pair.ratio, is_noisy(pair.row)) for x, pair in pairs]
        labels.append(style.line(axes, points, names[kernel], looks[kernel]))
        spans += [end for _, ratio, _ in points for end in style.ends(*ratio[:3])]
    low, high = 0.97 * min(spans), 1.03 * max(spans)
    axes.set(xscale="linear" if lines.axis == "r" else "log", yscale="log", ylim=(low, high))
    axes.set(xlabel=_axis_name(lines), ylabel=f"{lines.first.names[0]} over {lines.first.names[1]}")
    axes.axhline(1.0, color=style.GREY, linestyle="--", linewidth=0.8)
    style.ticks(axes.yaxis, style.ratio_ticks(low, high))
    places = sorted({x for pairs in lines.kernels.values() for x, _ in pairs})
    if not lines.axis:  # round numbers of work, whose labels need more room
        places = style.round_ticks(*axes.get_xlim())
    style.ticks(axes.xaxis, places[:: 1 + len(places) // (9 if lines.axis else 4)])
    style.label_right(axes, labels)
    return figure


def _axis_name(lines: RatioLines) -> str:
    if not lines.axis:
        return "nominal FLOP of the problem" if lines.first.row.gflop_per_s else "bytes moved"
    return "filter r x s" if lines.axis == "r" else lines.axis
