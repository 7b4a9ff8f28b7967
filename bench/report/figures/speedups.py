"""Speedups over the baseline as bars from 1, with their intervals."""

import math
from collections import Counter, defaultdict
from functools import partial
from statistics import geometric_mean
from typing import TYPE_CHECKING, NamedTuple

from bench.record.result import Result
from bench.report.contest import Contest, speedup_of
from bench.report.figures.plan import Figure, Kind, file_name, kind, of_setting
from bench.report.figures.style import Look, panel, ratio_ticks, ticks
from bench.report.format import factor, short
from bench.report.run_data import RunData, ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST, MOST_BARS, MOST_KERNELS = 8, 26, 14


class Bar(NamedTuple):
    """A speedup, or the geometric mean of several with the smallest and the largest."""

    kernel: str
    name: str
    middle: float
    low: float
    high: float


def speedups(data: RunData, looks: dict[str, Look]) -> Kind:
    """Return a figure for each operation and setting: a bar a row, or a bar a kernel where that would be too many."""
    found: dict[tuple[object, ...], list[Contest]] = defaultdict(list)
    for contest in data.contests:
        if _compared(contest):
            found[contest.op, contest.setting].append(contest)
    figures = [_figure(contests, looks) for contests in _spread(list(found.values()))]
    return kind("Speedup", figures, "no row has a speedup: no kernel was measured in turn with a baseline", MOST)


def _spread(settings: list[list[Contest]]) -> list[list[Contest]]:
    """Return the setting with the most problems of each operation first, then the second of each, and so on."""
    rank: Counter[str] = Counter()
    keyed = []
    for contests in sorted(settings, key=len, reverse=True):
        keyed.append((rank[contests[0].op], contests))
        rank[contests[0].op] += 1
    return [contests for _, contests in sorted(keyed, key=lambda pair: pair[0])]


def _figure(contests: list[Contest], looks: dict[str, Look]) -> Figure:
    first = contests[0]
    bases = sorted({r.baseline for c in contests for r in _compared(c)})
    against = f"Speedup over {' or '.join(bases)}"
    groups = {c.problem: sorted(map(_bar, _compared(c)), key=lambda bar: -bar.middle) for c in contests}
    if sum(map(len, groups.values())) + len(groups) <= MOST_BARS:
        what = "Bars begin at 1 and end at the median of the ratios of samples taken in turn; whiskers: 95 % interval."
    else:
        groups, total = {"": _by_kernel(contests)}, len({r.kernel for c in contests for r in _compared(c)})
        what = f"Geometric means over {len(contests)} problems; whiskers: the smallest and the largest."
        what += f" The {MOST_KERNELS} fastest of {total} kernels." * (total > MOST_KERNELS)
    return Figure(
        file_name("speedup", first.op, *of_setting(first.setting)),
        f"Speedup: {first.op}, {first.setting.precision}",
        f"{first.setting.title}. {against}. {what}",
        partial(_draw, groups, looks, against),
    )


def _compared(c: Contest) -> list[Result]:
    return [r for r in c.ranked if 0 < (r.speedup or 0.0) < math.inf]


def _bar(r: Result) -> Bar:
    ratio = speedup_of(r)
    return Bar(r.kernel, short(r.kernel), ratio.median, *ends(*ratio[:3]))


def _by_kernel(contests: list[Contest]) -> list[Bar]:
    found: dict[str, list[float]] = defaultdict(list)
    for contest in contests:
        for r in _compared(contest):
            found[r.kernel].append(r.speedup or 0.0)
    bars = [
        Bar(kernel, f"{short(kernel)} ({len(values)})", geometric_mean(values), min(values), max(values))
        for kernel, values in found.items()
    ]
    return sorted(bars, key=lambda bar: -bar.middle)[:MOST_KERNELS]


def _draw(groups: dict[str, list[Bar]], looks: dict[str, Look], label: str) -> "Drawing":
    lines: list[Bar | str] = [line for head, bars in groups.items() for line in ([head] if head else []) + list(bars)]
    figure, axes = panel(12 + 4.1 * len(lines))
    bars = [line for line in lines if isinstance(line, Bar)]
    low, high = min(1.0, *(bar.low for bar in bars)) / 1.1, max(1.0, *(bar.high for bar in bars)) * 1.1
    axes.set_xscale("log")
    axes.set_xlim(low, high * (high / low) ** 0.16)
    for y, line in enumerate(lines):
        if isinstance(line, Bar):
            _draw_bar(axes, y, line, looks[line.kernel])
        else:
            axes.text(0, y, line, transform=axes.get_yaxis_transform(), va="center", fontsize=6.5, weight="bold")
    names = [(y, line.name) for y, line in enumerate(lines) if isinstance(line, Bar)]
    axes.set_yticks([y for y, _ in names], [name for _, name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    ticks(axes.xaxis, ratio_ticks(low, high))
    axes.grid(axis="x")
    axes.set_xlabel(label if len(label) < 60 else "Speedup over the baseline")
    return figure


def _draw_bar(axes: "Axes", y: int, bar: Bar, look: Look) -> None:
    axes.barh(
        y, bar.middle - 1, left=1, height=0.66, color=look.colour, alpha=0.55, hatch=look.hatch, edgecolor="white"
    )
    axes.errorbar([bar.middle], [y], xerr=[[bar.middle - bar.low], [bar.high - bar.middle]], color="black",
                  elinewidth=0.8, capsize=1.6, capthick=0.8)  # fmt: skip
    axes.plot([1, 1], [y - 0.5, y + 0.5], color="black", linewidth=0.8)
    right = max(bar.high, 1.0)
    axes.annotate(factor(bar.middle), (right, y), xytext=(2.5, 0), textcoords="offset points", va="center",
                  fontsize=6.5)  # fmt: skip
