"""The style of figures: the width of a paper's column, colours for the colour-blind, reproducible bytes."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from kernelmark.bench.report.contest import Ratio, Setting

#: Types of Matplotlib, as strings, since only drawing needs to import it.
Axes: TypeAlias = "matplotlib.axes.Axes"
Drawing: TypeAlias = "matplotlib.figure.Figure"


class Figure(NamedTuple):
    """A figure that can be drawn from the run's data. draw: is called after Matplotlib is set up.

    data: the contents of a figure that the report's page draws itself; None for other figures.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Drawing]
    data: Any = None


class Kind(NamedTuple):
    """The figures of one kind. omitted: why figures were left out, or ""."""

    title: str
    figures: list[Figure]
    omitted: str


def kind(title: str, figures: list[Figure], lacking: str, most: int) -> Kind:
    """Return the first `most` figures of a kind. lacking: why there is no figure, if `figures` is empty."""
    if not figures:
        return Kind(title, [], lacking)
    more = len(figures) - most
    return Kind(title, figures[:most], f"{more} more of this kind are left out" if more > 0 else "")


def of_setting(setting: "Setting") -> tuple[str, ...]:
    """Return the words for a setting in a file name."""
    return setting.device, f"t{setting.threads}", setting.mode, setting.precision, setting.isa, setting.order


def file_name(*words: object) -> str:
    """Return a file name such as `roofline-cpu-t2-fp32`, in lower case and safe for file systems and LaTeX."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, words)).lower()).strip("-")


MM = 1 / 25.4
#: The widths of one column and of both columns of a journal, in inches.
WIDTH, FULL_WIDTH = 85 * MM, 178 * MM
#: The palette of Okabe and Ito, "Color universal design", 2008, without yellow, which is illegible on white paper.
INK, GREY, GRID = "#1a1a1a", "#6e6e6e", "#d8d8d8"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
#: Colours of certain differences; ties are grey.
SIDES = {"faster": COLOURS[0], "slower": COLOURS[1]}
#: The replacements of colours in a dark colour scheme; the other colours are legible in both schemes.
DARK = {INK: "#e8e8e8", GREY: "#a9b0b6", GRID: "#3a4046", "#0072b2": "#3fa2e6", "#d55e00": "#ff8242"}
MARKERS = ("o", "s", "^", "D", "v", "P", "<", "X", ">")
HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "||||", "++++")
RC: dict[Any, Any] = {
    "font.size": 8,  # 11 pixels or more on a phone that shows a column 343 pixels wide
    "font.family": "DejaVu Sans",
    "axes.titlesize": "medium",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "patch.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "grid.linewidth": 0.4,
    "grid.color": GRID,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "text.parse_math": False,  # a name with two dollar signs is not a formula
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.02,
    "figure.constrained_layout.w_pad": 0.02,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "kernelmark",
    "savefig.transparent": True,
    "figure.dpi": 200,
}
_SUPERSCRIPT = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


class Look(NamedTuple):
    """The colour, marker and hatch of a kernel in every figure of a report."""

    colour: str
    marker: str
    hatch: str


def look(i: int) -> Look:
    """Return the i-th look; looks repeat when they run out."""
    return Look(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], HATCHES[i % len(HATCHES)])


def looks(kernels: Iterable[str]) -> dict[str, Look]:
    """Return a look for each kernel, assigned in the order of ids, so that all figures of a run use the same."""
    return {kernel: look(i) for i, kernel in enumerate(sorted(set(kernels)))}


def panel(height_mm: float, width: float = WIDTH, grid: Literal["", "x", "y", "both"] = "") -> tuple[Drawing, Axes]:
    """Return an empty figure with one plot, one column wide or of another width in inches.

    grid: the axes whose ticks have lines across the plot: `x`, `y` or `both`.
    """
    figure = canvas(height_mm, width)
    axes = figure.subplots()
    if grid:
        axes.grid(axis=grid)
    return figure, axes


def canvas(height_mm: float, width: float = WIDTH) -> Drawing:
    """Return a figure without plots, one column wide or of another width in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height_mm * MM))


class Label(NamedTuple):
    """A text to write to the right of a point, and the look of this point's marker."""

    x: float
    y: float
    text: str
    look: Look


