"""Crossover map of convolution algorithms: problems in the order of a suite's axis x kernels."""

from collections import defaultdict
from functools import partial
from statistics import geometric_mean
from typing import TYPE_CHECKING, NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.report.contest import Contest, slowdowns
from kernelmark.bench.report.figures.style import Figure, Kind, file_name, kind, of_setting, panel
from kernelmark.bench.report.format import short
from kernelmark.bench.report.run_data import RunData, work

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

LEAST_PROBLEMS, MOST_PROBLEMS, MOST_KERNELS, MOST = 3, 24, 14, 3
SLOWEST = 16.0
#: What may stand below a column: the axes that differ in a sweep, those of the filter first.
AXES = ("r", "s", "n", "c", "k", "h", "w")


class CrossoverMap(NamedTuple):
    """Contests from left to right, what each is called below its column, and the kernels from above."""

    contests: list[Contest]
    axis: str
    names: list[str]
    kernels: list[str]


def crossover_maps(data: RunData, registry: Registry | None) -> Kind:
    """Return a figure for each line of convolutions that differ in a size, not in direction, storage or setting."""
    found: dict[tuple[object, ...], list[Contest]] = defaultdict(list)
    for c in data.contests:
        if c.op == "conv" and len(c.ranked) > 1:
            dims = data.dims_of[c.problem]
            found[dims.get("direction"), c.fastest.layout, c.setting].append(c)
    along = _along(data, registry)
    maps = [_map(data, contests, along) for contests in found.values() if len(contests) >= LEAST_PROBLEMS]
    maps.sort(key=lambda m: -len(m.contests))
    lacking = f"fewer than {LEAST_PROBLEMS} convolutions of a kind have times of two algorithms"
    return kind("Crossover of convolution algorithms", [_figure(m) for m in maps], lacking, MOST)


def _along(data: RunData, registry: Registry | None) -> list[str]:
    names: list[str] = []
    for text in data.run.plan.get("suites") or data.run.suites if registry else ():
        try:
            names += [axis for sweep in find_suite(text, registry).sweeps for axis in sweep.along]  # type: ignore[arg-type]
        except UsageError:
            continue  # a suite's file that is no longer there: the sizes themselves say what differs
    return names


def _map(data: RunData, contests: list[Contest], along: list[str]) -> CrossoverMap:
    dims = {c.problem: data.dims_of[c.problem] for c in contests}
    differing = [axis for axis in AXES if len({str(d.get(axis)) for d in dims.values()}) > 1]
    axis = next((a for a in (*along, *differing) if a in differing), "")
    ordered = sorted(contests, key=lambda c: (dims[c.problem].get(axis, 0), work(c.fastest), c.problem))[:MOST_PROBLEMS]
    names = [_name(dims[c.problem], axis) for c in ordered]
    relative = slowdowns(ordered)
    wins = {kernel: sum(value == 1.0 for value in values) for kernel, values in relative.items()}
    kernels = sorted(relative, key=lambda k: (-wins[k], geometric_mean(relative[k])))[:MOST_KERNELS]
    return CrossoverMap(ordered, axis, names, kernels)


def _name(dims: dict[str, object], axis: str) -> str:
    if axis in ("r", "s"):
        return f"{dims['r']}x{dims['s']}"
    return str(dims.get(axis, ""))


def _axis_name(m: CrossoverMap) -> str:
    return {"r": "filter r x s", "s": "filter r x s", "": "problem"}.get(m.axis, m.axis)


def _figure(m: CrossoverMap) -> Figure:
    first = m.contests[0]
    storage = "/".join(first.problem.split("/")[2:])
    return Figure(
        file_name("crossover", storage, *of_setting(first.setting)),
        f"Crossover: convolution over {_axis_name(m)}, {storage}",
        f"{first.setting.title}. {_changes(m)} Times over that of the fastest, which is marked; darker is slower, and "
        "empty cells have no time.",
        partial(_draw, m),
    )


def _changes(m: CrossoverMap) -> str:
    turns, last = [], ""
    for contest, name in zip(m.contests, m.names, strict=True):
        kernel = contest.fastest.kernel
        if kernel != last:
            turns.append(f"{name}: {short(kernel)}")
            last = kernel
    if len(turns) > 6:
        return f"The fastest changes {len(turns) - 1} times over {len(m.contests)} problems."
    return "The fastest, from there on: " + "; ".join(turns) + "."


def _draw(m: CrossoverMap) -> "Drawing":
    import numpy as np
    from matplotlib.colors import LogNorm

    figure, axes = panel(24 + 4.2 * len(m.kernels))
    values = np.full((len(m.kernels), len(m.contests)), np.nan)
    for j, c in enumerate(m.contests):
        for r in c.ranked:
            if r.kernel in m.kernels:
                values[m.kernels.index(r.kernel), j] = min(c.slowdown(r), SLOWEST)
    image = axes.imshow(values, cmap="cividis_r", aspect="auto", norm=LogNorm(1, SLOWEST))
    for j, c in enumerate(m.contests):
        if c.fastest.kernel in m.kernels:
            axes.plot(j, m.kernels.index(c.fastest.kernel), "*", color="#B00020", markersize=4.5, markeredgewidth=0)
    every = 1 + len(m.names) // 17
    axes.set_xticks(range(0, len(m.names), every), m.names[::every], rotation=90)
    axes.set_yticks(range(len(m.kernels)), [short(kernel) for kernel in m.kernels])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(_axis_name(m))
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.08, ticks=[1, 2, 4, 8, 16])
    bar.ax.set_yticklabels(["1x", "2x", "4x", "8x", "16x+"])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    return figure
