"""Format the output of `select`: the regret on held-out shapes, the answer for one problem, and plots of both."""

from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import REGISTRY, Registry
from kernelmark.bench.report.contest import grouped
from kernelmark.bench.report.figures import style, winners
from kernelmark.bench.report.figures.winners import Panel, Spot, is_map, most_places
from kernelmark.bench.report.format import count, factor, interval, percent, short
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.tune.select.model import WORTH, KernelChoice, Model, Share, choice, chosen
from kernelmark.bench.tune.select.train import LIBRARY, PolicyLosses

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WAYS = (
    TableColumn("way to choose"),
    TableColumn("of the oracle"),
    TableColumn("worst", "right"),
    TableColumn("right", "right", spare=1),
    TableColumn("problems", "right", spare=2),
    TableColumn("kernel", spare=3),
    TableColumn("worst on", spare=4),
)
CHOICES = (TableColumn("kernel"), TableColumn("problems", "right"), TableColumn("share", "right", spare=1))


def trained(model: Model) -> str:
    """Return the text on a trained selector: the scores of all ways to choose, the verdict, and the choices."""
    cost = model.regret
    head = paragraph(
        f"{model.subject}, from {' and '.join(model.runs)}: {count(len(model.measured), 'problem')}. Held out: "
        f"{cost.held_out}, {count(cost.problems, 'problem')} of {cost.families} families.",
        rest="",
    )
    lines = [
        (x.way, words(x.share), factor(x.worst), percent(x.right), str(x.problems), short(x.kernel), x.worst_problem)
        for x in cost.lines
    ]
    ways = table(WAYS, lines, titled=True)
    choices = [(name, str(of), percent(of / len(model.measured))) for name, of in chosen(model).items()]
    parts = [head, ways, *remarks(model), paragraph(verdict(model), rest="")]
    return "\n\n".join([*parts, table(CHOICES, choices, titled=True)])


def remarks(model: Model) -> list[str]:
    """Return remarks on the limits of the figures."""
    cost = model.regret
    parts = [cost.noise] if cost.noise else []
    if cost.processes < 2:
        parts.append(
            "Some rows have one process, whose samples choose and time the oracle's kernels, so the oracle looks too "
            "fast. `kernelmark run SUITE --processes 5` measures in several."
        )
    if REGISTRY.operations[model.op].features.libraries and not any(line.way == LIBRARY for line in cost.lines):
        parts.append("The library's own choice has no row in these runs; `kernelmark doctor` reports what is missing.")
    return [paragraph(part, "  ", "  ") for part in parts]


def verdict(model: Model) -> str:
    """Return the verdict: to use a selector, or a single kernel, and why."""
    cost = model.regret
    gap = f"the oracle is {words(cost.gap)} as fast as the best single kernel"
    if model.single and cost.gap.mean < WORTH:
        return f"Use {model.single}: {gap}; only a gap of {factor(WORTH)} or more is worth a selector."
    if model.single:
        return f"Use {model.single}: {gap}, but no selector is certainly faster ({words(cost.over_single)})."
    assert cost.recovered is not None, "a gap that is worth it is above 1"
    share = f"{percent(cost.recovered.mean)} {interval(cost.recovered.low, cost.recovered.high, percent)}"
    made = f"a tree of {len(model.leaves)} leaves"
    if model.formula:
        made = f"a quadratic formula of {count(len(model.formula.axes), 'logarithm')}"
    return f"Select: {gap}, and the selector, {made}, recovers {share} of this gap."


def words(share: Share) -> str:
    """Return the share with its interval: `0.98x [0.97, 0.99]`."""
    return factor(share.mean, share.low, share.high)