def label_right(axes: Axes, labels: Sequence[Label]) -> None:
    """Write labels with markers in the right margin, without overlap, each with a thin line to its point."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # lays out the figure, so that transData gives final positions
    box, apart = axes.get_window_extent(), 9.4 * axes.figure.dpi / 72
    ordered = sorted(labels, key=lambda label: label.y)
    wanted = [float(axes.transData.transform((label.x, label.y))[1]) for label in ordered]
    placed = spread_apart(wanted, apart, float(box.y0), max(float(box.y1), float(box.y0) + apart * len(labels)))
    whole, free = axes.transAxes, dict[str, Any](annotation_clip=False)
    for (x, y, text, look), at in zip(ordered, placed, strict=True):
        height = (at - float(box.y0)) / float(box.height)
        arrow = {"arrowstyle": "-", "color": look.colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
        axes.annotate("", (x, y), (1.03, height), textcoords=whole, arrowprops=arrow, **free)
        axes.plot([1.05], [height], look.marker, color=look.colour, transform=whole, clip_on=False)
        axes.annotate(text, (1.075, height), xycoords=whole, va="center", **free)


def mark_points(
    axes: Axes, xs: Sequence[float], ys: Sequence[float], look: Look, noisy: Sequence[bool], size: float = 3.5
) -> None:
    """Draw the markers of a line; markers of disturbed rows are hollow."""
    for hollow in (False, True):
        points = [(x, y) for x, y, is_noisy in zip(xs, ys, noisy, strict=True) if is_noisy == hollow]
        fill = "none" if hollow else look.colour
        at = [x for x, _ in points], [y for _, y in points]
        axes.plot(*at, look.marker, color=look.colour, markerfacecolor=fill, markersize=size)


def ends(middle: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the ends of an interval for error bars; a missing end, or one at infinity, equals the middle."""
    return min(middle, low if low and low > 0 else middle), max(middle, high if high and high < math.inf else middle)


def errors(ratios: Sequence["Ratio"]) -> list[list[float]]:
    """Return the distances of the medians to the lower and to the upper ends of their error bars."""
    return [[abs(ratio.median - ends(*ratio[:3])[side]) for ratio in ratios] for side in range(2)]


def line(axes: Axes, points: Sequence[tuple[float, "Ratio", bool]], text: str, look: Look, joined: str = "-") -> Label:
    """Draw ratios with their intervals, and return the label of the line that joins them.

    points: each ratio's x, the ratio, and whether it was measured under noise (drawn hollow). joined: the line's style.
    """
    xs, ratios, noisy = zip(*points, strict=True)
    ys = [ratio.median for ratio in ratios]
    axes.errorbar(xs, ys, yerr=errors(ratios), color=look.colour, elinewidth=0.6, linestyle=joined)
    mark_points(axes, xs, ys, look, noisy)
    return Label(xs[-1], ys[-1], text, look)


def spread_apart(wanted: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Return ascending positions near the wanted ones, at least `least` apart, within low and high if possible."""
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, placed[-1] + least if placed else low))
    limit = high
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - least
    return placed


def ticks(axis: Any, values: Sequence[float]) -> None:
    """Set the ticks of a logarithmic axis to these values only.

    Labels are plain text, since Matplotlib takes as long to lay out formulas as for the rest of a figure.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([_number(value) for value in values])


def _number(value: float) -> str:
    exponent = math.floor(math.log10(value) + 1e-9)
    if -3 <= exponent <= 4:
        return f"{value:g}"
    mantissa = value / 10.0**exponent
    times = "" if abs(mantissa - 1) < 1e-6 else f"{mantissa:g}\N{MULTIPLICATION SIGN}"
    return f"{times}10{str(exponent).translate(_SUPERSCRIPT)}"


def log_ticks(axes: Axes) -> None:
    """Label both logarithmic axes with round numbers within their limits."""
    ticks(axes.xaxis, round_ticks(*axes.get_xlim()))
    ticks(axes.yaxis, round_ticks(*axes.get_ylim()))


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return ticks for ratios around 1: equally spaced ones in a narrow range, otherwise those of `round_ticks`."""
    if high / low < 3:
        step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / s <= 6)
        return [round(1 + i * step, 4) for i in range(-int((1 - low) / step), int((high - 1) / step) + 1)]
    return round_ticks(low, high)


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers for ticks of a logarithmic axis, as many as fit."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    room = (high / low) ** 0.15
    inside: list[float] = []
    for mantissas, step in (((1, 1.5, 2, 3, 5, 7), 1), ((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), 3)):
        inside = [m * 10.0**e for e in exponents for m in mantissas if e % step == 0 and low <= m * 10.0**e <= high]
        if all(large / small >= room for small, large in pairwise(inside)):
            break
    return inside


def save(figure: Drawing, stem: Path, pdf: bool) -> str:
    """Write `STEM.svg`, which follows the reader's colour scheme, and `STEM.pdf` if wanted; return the SVG.

    A PDF takes several times as long, since it embeds the glyphs that it uses. The PDF of an earlier figure is removed.
    """
    file, other = stem.with_suffix(".svg"), stem.with_suffix(".pdf")
    figure.savefig(file, metadata={"Date": None})
    other.unlink(missing_ok=True)
    if pdf:
        figure.set_layout_engine("none")  # the layout has been computed
        figure.savefig(other, metadata={"CreationDate": None})
    head, tag, body = file.read_text(encoding="utf-8").partition("<defs>")
    colours = ((part, light, dark) for light, dark in DARK.items() for part in ("fill", "stroke"))
    rules = "".join(f'[style*="{part}: {light}"]{{{part}:{dark}!important}}' for part, light, dark in colours)
    svg = f"{head}<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n {tag}{body}"
    file.write_text(svg, encoding="utf-8")
    return svg
