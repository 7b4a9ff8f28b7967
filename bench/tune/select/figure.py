"""Figures of a selector: the regret of each way to choose, sorted by shape, and a map of its choices."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.report.figures import style, winners
from kernelmark.bench.report.figures.winners import Panel, Spot, is_map, most_places
from kernelmark.bench.tune.select.answer import choice
from kernelmark.bench.tune.select.model import Model
from kernelmark.bench.tune.select.regret import PolicyLosses

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

TITLE, CHOSEN_TITLE = "Regret of a selector", "Choice of a selector"


def regret_figure(model: Model, lost: Sequence[PolicyLosses]) -> style.Kind:
    """Return the figure of regret on the held-out problems."""
    figure = style.Figure(
        style.file_name("regret", model.op, model.device, f"t{model.threads}", model.mode, model.precision),
        f"{TITLE}: {model.op}",
        f"{model.subject}. Time over the oracle's on shapes that were held out ({model.regret.held_out}), each line in "
        "its own order, the least first. The oracle was chosen by half of the processes and timed by the others."
        + (f" {model.regret.noise}." if model.regret.noise else ""),
        partial(_draw, lost),
    )
    return style.kind(TITLE, [figure], "", 1)


def _draw(lost: Sequence[PolicyLosses]) -> "Drawing":
    figure, axes = style.panel(62)
    axes.set(xlabel="share of the shapes, %", ylabel="time over the oracle's", yscale="log", xlim=(0, 100))
    labels = []
    for i, each in enumerate(lost):
        look = style.look(i)
        slowdowns = np.sort(np.exp(each.logs[~np.isnan(each.logs)]))
        shares = 100 * np.arange(1, len(slowdowns) + 1) / len(slowdowns)
        axes.step(shares, slowdowns, where="pre", color=look.colour)
        labels.append(style.Label(100.0, float(slowdowns[-1]), each.way, look))
    axes.axhline(1, color=style.GREY, linestyle="--", linewidth=0.8, zorder=0)
    style.ticks(axes.yaxis, style.ratio_ticks(*axes.get_ylim()))
    axes.grid(axis="y")
    style.label_right(axes, labels)
    return figure


def choice_figures(model: Model, registry: Registry) -> style.Kind:
    """Return a figure per direction and storage of convolutions: the selector's choice and the measured winners."""
    tails: dict[str, dict[tuple[int, int], list[tuple[Any, str]]]] = defaultdict(lambda: defaultdict(list))
    for measured in model.measured if model.op == "conv" else ():
        problem: Any = registry.problem(measured.problem)
        tails[problem.id.split("/", 2)[2]][problem.r, problem.s].append((problem, measured.fastest))
    figures = []
    for tail, filters in tails.items():
        panels = most_places(_panel(model, registry, own) for _, own in sorted(filters.items()))
        figures += [_choice_figure(model, tail, panels)] if is_map(panels) else []
    return style.kind(CHOSEN_TITLE, figures, winners.LACKING, winners.MOST)


def _panel(model: Model, registry: Registry, measured: Sequence[tuple[Any, str]]) -> Panel:
    """Return the panel of one filter; the selector is asked for problems like that with the median of k."""
    like = sorted((problem for problem, _ in measured), key=lambda p: (p.k, p.id))[len(measured) // 2]
    spots = [Spot(problem.c, sqrt(problem.h * problem.w), fastest) for problem, fastest in measured]
    return Panel(f"{like.r}x{like.s} (n = {like.n}, k = {like.k})", spots, partial(_chosen, model, registry, like))


def _chosen(model: Model, registry: Registry, like: Any, channels: Array, sides: Array) -> list[str]:
    """Return the choice for each pair of channels and side; "" where there is no such problem, or none takes it."""
    names = []
    for c, side in zip(channels.astype(int).tolist(), sides.astype(int).tolist(), strict=True):
        try:
            problem = msgspec.structs.replace(like, c=c, h=side, w=side)
            names.append(choice(model, problem, registry)[1])
        except (ValueError, UsageError):  # the filter is larger than the image, for one
            names.append("")
    return names


def _choice_figure(model: Model, tail: str, panels: list[Panel]) -> style.Figure:
    return style.Figure(
        style.file_name("choice", tail, model.device, f"t{model.threads}", model.mode, model.precision),
        f"{CHOSEN_TITLE}: convolution, {tail}",
        f"{model.subject}. Tint: the kernel that the selector chooses, for the batch n and the filters k above the "
        "panel. Each mark is a problem of the training and shows its fastest kernel by the mean over processes; marks "
        "that stand side by side differ in n or k.",
        partial(winners.draw, panels, style.looks(model.kernels)),
    )
