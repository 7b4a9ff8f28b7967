"""Heat map of an operation: problems x kernels, each time divided by the fastest kernel's."""

import math
from functools import partial
from statistics import geometric_mean
from typing import NamedTuple

from kernelmark.bench.report.contest import Contest, Setting, grouped, slowdowns
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import digits, figure_names, seconds
from kernelmark.bench.report.noise import marked
from kernelmark.bench.report.pivot import labelled
from kernelmark.bench.report.run_data import RunData

TITLE = "Problems x kernels"
MOST, MOST_PROBLEMS, MOST_KERNELS, LEAST_PROBLEMS = 8, 24, 10, 2
LINES = {"wins": "-", "ties": (0, (2, 2))}
#: The slowdown at which a cell has its darkest colour.
SLOWEST = 8.0


class SlowdownMap(NamedTuple):
    """The contests of an operation in one setting, and the kernels shown, best first. note: a remark on omissions."""

    op: str
    setting: Setting
    contests: list[Contest]
    kernels: list[str]
    note: str

    @property
    def caption(self) -> str:
        """Return the caption, which explains the cells and gives the setting."""
        note = f" {self.note}" if self.note else ""
        shared, _ = self.labels
        alike = f"{self.op}, {shared}; " if shared else ""
        return (
            f"{alike}{self.setting.title}. "
            "Outlined: the fastest, with its time. Dashed: kernels in a tie for the fastest. "
            f"Others: time over the fastest time; darker is slower. ~: measured under noise. Empty: no time.{note}"
        )

    @property
    def labels(self) -> tuple[str, list[str]]:
        """Return the common part of the problems' ids, and the rest of each."""
        return labelled([c.problem for c in self.contests])

    def cell(self, c: Contest, kernel: str) -> "HeatCell | None":
        """Return the cell of a problem and a kernel, or None without a time."""
        if (r := c.of(kernel)) is None:
            return None
        first, slowdown = r is c.fastest, c.slowdown(r)
        ratio = c.lead if first else c.faster(c.fastest, r)
        certain = ratio is None or ratio.side == "faster"
        outline = ("wins" if certain else "ties") if first or not certain else ""
        return HeatCell(slowdown, marked(seconds(r.time_s_median) if first else f"{digits(slowdown)}x", r), outline)


class HeatCell(NamedTuple):
    """A kernel's slowdown. text: the slowdown, or the fastest kernel's time; outline: `wins`, `ties`, or ""."""

    slowdown: float
    text: str
    outline: str

    @property
    def darkness(self) -> int:
        """Return the darkness of the cell on the page in per cent, proportional to the logarithm of the slowdown."""
        return round(100 * math.log(min(max(self.slowdown, 1.0), SLOWEST)) / math.log(SLOWEST))


def maps(data: RunData) -> list[SlowdownMap]:
    """Return a map for each operation, setting and baseline with two problems or more, the largest first."""
    groups = grouped(data.contests, lambda c: (c.op, c.setting, max(r.baseline for r in c.ranked)))
    several = [_map(op, setting, group) for (op, setting, _), group in groups.items() if len(group) >= LEAST_PROBLEMS]
    return sorted((m for m in several if len(m.kernels) > 1), key=lambda m: -len(m.contests))


def _map(op: str, setting: Setting, contests: list[Contest]) -> SlowdownMap:
    longest = sorted(contests, key=lambda c: -(c.fastest.time_s_median or 0.0))[:MOST_PROBLEMS]
    shown = [c for c in contests if any(c is contest for contest in longest)]
    relative = slowdowns(shown)
    kernels = sorted(relative, key=lambda kernel: (-len(relative[kernel]), geometric_mean(relative[kernel])))
    notes = [f"The {len(shown)} of {len(contests)} problems that take longest."] * (len(shown) < len(contests))
    notes += [f"{MOST_KERNELS} of {len(kernels)} kernels."] * (len(kernels) > MOST_KERNELS)
    return SlowdownMap(op, setting, shown, kernels[:MOST_KERNELS], " ".join(notes))


def heat_maps(data: RunData) -> style.Kind:
    """Return a figure for each map of `maps`."""
    lacking = f"no two kernels have times for {LEAST_PROBLEMS} problems of an operation"
    return style.kind(TITLE, [_figure(m) for m in maps(data)], lacking, MOST)


def _figure(m: SlowdownMap) -> style.Figure:
    name = style.file_name("problems", m.op, *style.of_setting(m.setting))
    return style.Figure(name, f"Problems x kernels: {m.op}", m.caption, partial(_draw, m), m)


def _draw(m: SlowdownMap) -> style.Drawing:
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    figure, axes = style.panel(14 + 4.4 * len(m.contests), style.FULL_WIDTH)
    cells = [[m.cell(c, kernel) for kernel in m.kernels] for c in m.contests]
    values = np.array([[min(cell.slowdown, SLOWEST) if cell else np.nan for cell in row] for row in cells])
    axes.imshow(values, cmap="Oranges", aspect="auto", norm=LogNorm(1, 2 * SLOWEST))
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell:
                axes.text(j, i, cell.text, ha="center", va="center", color="black", fontsize=6.5)
            if cell and cell.outline:
                box, line = (j - 0.46, i - 0.42), LINES[cell.outline]
                axes.add_patch(Rectangle(box, 0.92, 0.84, fill=False, edgecolor="#000000", linewidth=1, linestyle=line))
    names = (name.replace(".", ".\n", 1) for name in figure_names(m.kernels).values())
    axes.set_xticks(range(len(m.kernels)), [name.replace("@", "@\n").replace(",", ",\n") for name in names])
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(m.contests)), m.labels[1])
    axes.tick_params(length=0, colors=style.INK, labelsize=6.5)
    axes.spines[:].set_visible(False)
    return figure
