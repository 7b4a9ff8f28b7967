"""Speeds of the tiles that a tuning run measured: a panel for each tunable, with the tunable's values on the axis."""

from functools import partial
from statistics import median

from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import count, rate, short
from kernelmark.bench.report.noise import is_noisy, noise_of
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tuning import Searched, TimedTile, searches

TITLE = "Speed by tunable"
MOST, MOST_PANELS, ABREAST = 6, 12, 2
#: The axis of speeds extends by this factor beyond the slowest and the fastest tile.
MARGIN = 1.15
#: How far dots and strokes reach to each side of their value; neighbouring values are 1 apart.
ASIDE, STROKE = 0.3, 0.36
LEGEND = (
    "A dot is a tile's speed relative to the default, sampled in turn; strokes: the best (blue) and the median (black) "
    "of a value; ring: the default; star: the fastest tile."
)


def tunables(data: RunData) -> style.Kind:
    """Return a figure for each problem on which a tuning run searched for tiles, in the order of the run's suite."""
    figures = [_figure(searched) for searched in searches(data.search) if searched.varied]
    return style.kind(TITLE, figures, "no tunable has two values that were timed", MOST)


def _figure(search: Searched) -> style.Figure:
    kernel, problem = search.tunes.kernel, search.space.problem
    names = list(search.varied)
    left_out = f" Left out: {', '.join(names[MOST_PANELS:])}." * (len(names) > MOST_PANELS)
    noise = noise_of(trial.row for trial in search.trials)
    quiet = f"{noise.sentence}; their dots are hollow." if noise.noisy else "No tile was measured under noise."
    return style.Figure(
        style.file_name("tunables", short(kernel), problem),
        f"{TITLE}: {short(kernel)} on {problem}",
        f"{count(len(search.trials), 'tile')}; 1x is the default, {rate(search.default)}. {LEGEND} {quiet}{left_out}",
        partial(_draw, search),
    )


def _draw(search: Searched) -> style.Drawing:
    names = list(search.varied)[:MOST_PANELS]
    abreast = min(ABREAST, len(names))
    rows = -(-len(names) // abreast)
    figure = style.canvas(6 + 46 * rows)
    panels = figure.subplots(rows, abreast, sharey=True, squeeze=False)
    speeds = [trial.ratio.median for trial in search.trials]
    low, high = min(1.0, *speeds) / MARGIN, max(1.0, *speeds) * MARGIN
    for i, axes in enumerate(panels.flat):
        if i >= len(names):
            axes.set_visible(False)
            continue
        _panel(axes, search, names[i])
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        style.ticks(axes.yaxis, style.ratio_ticks(low, high))
        axes.set_ylabel("speed, default = 1" if i % abreast == 0 else "")
    return figure


def _panel(axes: style.Axes, search: Searched, name: str) -> None:
    values = search.varied[name]
    axes.axhline(1, color=style.GREY, linewidth=0.6, linestyle="--")
    axes.grid(axis="y")
    for x, value in enumerate(values):
        trials = search.at(name, value)
        _dots(axes, x, trials)
        speeds = [trial.ratio.median for trial in trials]
        for speed, colour in ((median(speeds), style.INK), (max(speeds), style.COLOURS[0])):
            axes.plot([x - STROKE, x + STROKE], [speed, speed], color=colour, linewidth=1.4, solid_capstyle="butt")
    best = search.trials[0]
    axes.plot(values.index(best.tile[name]), best.ratio.median, "*", color=style.COLOURS[1], markersize=7)
    default = next(trial for trial in search.trials if trial.row is search.default)
    axes.plot(values.index(default.tile[name]), 1, "o", color=style.COLOURS[1], markerfacecolor="none", markersize=6.5)
    axes.set_xticks(range(len(values)), [str(value) for value in values])
    axes.set(xlim=(-0.6, len(values) - 0.4), xlabel=name)


def _dots(axes: style.Axes, x: float, trials: list[TimedTile]) -> None:
    """Draw the tiles with one value of a tunable as dots side by side, sorted by speed; disturbed rows are hollow."""
    step = 2 * ASIDE / max(1, len(trials) - 1)
    for i, trial in enumerate(trials):
        fill = "none" if is_noisy(trial.row) else style.GREY
        aside = -ASIDE + i * step if len(trials) > 1 else 0.0
        axes.plot(x + aside, trial.ratio.median, "o", color=style.GREY, markerfacecolor=fill, markersize=2.4,
                  markeredgewidth=0.5)  # fmt: skip
