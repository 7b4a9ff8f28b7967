"""The time of each kernel on a problem over the runs of the store, with intervals and significant changes (steps)."""

from functools import partial

from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.report.contest import Ratio, grouped
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import short, unit
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.trend import TrendCase, trend

TITLE = "Over runs"
MOST, MOST_KERNELS, LEAST_RUNS = 4, 6, 3
#: The cases of a run with more rows are not searched for in other runs.
MOST_ROWS = 10_000
#: Times that differ by more than this factor get a logarithmic axis.
WIDE = 4


def trends(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each problem measured in at least three runs on this machine, the most changed ones first."""
    is_searched = len(data.rows) <= MOST_ROWS and len(data.store.run_ids()) >= LEAST_RUNS
    cases = trend(data.store, data.run_id, "", {r.problem for r in data.timed}).cases if is_searched else ()
    enough = (case for case in cases if len(case.points) >= LEAST_RUNS and case.points[-1].run_id == data.run_id)
    problems = grouped(enough, lambda case: case.problem)
    ordered = sorted(problems.items(), key=lambda pair: -max(len(case.steps) for case in pair[1]))
    figures = [_figure(problem, group, looks) for problem, group in ordered]
    return style.kind(TITLE, figures, "no case has three runs in the store up to this run", MOST)


def _figure(problem: str, cases: list[TrendCase], looks: dict[str, style.Look]) -> style.Figure:
    shown = sorted(cases, key=lambda case: (-len(case.steps), case.points[-1].time_s_median))[:MOST_KERNELS]
    steps = [f"{short(case.kernel)}: {step.words}." for case in shown for step in case.steps[-2:]]
    return style.Figure(
        style.file_name("trend", problem),
        f"Over runs: {problem}",
        f"{cases[0].device_name}. The median time of each run, in their order. Whiskers: the 95 % interval of the run. "
        f"Hollow: measured under noise. Dotted: a step between runs of several processes. {' '.join(steps)}",
        partial(_draw, shown, looks),
    )


def _draw(cases: list[TrendCase], looks: dict[str, style.Look]) -> style.Drawing:
    figure, axes = style.panel(52, grid="y")
    begun = sorted({(point.started_at, point.run_id) for case in cases for point in case.points})
    places = {run_id: at for at, (_, run_id) in enumerate(begun)}
    name, second = unit(max(point.time_s_median for case in cases for point in case.points))
    labels = []
    for case in cases:
        look = looks[case.kernel]
        times = [Ratio(p.time_s_median, p.time_s_ci95_low, p.time_s_ci95_high).scaled(1 / second) for p in case.points]
        points = [(places[p.run_id], time, was_noisy(p.disturbed)) for p, time in zip(case.points, times, strict=True)]
        labels.append(style.line(axes, points, short(case.kernel), look))
        for step in case.steps:
            axes.axvline(places[step.to] - 0.5, color=look.colour, linestyle=":", linewidth=0.8, zorder=0)
    every = max(1, len(begun) // 6)
    axes.set_xticks(range(0, len(begun), every), [at[:10] for at, _ in begun[::every]], rotation=30, ha="right")
    axes.set(ylabel=f"time in {name}")
    if axes.dataLim.y1 > WIDE * axes.dataLim.y0:
        axes.set_yscale("log")
        style.ticks(axes.yaxis, style.round_ticks(*axes.get_ylim()))
    style.label_right(axes, labels)
    return figure