def answered(model: Model, answer: KernelChoice) -> str:
    """Return the choice for a problem, and its expected cost."""
    how = f"{words(answer.share)} the speed of the oracle, at worst {factor(answer.worst)}"
    where = "with the same choice" if model.formula else "of the same leaf"
    use = [f"on {count(answer.problems, 'held-out problem')} {where}, it has {how} ({model.subject})."]
    if model.single:
        every = "use it for every shape, since no choice is certainly better"
        use = [f"{every} ({model.subject}).", f"Held out, it has {how}."]
    nearest = "Nothing like it was measured."
    if answer.octaves is not None:
        far = "itself" if not answer.octaves else f"{answer.octaves:.2g} octaves away"
        nearest = f"The nearest measured shape is {answer.nearest} ({far}), where {answer.fastest} was fastest."
    parts = [f"{answer.problem}: {answer.kernel}", *use, nearest]
    if answer.outside:
        parts.append(f"OUTSIDE THE MEASURED RANGE: {'; '.join(answer.outside)}.")
    parts += [f"Passed over: {reason}." for reason in answer.refused]
    return "\n".join(paragraph(part, "  " * (i > 0), "    ") for i, part in enumerate(parts))


TITLE, CHOSEN_TITLE = "Regret of a selector", "Choice of a selector"


def regret_figure(model: Model, lost: Sequence[PolicyLosses]) -> style.Kind:
    """Return the figure of regret on the held-out problems."""
    figure = style.Figure(
        style.file_name("regret", model.op, model.device, f"t{model.threads}", model.mode, model.precision),
        f"{TITLE}: {model.op}",
        f"{model.subject}. Time over that of the oracle (the fastest kernel of each shape), on held-out shapes "
        f"({model.regret.held_out}). Each line sorts the shapes by this ratio, least first. The oracle was chosen by "
        "half of the processes and timed by the others." + (f" {model.regret.noise}." if model.regret.noise else ""),
        partial(_draw, lost),
    )
    return style.kind(TITLE, [figure], "", 1)


def _draw(lost: Sequence[PolicyLosses]) -> "Drawing":
    figure, axes = style.panel(62, grid="y")
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
    style.label_right(axes, labels)
    return figure


def choice_figures(model: Model, registry: Registry) -> style.Kind:
    """Return a figure for each direction and storage type of convolutions: selected kernels and measured winners."""
    measured = model.measured if model.op == "conv" else []
    fastest: list[tuple[Any, str]] = [(registry.problem(each.problem), each.fastest) for each in measured]
    tails = grouped(fastest, lambda pair: pair[0].id.split("/", 2)[2])
    figures = []
    for tail, marked in tails.items():
        filters = grouped(marked, lambda pair: (pair[0].r, pair[0].s))
        panels = most_places(_panel(model, registry, marks) for _, marks in sorted(filters.items()))
        if is_map(panels):
            figure = style.Figure(
                style.file_name("choice", tail, model.device, f"t{model.threads}", model.mode, model.precision),
                f"{CHOSEN_TITLE}: convolution, {tail}",
                f"{model.subject}. Tint: the kernel that the selector chooses, for the batch n and the filters k above "
                "the panel. Each mark is a training problem and shows its fastest kernel by the mean over processes; "
                "adjacent marks differ in n or k.",
                partial(winners.draw, panels, style.looks(model.kernels)),
            )
            figures.append(figure)
    return style.kind(CHOSEN_TITLE, figures, winners.LACKING, winners.MOST)


def _panel(model: Model, registry: Registry, measured: Sequence[tuple[Any, str]]) -> Panel:
    """Return the panel of one filter size. Choices are made for the problem with the median k, at other c, h and w."""
    like = sorted((problem for problem, _ in measured), key=lambda p: (p.k, p.id))[len(measured) // 2]
    spots = [Spot(problem.c, sqrt(problem.h * problem.w), fastest) for problem, fastest in measured]
    return Panel(f"{like.r}x{like.s} (n = {like.n}, k = {like.k})", spots, partial(_chosen, model, registry, like))


def _chosen(model: Model, registry: Registry, like: Any, channels: Array, sides: Array) -> list[str]:
    """Return the choice for each pair of channels and side; "" if there is no such problem or no kernel takes it."""
    names = []
    for c, side in zip(channels.astype(int).tolist(), sides.astype(int).tolist(), strict=True):
        try:
            problem = msgspec.structs.replace(like, c=c, h=side, w=side)
            names.append(choice(model, problem, registry)[1])
        except (ValueError, UsageError):  # for instance, the filter is larger than the image
            names.append("")
    return names
