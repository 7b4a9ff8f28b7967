"""Figures of the speedup of each way to sum a network's gradients over a sum by one host thread."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Ratio, faster, grouped, is_fair
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import count, short
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.strategies import strategy_name

TITLE = "Aggregation of gradients"
SUITE, OP, BASELINE, MOST = "aggregation", "aggregate", "host_serial", 3
#: The heights of a lane and of each mark in it, in millimetres.
LANE_MM, MARK_MM = 3.0, 1.3
#: The share of a lane over which the marks of its kernels are spread, so that whiskers do not overlap.
SPREAD = 0.7


class NetworkLane(NamedTuple):
    """A lane of the figure: for the gradients of one network, the speedup of each kernel over the baseline."""

    name: str
    elements: int
    ratios: list[tuple[Result, Ratio]]


def aggregations(data: RunData, registry: Registry | None) -> style.Kind:
    """Return a figure for each device, mode and number of workers that has times for two sets of gradients or more."""
    names = _names(registry)
    summed = (r for r in data.timed if r.op == OP and is_fair(r))
    groups = grouped(summed, lambda r: (r.device_name, r.mode, r.isa, data.dims_of[r.problem]["w"]))
    figures = []
    for (device, mode, isa, workers), rows in groups.items():
        lanes = list(_lanes(data, grouped(rows, lambda r: r.problem), names))
        if len(lanes) > 1:
            figures.append(_figure(", ".join(filter(None, (device, isa, mode))), workers, lanes))
    lacking = f"fewer than two sets of gradients were summed in several ways; `kernelmark run {SUITE}` measures more"
    return style.kind(TITLE, figures, lacking, MOST)


def _names(registry: Registry | None) -> dict[str, str]:
    if registry is None or OP not in registry.operations:
        return {}
    return {entry.problem.id: entry.network for entry in find_suite(SUITE, registry).entries()}


def _lanes(data: RunData, problems: dict[str, list[Result]], names: dict[str, str]) -> Iterable[NetworkLane]:
    """Yield a lane for each set of gradients summed by the baseline and another kernel, in order of size."""
    for problem, rows in sorted(problems.items(), key=lambda item: data.dims_of[item[0]]["n"]):
        base = next((r for r in rows if strategy_name(r.kernel) in (BASELINE, f"cuda.{BASELINE}")), None)
        others = [r for r in rows if r is not base]
        if base and others:
            name, n = names.get(problem) or problem.partition("/")[2], data.dims_of[problem]["n"]
            yield NetworkLane(name, n, [(r, faster(data.store, r, base)) for r in others])


def _figure(where: str, workers: int, lanes: Sequence[NetworkLane]) -> style.Figure:
    threads = max(r.threads for lane in lanes for r, _ in lane.ratios)
    on_cpu = all(r.device == "cpu" for lane in lanes for r, _ in lane.ratios)
    what = "only additions, no transfers" if on_cpu else "additions, and transfers between these GPUs or over PCIe"
    won = "; ".join(f"{lane.name}: {_winner(lane)}" for lane in lanes)
    return style.Figure(
        style.file_name("aggregation", where, f"w{workers}"),
        f"Aggregation: the gradients of {workers} workers",
        f"{where}, {count(threads, 'thread')}. Speedup over one thread that adds all gradients in one pass "
        f"({BASELINE}). Timed: {what}. Kernels that compress also keep a residual. Fastest: {won}. "
        "Whiskers: the 95 % interval. Hollow: measured under noise.",
        partial(_draw, lanes),
    )


def _winner(lane: NetworkLane) -> str:
    r, ratio = max(lane.ratios, key=lambda pair: pair[1].median)
    return f"{short(r.kernel)} {ratio}" if ratio.median > 1 else f"{BASELINE}, ahead of {short(r.kernel)} {ratio}"


def _draw(lanes: Sequence[NetworkLane]) -> style.Drawing:
    kernels = sorted({r.kernel for lane in lanes for r, _ in lane.ratios})
    marked = sum(LANE_MM + MARK_MM * len(lane.ratios) for lane in lanes)
    figure, axes = style.panel(14 + marked + 1.9 * len(kernels), grid="x")
    marks: dict[str, style.Look] = style.looks(kernels)
    for k, kernel in enumerate(kernels):
        shift = SPREAD * ((k + 0.5) / len(kernels) - 0.5)
        dots = [(i + shift, r, ratio) for i, lane in enumerate(lanes) for r, ratio in lane.ratios if r.kernel == kernel]
        xs, ys = [ratio.median for *_, ratio in dots], [y for y, *_ in dots]
        errors = style.errors([ratio for *_, ratio in dots])
        axes.errorbar(xs, ys, xerr=errors, fmt="none", ecolor=marks[kernel].colour, elinewidth=0.6)
        style.mark_points(axes, xs, ys, marks[kernel], [is_noisy(r) for _, r, _ in dots])
        axes.plot([], [], marks[kernel].marker, color=marks[kernel].colour, label=short(kernel))
    axes.axvline(1.0, color=style.GREY, linestyle="--", linewidth=0.8, zorder=0)
    axes.set(xscale="log", xlabel=f"times faster than {BASELINE}", ylim=(len(lanes) - 0.5, -0.5))
    axes.set_yticks(range(len(lanes)), [f"{lane.name}\n{lane.elements / 1e6:.3g} million" for lane in lanes])
    axes.tick_params(axis="y", length=0)
    style.ticks(axes.xaxis, style.round_ticks(*axes.get_xlim()))
    figure.legend(loc="outside lower center", ncols=2, handletextpad=0.2)
    return figure
