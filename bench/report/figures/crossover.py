"""Crossover map of convolution algorithms: a row for each kernel, a column for each problem along a suite's axis."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import geometric_mean
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import Suite, find_suite
from kernelmark.bench.report.contest import Contest, grouped, slowdowns
from kernelmark.bench.report.crossover import Change, changes, listed
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.figures.heat import SlowdownMap
from kernelmark.bench.report.format import count, short
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData, work

LEAST_PROBLEMS, MOST_PROBLEMS, MOST_KERNELS, MOST, MOST_CHANGES = 3, 24, 14, 3, 4
SLOWEST = 16.0
#: Axes that may label the columns if their values differ, the filter's first.
AXES = ("r", "s", "n", "c", "k", "h", "w")
#: The marks of certain winners and of ties; red is legible in every cell.
MARKS = {"wins": style.Look("#B00020", "*", ""), "ties": style.Look("#B00020", "o", "")}
NO_SUITE = "No suite of the run sweeps these problems, so takeovers are not determined."


def crossover_maps(data: RunData, registry: Registry | None) -> style.Kind:
    """Return a figure for each setting and kind of convolution (direction, distribution, layout)."""
    dims = data.dims_of
    kinds = grouped(
        (c for c in data.contests if c.op == "conv" and len(c.ranked) > 1),
        lambda c: (*map(dims[c.problem].get, ("direction", "distribution")), c.fastest.layout, c.setting),
    )
    several = [contests for contests in kinds.values() if len(contests) >= LEAST_PROBLEMS]
    several.sort(key=lambda contests: -min(len(contests), MOST_PROBLEMS))
    suites = list(_suites(data, registry)) if several else []
    figures = [_figure(data, contests, suites) for contests in several]
    lacking = f"fewer than {LEAST_PROBLEMS} convolutions of a kind have times of two algorithms"
    return style.kind("Crossover of convolution algorithms", figures, lacking, MOST)


def _suites(data: RunData, registry: Registry | None) -> Iterator[Suite]:
    """Yield the suites of the run, each with only its sweeps of convolutions."""
    for text in data.run.plan.get("suites") or data.run.suites if registry else ():
        try:
            suite = find_suite(text, registry)  # type: ignore[arg-type]
            sweeps = tuple(sweep for sweep in suite.sweeps if sweep.problem_class.op == "conv")
            yield listed(msgspec.structs.replace(suite, sweeps=sweeps))
        except UsageError:
            continue  # without the suite's file, sizes that differ determine the axis


def _figure(data: RunData, contests: list[Contest], suites: Sequence[Suite]) -> style.Figure:
    dims = {c.problem: data.dims_of[c.problem] for c in contests}
    along = [axis for suite in suites for sweep in suite.sweeps for axis in sweep.along]
    differing = [axis for axis in AXES if len({str(d.get(axis)) for d in dims.values()}) > 1]
    axis = next((a for a in (*along, *differing) if a in differing), "")
    every = sorted(contests, key=lambda c: (dims[c.problem].get(axis, 0), work(c.fastest), c.problem))
    ordered = every[:MOST_PROBLEMS]
    names = _names([dims[c.problem] for c in ordered], axis, differing)
    relative = slowdowns(ordered)
    wins = {kernel: sum(c.fastest.kernel == kernel for c in ordered) for kernel in relative}
    kernels = sorted(relative, key=lambda k: (-wins[k], geometric_mean(relative[k])))[:MOST_KERNELS]
    turns = [turn for suite in suites for turn in changes(suite, contests) if turn.along == axis]
    said = _turns(axis, turns) if axis in along else NO_SUITE
    first = ordered[0]
    storage = "/".join(first.problem.split("/")[2:])
    cut = f" The first {len(ordered)} of {len(every)} problems." if len(every) > len(ordered) else ""
    over = {"r": "filter r x s", "s": "filter r x s", "": "problem"}.get(axis, axis)
    return style.Figure(
        style.file_name("crossover", storage, *style.of_setting(first.setting)),
        f"Crossover: convolution over {over}, {storage}",
        f"{first.setting.title}. Lines: takeovers, after which another kernel is the fastest; two lines if ties lie "
        f"between. {said} Stars: certainly the fastest; dots: ties for the first place; hollow: measured under "
        f"noise. Cells: time over the fastest time; darker is slower, and empty cells have no time.{cut}",
        partial(_draw, SlowdownMap("conv", first.setting, ordered, kernels, ""), names, over, turns),
    )


def _names(every: Sequence[dict[str, Any]], axis: str, differing: Sequence[str]) -> list[str]:
    """Return each problem's value of the axis or, if two values are equal, its values of all axes that differ."""
    names = [f"{dims['r']}x{dims['s']}" if axis in ("r", "s") else str(dims.get(axis, "")) for dims in every]
    if len(set(names)) < len(names):
        return [" ".join(f"{name}{dims[name]}" for name in differing if name in dims) for dims in every]
    return names


def _turns(axis: str, turns: Sequence[Change]) -> str:
    """Return a sentence on the takeovers, in the words of `kernelmark crossover`."""
    if not turns:
        return f"No takeover along {axis} is certain."
    if len(turns) > MOST_CHANGES:
        return f"{count(len(turns), 'takeover')} along {axis} are certain; `kernelmark crossover` lists them."
    takeovers = (f"{turn.here} to {turn.there}, {short(turn.old)} gives way to {short(turn.new)}" for turn in turns)
    return f"Certain takeovers along {axis}: {'; '.join(takeovers)}."


def _draw(m: SlowdownMap, names: list[str], over: str, turns: Sequence[Change]) -> style.Drawing:
    import numpy as np
    from matplotlib.colors import LogNorm

    figure, axes = style.panel(20 + 4.2 * len(m.kernels) + 1.6 * max(map(len, names)))  # labels are vertical
    values = [[c.slowdown(r) if (r := c.of(kernel)) else np.nan for c in m.contests] for kernel in m.kernels]
    image = axes.imshow(np.clip(values, 1.0, SLOWEST), cmap="cividis_r", aspect="auto", norm=LogNorm(1, SLOWEST))
    _mark(axes, m, turns if len(set(names)) == len(names) else ())  # no lines if labels repeat
    every = 1 + len(names) // 17
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=90)
    axes.set_yticks(range(len(m.kernels)), [short(kernel) for kernel in m.kernels])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("problem" if " " in names[0] else over)
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.08, ticks=[1, 2, 4, 8, 16])
    bar.ax.set_yticklabels(["1x", "2x", "4x", "8x", "16x+"])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    return figure


def _mark(axes: style.Axes, m: SlowdownMap, turns: Sequence[Change]) -> None:
    """Mark winners and ties, and draw a line at each side of a takeover."""
    for outline, look in MARKS.items():
        places = [
            (j, i, is_noisy(row))
            for j, c in enumerate(m.contests)
            for i, kernel in enumerate(m.kernels)
            if (cell := m.cell(c, kernel)) and cell.outline == outline and (row := c.of(kernel))
        ]
        if places:
            xs, ys, noisy = zip(*places, strict=True)
            style.mark_points(axes, xs, ys, look, noisy, size=5)
    at = {c.problem: place for place, c in enumerate(m.contests)}
    for turn in turns:
        if turn.before.problem in at and turn.after.problem in at:
            for x in {at[turn.before.problem] + 0.5, at[turn.after.problem] - 0.5}:
                axes.axvline(x, color="#000000", linewidth=1)
