"""Map of the fastest convolution algorithms by channels and image side, in a panel per filter."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import sqrt
from typing import NamedTuple

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.report.contest import Setting, grouped
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import count, short
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData

TITLE = "Which algorithm where"
#: The fewest different pairs of channels and side for a map.
LEAST_PLACES, MOST_PANELS, MOST = 8, 4, 3
AXES = ("c", "h", "w", "r", "s")
#: Larger than any real size; only a damaged store has larger sizes.
MOST_SIZE = 2**31
LACKING = f"fewer than {LEAST_PLACES} pairs of channels and image side have times of two kernels"
#: The points along each axis at which a selector chooses; the factor between marks whose channels and side coincide.
STEPS, APART = 32, 1.13


class Spot(NamedTuple):
    """A measured problem and its fastest kernel. certain: whether this kernel is certainly faster than the next."""

    channels: int
    side: float
    kernel: str
    certain: bool = True
    noisy: bool = False


class Panel(NamedTuple):
    """The problems of one filter size. chosen: the selector, a function that chooses kernels by channels and side."""

    title: str
    spots: list[Spot]
    chosen: Callable[[Array, Array], list[str]] | None = None

    @property
    def places(self) -> int:
        """Return the number of different pairs of channels and side in the panel."""
        return len({(spot.channels, spot.side) for spot in self.spots})


def winner_maps(data: RunData, looks: dict[str, style.Look]) -> style.Kind:
    """Return a figure for each direction, storage and setting with convolutions of many shapes."""
    spots: dict[tuple[str, Setting], dict[tuple[int, ...], list[Spot]]] = defaultdict(lambda: defaultdict(list))
    for c, lead in data.leads:
        if c.op != "conv":
            continue
        dims = [data.dims_of[c.problem].get(name) for name in AXES]
        sizes = [size for size in dims if isinstance(size, int) and 0 < size <= MOST_SIZE]
        if len(sizes) == len(AXES):
            channels, h, w, *taps = sizes
            spot = Spot(channels, sqrt(h * w), c.fastest.kernel, lead.side == "faster", is_noisy(c.fastest))
            spots["/".join(c.problem.split("/")[2:]), c.setting][tuple(taps)].append(spot)
    figures = []
    for (storage, setting), filters in spots.items():
        panels = most_places(Panel(f"{r}x{s}", filters[r, s]) for r, s in sorted(filters))
        figures += [_figure(storage, setting, panels, looks)] if is_map(panels) else []
    return style.kind(TITLE, figures, LACKING, MOST)


def is_map(panels: Iterable[Panel]) -> bool:
    """Return whether the panels have enough pairs of channels and side to show where another kernel takes over."""
    return sum(panel.places for panel in panels) >= LEAST_PLACES


def most_places(panels: Iterable[Panel]) -> list[Panel]:
    """Return the panels with the most pairs of channels and side, in their original order."""
    every = list(panels)
    chosen = sorted(range(len(every)), key=lambda i: -every[i].places)[:MOST_PANELS]
    return [every[i] for i in sorted(chosen)]


def _figure(storage: str, setting: Setting, panels: list[Panel], looks: dict[str, style.Look]) -> style.Figure:
    spots = [spot for panel in panels for spot in panel.spots]
    wins = Counter(spot.kernel for spot in spots if spot.certain)
    won = ", ".join(f"{short(kernel)} {often}" for kernel, often in wins.most_common())
    return style.Figure(
        style.file_name("winners", storage, *style.of_setting(setting)),
        f"{TITLE}: convolution, {storage}",
        f"{setting.title}. Each mark is a problem and shows its fastest kernel, a panel for each filter. Certain "
        f"wins: {won or 'none'}, of {count(len(spots), 'problem')}. Grey: a tie with the next; hollow: measured under "
        "noise.",
        partial(draw, panels, looks),
    )


def draw(panels: Sequence[Panel], looks: dict[str, style.Look]) -> style.Drawing:
    """Draw the panels, two per row, above a legend of their kernels."""
    across = min(2, len(panels))
    rows = -(-len(panels) // across)
    figure = style.canvas(14 + 42 * rows)
    every = figure.subplots(rows, across, squeeze=False, sharex=True, sharey=True).ravel()
    shown: list[str] = []
    for i, (axes, panel) in enumerate(zip(every, panels, strict=False)):
        shown += _borders(axes, panel, looks) if panel.chosen else []
        shown += _spots(axes, panel, looks)
        axes.set_title(panel.title)
        if i % across == 0:
            axes.set_ylabel("side of the image")
        if i + across >= len(panels):
            axes.set_xlabel("channels")
            axes.tick_params(labelbottom=True)
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    spots = [spot for panel in panels for spot in panel.spots]
    across_all, down_all = _around([spot.channels for spot in spots]), _around([spot.side for spot in spots])
    every[0].set(xscale="log", yscale="log", xlim=across_all, ylim=down_all)
    style.ticks(every[0].xaxis, _powers(*every[0].get_xlim()))
    style.ticks(every[0].yaxis, _powers(*every[0].get_ylim()))
    for kernel in sorted(set(shown)):
        every[0].plot([], [], looks[kernel].marker, color=looks[kernel].colour, label=short(kernel))
    figure.legend(loc="outside lower center", ncols=2, handletextpad=0.2)
    return figure


def _around(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.3, max(values) * 1.3


def _powers(low: float, high: float) -> list[float]:
    inside = [2.0**e for e in range(32) if low <= 2**e <= high]
    return inside[:: 1 + len(inside) // 6]


def _spots(axes: style.Axes, panel: Panel, looks: dict[str, style.Look]) -> list[str]:
    """Draw one mark per problem, spread apart where channels and image side coincide; return the kernels."""
    marks: dict[tuple[str, bool], list[tuple[float, float, bool]]] = defaultdict(list)
    for spots in grouped(panel.spots, lambda spot: (spot.channels, spot.side)).values():
        for i, spot in enumerate(spots):
            x = spot.channels * APART ** (i - (len(spots) - 1) / 2)
            marks[spot.kernel, spot.certain].append((x, spot.side, spot.noisy))
    for (kernel, certain), points in marks.items():
        look = looks[kernel] if certain else looks[kernel]._replace(colour=style.GREY)
        xs, ys, noisy = zip(*points, strict=True)
        style.mark_points(axes, xs, ys, look, noisy)
    return [kernel for kernel, _ in marks]


def _borders(axes: style.Axes, panel: Panel, looks: dict[str, style.Look]) -> list[str]:
    """Tint and outline the region in which the panel's selector chooses each kernel; return the chosen kernels."""
    import numpy as np

    assert panel.chosen is not None, "only a panel with a selector has borders"
    low, high = _around([spot.channels for spot in panel.spots])
    channels = np.unique(np.geomspace(max(low, 1), high, STEPS).round())
    sides = np.unique(np.geomspace(*_around([spot.side for spot in panel.spots]), STEPS).round())
    x, y = np.meshgrid(channels, sides)
    chosen = np.array(panel.chosen(x.ravel(), y.ravel())).reshape(x.shape)
    kernels = sorted(set(chosen.ravel().tolist()) - {""})
    for kernel in kernels:
        inside = (chosen == kernel).astype(float)
        axes.contourf(x, y, inside, levels=[0.5, 1.5], colors=[looks[kernel].colour], alpha=0.15)
        if len(kernels) > 1:
            axes.contour(x, y, inside, levels=[0.5], colors=[style.INK], linewidths=0.5)
    return kernels
