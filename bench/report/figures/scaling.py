"""The computed speedup of data parallelism, in per cent of linear speedup, by workers: a line per strategy."""

from contextlib import suppress
from functools import partial

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Setting
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import short, size
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.scaling import Point, Scaling, ScalingQuestion, ScalingSection, compared, computed

MOST, TITLE = 4, "Data parallelism"
#: Workers and link of a report's figures: PCIe 3.0 of a K80, as Shi and others state it.
WORKERS, LINK_BYTES_PER_S = (1, 2, 4, 8, 16, 96), 8e9


def scaling_of_run(data: RunData, registry: Registry | None) -> style.Kind:
    """Return the figures of each network for which the run has times of layers and aggregations."""
    figures: list[style.Figure] = []
    for network in dict.fromkeys(layer.network for layer in data.store.layers(data.run_id)) if registry else ():
        # A separate connection, since `computed` hides other rows. UsageError: layers or aggregations have no times.
        with Store(data.store.path, create=False) as store, suppress(UsageError):
            question = ScalingQuestion(network, WORKERS, LINK_BYTES_PER_S)
            figures += _figures(computed(store, registry, question, data.run_id, data.run_id))  # type: ignore[arg-type]
    lacking = "a run must time all layers of a network, and an aggregation; `kernelmark scaling` joins two runs"
    return style.kind(TITLE, figures, lacking, MOST)


def scaling_figures(scaling: Scaling) -> style.Kind:
    """Return a figure for each setting with at least two numbers of workers."""
    return style.kind(TITLE, _figures(scaling), "one number of workers makes no line; `--workers 1,2,4` does", MOST)


def _figures(scaling: Scaling) -> list[style.Figure]:
    marks = style.looks(point.kernel for section in scaling.sections for point in section.points)
    several = [s for s in scaling.sections if len({point.workers for point in s.points}) > 1]
    return [_figure(scaling, section, marks) for section in several]


def _figure(scaling: Scaling, section: ScalingSection, marks: dict[str, style.Look]) -> style.Figure:
    setting: Setting = section.setting
    runs = " and ".join(dict.fromkeys((scaling.compute_run, scaling.aggregation_run)))
    noise = " Hollow: from rows measured under noise." * any(_noisy(section, point) for point in section.points)
    return style.Figure(
        style.file_name("scaling", scaling.question.network, *style.of_setting(setting)),
        f"Data parallelism, computed: {scaling.question.network}",
        f"{setting.title}. Computed from the rows of {runs} and a link "
        f"of {size(round(scaling.question.link_bytes_per_s))}/s, not measured. Whiskers: from the ends of the rows' "
        f"intervals. Dashed: linear. Black bars: published speedups.{noise}",
        partial(_draw, section, marks),
    )


def _draw(section: ScalingSection, marks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(62, grid="y")
    axes.set(xlabel="workers", ylabel="speedup, % of linear", xscale="log")
    labels = []
    for kernel in dict.fromkeys(point.kernel for point in section.points):
        curve = sorted((p for p in section.points if p.kernel == kernel), key=lambda point: point.workers)
        points = [(point.workers, point.speedup.scaled(100 / point.workers), _noisy(section, point)) for point in curve]
        labels.append(style.line(axes, points, short(kernel), marks[kernel]))
    axes.axhline(100, color=style.GREY, linestyle="--", linewidth=0.8, zorder=0)
    for stated, _ in compared(section.points):
        if stated.low is not None and stated.high is not None:
            ends = [100 * stated.low / stated.workers - 1, 100 * stated.high / stated.workers + 1]
            axes.plot([stated.workers] * 2, ends, color=style.INK, linewidth=2.2, zorder=3)
    axes.set_ylim(bottom=0)
    style.ticks(axes.xaxis, sorted({point.workers for point in section.points}))
    style.label_right(axes, labels)
    return figure


def _noisy(section: ScalingSection, point: Point) -> bool:
    return any(map(is_noisy, (*section.batch.rows, point.row)))
