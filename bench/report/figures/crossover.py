"""Crossover map of convolution algorithms: a row for each kernel, a column for each problem along a suite's axis."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import geometric_mean
from typing import Any, NamedTuple

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


class CrossoverMap(NamedTuple):
    """The contests from left to right, their labels, and the kernels from top to bottom.

    turns: the takeovers along the axis, as `kernelmark crossover` finds them; None if no suite sweeps the axis.
    left_out: the number of problems that are not shown.
    """

    contests: list[Contest]
    axis: str
    names: list[str]
    kernels: list[str]
    turns: list[Change] | None
    left_out: int


def crossover_maps(data: RunData, registry: Registry | None) -> style.Kind:
    """Return a figure for each setting and kind of convolution (direction, distribution, layout)."""
    dims = data.dims_of
    kinds = grouped(
        (c for c in data.contests if c.op == "conv" and len(c.ranked) > 1),
        lambda c: (*map(dims[c.problem].get, ("direction", "distribution")), c.fastest.layout, c.setting),
    )
    several = [contests for contests in kinds.values() if len(contests) >= LEAST_PROBLEMS]
    suites = list(_suites(data, registry)) if several else []
    maps = [_map(data, contests, suites) for contests in several]
    maps.sort(key=lambda m: -len(m.contests))
    lacking = f"fewer than {LEAST_PROBLEMS} convolutions of a kind have times of two algorithms"
    return style.kind("Crossover of convolution algorithms", [_figure(m) for m in maps], lacking, MOST)


def _suites(data: RunData, registry: Registry | None) -> Iterator[Suite]:
    """Yield the suites of the run, each with only its sweeps of convolutions."""
    for text in data.run.plan.get("suites") or data.run.suites if registry else ():
        try:
            suite = find_suite(text, registry)  # type: ignore[arg-type]
            sweeps = tuple(sweep for sweep in suite.sweeps if sweep.problem_class.op == "conv")
            yield listed(msgspec.structs.replace(suite, sweeps=sweeps))
        except UsageError:
            continue  # without the suite's file, the sizes themselves show what differs


def _map(data: RunData, contests: list[Contest], suites: Sequence[Suite]) -> CrossoverMap:
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
    return CrossoverMap(ordered, axis, names, kernels, turns if axis in along else None, len(every) - len(ordered))


def _names(every: Sequence[dict[str, Any]], axis: str, differing: Sequence[str]) -> list[str]:
    """Return each problem's value of the axis or, if two values are equal, its values of all axes that differ."""
    names = [f"{dims['r']}x{dims['s']}" if axis in ("r", "s") else str(dims.get(axis, "")) for dims in every]
    if len(set(names)) < len(names):
        return [" ".join(f"{name}{dims[name]}" for name in differing if name in dims) for dims in every]
    return names


def _axis_name(m: CrossoverMap) -> str:
    return {"r": "filter r x s", "s": "filter r x s", "": "problem"}.get(m.axis, m.axis)


def _figure(m: CrossoverMap) -> style.Figure:
    first = m.contests[0]
    storage = "/".join(first.problem.split("/")[2:])
    cut = f" The first {len(m.contests)} of {len(m.contests) + m.left_out} problems." if m.left_out else ""
    return style.Figure(
        style.file_name("crossover", storage, *style.of_setting(first.setting)),
        f"Crossover: convolution over {_axis_name(m)}, {storage}",
        f"{first.setting.title}. Lines: takeovers, after which another kernel is the fastest; two lines if ties lie "
        f"between. {_turns(m)} Stars: certainly the fastest; dots: ties for the first place; hollow: measured under "
        f"noise. Times over that of the fastest; darker is slower, and empty cells have no time.{cut}",
        partial(_draw, m),
    )


def _turns(m: CrossoverMap) -> str:
    """Return a sentence on the takeovers, in the words of `kernelmark crossover`."""
    if m.turns is None:
        return "No suite of the run sweeps these problems, so takeovers are not determined."
    if not m.turns:
        return f"No takeover along {m.axis} is certain."
    if len(m.turns) > MOST_CHANGES:
        return f"{count(len(m.turns), 'takeover')} along {m.axis} are certain; `kernelmark crossover` lists them."
    takeovers = (f"{turn.here} to {turn.there}, {short(turn.old)} gives way to {short(turn.new)}" for turn in m.turns)
    return f"Certain takeovers along {m.axis}: {'; '.join(takeovers)}."


def _draw(m: CrossoverMap) -> style.Drawing:
    import numpy as np
    from matplotlib.colors import LogNorm

    figure, axes = style.panel(20 + 4.2 * len(m.kernels) + 1.6 * max(map(len, m.names)))  # labels are vertical
    values = [[c.slowdown(r) if (r := c.of(kernel)) else np.nan for c in m.contests] for kernel in m.kernels]
    image = axes.imshow(np.clip(values, 1.0, SLOWEST), cmap="cividis_r", aspect="auto", norm=LogNorm(1, SLOWEST))
    _mark(axes, m)
    every = 1 + len(m.names) // 17
    axes.set_xticks(range(0, len(m.names), every), m.names[::every], rotation=90)
    axes.set_yticks(range(len(m.kernels)), [short(kernel) for kernel in m.kernels])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("problem" if " " in m.names[0] else _axis_name(m))
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.08, ticks=[1, 2, 4, 8, 16])
    bar.ax.set_yticklabels(["1x", "2x", "4x", "8x", "16x+"])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    return figure


def _mark(axes: style.Axes, m: CrossoverMap) -> None:
    """Mark winners and ties and, if no two columns have the same label, draw a line at each side of a takeover."""
    cells = SlowdownMap("conv", m.contests[0].setting, m.contests, m.kernels, "")
    for outline, look in MARKS.items():
        places = [
            (j, i, is_noisy(row))
            for j, c in enumerate(m.contests)
            for i, kernel in enumerate(m.kernels)
            if (cell := cells.cell(c, kernel)) and cell.outline == outline and (row := c.of(kernel))
        ]
        if places:
            xs, ys, noisy = zip(*places, strict=True)
            style.mark_points(axes, xs, ys, look, noisy, size=5)
    at = {c.problem: place for place, c in enumerate(m.contests)} if len(set(m.names)) == len(m.names) else {}
    for turn in m.turns or ():
        if turn.before.problem in at and turn.after.problem in at:
            for x in {at[turn.before.problem] + 0.5, at[turn.after.problem] - 0.5}:
                axes.axvline(x, color="#000000", linewidth=1)
