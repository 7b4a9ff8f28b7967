"""Regret as a figure: how much slower than the oracle each way to choose is, over the share of the shapes."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.report.figures.plan import Figure, Kind, file_name, kind
from bench.report.figures.style import (
    COLOURS,
    GREY,
    HATCHES,
    MARKERS,
    Label,
    Look,
    label_right,
    panel,
    ratio_ticks,
    ticks,
)
from bench.tune.select.model import Model
from bench.tune.select.regret import Lost

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

TITLE = "Regret of a selector"


def regret_figure(model: Model, lost: Sequence[Lost]) -> Kind:
    """Return the figure of what was held out."""
    figure = Figure(
        file_name("regret", model.op, model.device, f"t{model.threads}", model.mode, model.precision),
        f"{TITLE}: {model.op}",
        f"{model.subject}. Time over the oracle's on shapes that were held out ({model.regret.held_out}), each line in "
        "its own order, the least first. The oracle was chosen by half of the processes and timed by the others."
        + (f" {model.regret.noise}." if model.regret.noise else ""),
        partial(_draw, lost),
    )
    return kind(TITLE, [figure], "", 1)


def _draw(lost: Sequence[Lost]) -> "Drawing":
    figure, axes = panel(62)
    axes.set(xlabel="share of the shapes, %", ylabel="time over the oracle's", yscale="log", xlim=(0, 100))
    labels = []
    for i, each in enumerate(lost):
        look = Look(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], HATCHES[i % len(HATCHES)])
        slowdowns = np.sort(np.exp(each.logs[~np.isnan(each.logs)]))
        shares = 100 * np.arange(1, len(slowdowns) + 1) / len(slowdowns)
        axes.step(shares, slowdowns, where="pre", color=look.colour)
        labels.append(Label(100.0, float(slowdowns[-1]), each.way, look))
    axes.axhline(1, color=GREY, linestyle="--", linewidth=0.8, zorder=0)
    ticks(axes.yaxis, ratio_ticks(*axes.get_ylim()))
    axes.grid(axis="y")
    label_right(axes, labels)
    return figure
