"""Figures of all samples of a problem's kernels, relative to each kernel's median."""

from functools import partial

from kernelmark.bench.report.contest import Contest, grouped
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import figure_names, seconds
from kernelmark.bench.report.noise import marked
from kernelmark.bench.report.run_data import RunData, work

MOST, MOST_KERNELS, LEAST = 6, 12, 6


def distributions(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each operation, of its largest problem with enough samples."""
    by_op = grouped((c for c in data.contests if c.fastest.samples >= LEAST), lambda c: c.op)
    largest = (max(contests, key=lambda c: (work(c.fastest), len(c.ranked))) for contests in by_op.values())
    figures = [_figure(data, c, looks) for c in largest]
    return style.kind("Distribution of samples", figures, f"no row has {LEAST} samples", MOST)


def _figure(data: RunData, c: Contest, looks: dict[str, style.Look]) -> style.Figure:
    shown = f" The {MOST_KERNELS} fastest of {len(c.ranked)} kernels." * (len(c.ranked) > MOST_KERNELS)
    return style.Figure(
        style.file_name("samples", c.op, *style.of_setting(c.setting)),
        f"Distribution of samples: {c.problem}",
        f"{c.setting.title}. Each point is a sample over the median of its kernel, from the first (top) to "
        "the last (bottom); none is left out. Whiskers: the 95 % interval of the median. ~: measured under "
        f"noise.{shown}",
        partial(_draw, data, c, looks),
    )


def _draw(data: RunData, c: Contest, looks: dict[str, style.Look]) -> style.Drawing:
    import numpy as np

    rows = c.ranked[:MOST_KERNELS]
    figure, axes = style.panel(13 + 6.0 * len(rows), grid="x")
    axes.set_xscale("log")
    low, high = 0.98, 1.02
    for y, r in enumerate(rows):
        median, look = r.time_s_median or 1.0, looks[r.kernel]
        values = np.asarray(data.store.samples(r.run_id, r.case)) / median
        heights = y + np.linspace(-0.36, 0.2, len(values))
        axes.plot(values, heights, look.marker, color=look.colour, markersize=2, alpha=0.5, markeredgewidth=0,
                  rasterized=len(values) > 1000)  # fmt: skip
        interval = [end / median for end in style.ends(median, r.time_s_ci95_low, r.time_s_ci95_high)]
        axes.plot(interval, [y + 0.32] * 2, "|-", color=style.INK, linewidth=0.9, markersize=3)
        axes.plot([1, 1], [y - 0.38, y + 0.38], color=style.INK, linewidth=0.8)
        low, high = min(low, *values, *interval), max(high, *values, *interval)
    axes.set_xlim(low / 1.01, high * 1.01)
    names = figure_names(r.kernel for r in rows)
    axes.set_yticks(range(len(rows)), [f"{names[r.kernel]}\n{marked(seconds(r.time_s_median), r)}" for r in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    style.ticks(axes.xaxis, style.ratio_ticks(low, high))
    axes.set_xlabel("sample over its kernel's median")
    return figure
