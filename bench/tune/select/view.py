"""The output of `select`: the regret on held-out shapes, and the answer for one problem."""

from collections.abc import Sequence

from kernelmark.bench.plan.registry import REGISTRY
from kernelmark.bench.report.format import count, factor, percent, short
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.tune.select.answer import KernelChoice
from kernelmark.bench.tune.select.model import Model, chosen
from kernelmark.bench.tune.select.regret import LIBRARY, WORTH, PolicyScore, Share

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
    """Return the text on a training: the verdict, the ways to choose, and how often each kernel is chosen."""
    found = model.regret
    head = paragraph(
        f"{model.subject}, from {' and '.join(model.runs)}: {count(len(model.measured), 'problem')}. Held out: "
        f"{found.held_out}, {count(found.problems, 'problem')} of {found.families} families.",
        rest="",
    )
    ways = table(WAYS, [_cells(line) for line in found.lines], titled=True)
    choices = [(name, str(of), percent(of / len(model.measured))) for name, of in chosen(model).items()]
    parts = [head, ways, *remarks(model), paragraph(verdict(model), rest="")]
    return "\n\n".join([*parts, table(CHOICES, choices, titled=True)])


def remarks(model: Model) -> list[str]:
    """Return remarks on the limits of the figures."""
    found = model.regret
    parts = [found.noise] if found.noise else []
    if found.processes < 2:
        parts.append(
            "Some rows are of one process, so the samples that chose the oracle also time it, which flatters it. "
            "`kernelmark run SUITE --processes 5` makes runs of several."
        )
    if REGISTRY.operations[model.op].features.libraries and not any(line.way == LIBRARY for line in found.lines):
        parts.append("The library's own choice has no row in these runs; `kernelmark doctor` reports what is missing.")
    return [paragraph(part, "  ", "  ") for part in parts]


def verdict(model: Model) -> str:
    """Return the verdict: to use a selector, or a single kernel, and why."""
    found = model.regret
    gap = f"the oracle is {words(found.gap)} as fast as the best single kernel"
    if model.single and found.gap.mean < WORTH:
        return f"Use {model.single}: {gap}; only a gap of {factor(WORTH)} or more is worth a selector."
    if model.single:
        return f"Use {model.single}: {gap}, but no selector is certainly faster ({words(found.over_single)})."
    assert found.recovered is not None, "a gap that is worth it is above 1"
    part = found.recovered
    low, high = (percent(end) if end is not None else "" for end in (part.low, part.high))
    share = f"{percent(part.mean)} [{low}, {high}]"
    return f"Select: {gap}, and the selector, {made_of(model)}, recovers {share} of that."


def made_of(model: Model) -> str:
    """Return `a tree of 12 leaves`, or `a quadratic formula of 4 logarithms`."""
    if model.formula:
        return f"a quadratic formula of {count(len(model.formula.axes), 'logarithm')}"
    return f"a tree of {len(model.leaves)} leaves"


def words(share: Share) -> str:
    """Return the share with its interval: `0.98x [0.97, 0.99]`."""
    return factor(share.mean, share.low, share.high)


def _cells(line: PolicyScore) -> Sequence[str]:
    return (
        line.way,
        words(line.share),
        factor(line.worst),
        percent(line.right),
        str(line.problems),
        short(line.kernel),
        line.worst_problem,
    )


def answered(model: Model, found: KernelChoice) -> str:
    """Return the choice for a problem, and its expected cost."""
    how = f"{words(found.share)} the speed of the oracle, at worst {factor(found.worst)}"
    use = "use it for every shape, since no choice is certainly better" if model.single else (
        f"on {count(found.problems, 'held-out problem')} {'with' if model.formula else 'of'} the same "
        f"{'choice' if model.formula else 'leaf'} {how}"
    )  # fmt: skip
    parts = [f"{found.problem}: {found.kernel}", f"{use} ({model.subject})."]
    if model.single:
        parts.append(f"Held out, it has {how}.")
    if found.octaves is None:
        parts.append("Nothing like it was measured.")
    else:
        far = "itself" if not found.octaves else f"{found.octaves:.2g} octaves away"
        parts.append(f"The nearest measured shape is {found.nearest} ({far}), where {found.fastest} was fastest.")
    if found.outside:
        parts.append(f"OUTSIDE THE MEASURED RANGE: {'; '.join(found.outside)}.")
    parts += [f"Passed over: {reason}." for reason in found.refused]
    return "\n".join(paragraph(part, "  " * (i > 0), "    ") for i, part in enumerate(parts))
