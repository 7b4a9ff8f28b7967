"""The answer for a problem: the kernel to call, the expected cost, and whether similar problems were measured."""

from collections.abc import Iterator

import msgspec
import numpy as np

from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.text import indented
from kernelmark.bench.tune.select.growers import orders
from kernelmark.bench.tune.select.model import Model, Split, chosen, space_in
from kernelmark.bench.tune.select.regret import Regret, Share
from kernelmark.bench.tune.select.training import FeatureSpace


class KernelChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice for a problem. refused: preferred kernels that cannot be called, with reasons.

    share, worst: mean and least share of the oracle's speed on the leaf's held-out problems. problems: their number.
    nearest, fastest: the nearest measured problem and its fastest kernel; octaves: its distance. outside: in which ways
    the problem is outside the measured range.
    """

    problem: str
    kernel: str
    refused: list[str]
    share: Share
    worst: float
    problems: int
    nearest: str
    fastest: str
    octaves: float | None
    outside: list[str]


class SelectDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document of `select --json`. single: the kernel to use everywhere, or "" if a selector is worth it.

    problems: the number trained on; leaves: those of the tree, or the kernels that a formula chooses; choices: the
    number of problems for which each kernel is chosen; answer: null for a training.
    """

    op: str
    device: str
    device_name: str
    threads: int
    mode: str
    dtype: str
    precision: str
    isa: str
    runs: list[str]
    single: str
    problems: int
    leaves: int
    choices: dict[str, int]
    regret: Regret
    answer: KernelChoice | None


_SAME = ("op", "device", "device_name", "threads", "mode", "dtype", "precision", "isa", "runs", "single", "regret")


def document(model: Model, found: KernelChoice | None) -> str:
    """Return the JSON text of a `SelectDocument` with the selector and, if there is one, its choice."""
    made = SelectDocument(
        **{name: getattr(model, name) for name in _SAME},
        problems=len(model.measured),
        leaves=len(model.leaves),
        choices=dict(chosen(model)),
        answer=found,
    )
    return indented(made) + "\n"


def answer(model: Model, problem: Problem, registry: Registry) -> KernelChoice:
    """Return the choice for a problem. Raises UsageError if no kernel of the model can be called."""
    node, name, refused = choice(model, problem, registry)
    share, worst = node.share, node.worst
    assert share, "a leaf has a share"
    assert worst, "a leaf has a worst"
    space = space_in(model, registry)
    nearest, octaves = _nearest(model, space, space.numbers([problem])[0], registry)
    return KernelChoice(
        problem=problem.id,
        kernel=name,
        refused=refused,
        share=share,
        worst=worst,
        problems=node.problems,
        nearest=model.measured[nearest].problem,
        fastest=model.measured[nearest].fastest,
        octaves=octaves if np.isfinite(octaves) else None,
        outside=list(_outside(model, problem)),
    )


def choice(model: Model, problem: Problem, registry: Registry) -> tuple[Split, str, list[str]]:
    """Return a problem's leaf, its first kernel that can be called, and why preferred ones cannot.

    Raises UsageError if none can.
    """
    space = space_in(model, registry)
    node, names = placed(model, space, space.numbers([problem]))
    refused: list[str] = []
    for name in names:
        reason = _refusal(name, problem, registry)
        if not reason:
            return node, name, refused
        refused.append(reason)
    raise UsageError(f"{problem.id}: no kernel of the selector takes it: {refused[0]}; train on others")


def placed(model: Model, space: FeatureSpace, known: Array) -> tuple[Split, list[str]]:
    """Return the leaf of a problem, given by its inputs, and its kernels by name, in the order to call.

    If a formula chooses these kernels for no training problem, the leaf is that of all held-out problems.
    """
    if model.formula:
        order = orders(model.formula, space, known)[0].tolist()
        node = next((leaf for leaf in model.tree if leaf.order[0] == order[0]), None)
        if node is None:
            way = model.regret.lines[0]
            node = Split(order=order, problems=way.problems, share=way.share, worst=way.worst)
    else:
        values = dict(zip(space.texts, space.features(known)[0].tolist(), strict=True))
        node = model.tree[0]
        while node.expression:
            node = model.tree[node.below if values[node.expression] <= node.threshold else node.above]
        order = node.order
    return node, [model.kernels[place] for place in order]


def _refusal(name: str, problem: Problem, registry: Registry) -> str | None:
    try:
        kernel = registry.kernels[name]
    except KeyError:
        return f"{name} is unknown here; --plugin names the file that declares it"
    return unavailable(kernel) or kernel.refuses(problem)


def _nearest(model: Model, space: FeatureSpace, known: Array, registry: Registry) -> tuple[int, float]:
    others = space.numbers([registry.problem(one.problem) for one in model.measured])
    apart = space.apart(known, others)
    at = int(np.argmin(apart))
    return at, float(apart[at])


def _outside(model: Model, problem: Problem) -> Iterator[str]:
    for name, (low, high) in model.ranges.items():
        if not low <= (value := getattr(problem, name)) <= high:
            yield f"{name} is {value}, measured {low:g}" + f" to {high:g}" * (low < high)
    for name, values in model.words.items():
        if (word := getattr(problem, name)) not in values:
            yield f"{name} is {word}, measured {', '.join(values)}"
    for name, fixed in model.fixed.items():
        if (value := getattr(problem, name)) != fixed:
            yield f"{name} is {value}, measured {fixed}"
