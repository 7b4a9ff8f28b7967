"""Train a selector on runs, and measure its regret on held-out families or on other runs."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.shards import group_of
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.tune.select.growers import GROWERS, Formula, TreeNode, orders
from kernelmark.bench.tune.select.model import Model, Split, TrainingProblem
from kernelmark.bench.tune.select.regret import (
    FOLDS,
    PolicyLosses,
    Regret,
    drawn,
    held_out,
    losses,
    orders_by_way,
    regret,
    share,
)
from kernelmark.bench.tune.select.training import (
    SELECTED,
    Data,
    FeatureSpace,
    Times,
    data_of,
    read_times,
    require_enough,
    single,
    space_of,
)


def made(runs: Sequence[str], data: Data, lost: PolicyLosses, found: Regret, grown: str) -> Model:
    """Return the selector trained on the data; it always chooses the same kernel if more is not worth it.

    lost: the losses of selectors that were trained without the problems' families.
    """
    setting, space, kernels = data.times.setting, data.space, data.times.kernels
    best = single(data.times.means, data.costs)
    unsplit = TreeNode(np.arange(len(data.costs)), best)
    root = GROWERS[grown](space, data.known, data.costs) if found.is_worth_it else unsplit
    formula = root if isinstance(root, Formula) else None
    nodes = _listed(root, space) if isinstance(root, TreeNode) else _by_choice(orders(root, space, data.known))
    ranges = zip(space.inputs, data.known.min(axis=0).tolist(), data.known.max(axis=0).tolist(), strict=False)
    fastest = np.argmin(data.costs, axis=1)
    return Model(
        **{name: getattr(setting, name) for name in setting._fields if name != "host"},
        runs=list(runs),
        kernels=kernels,
        inputs=list(space.inputs),
        words=space.words,
        fixed=space.fixed,
        ranges={name: (low, high) for name, low, high in ranges},
        single="" if formula or len(nodes) > 1 else kernels[int(nodes[0][0].order[0])],
        regret=found,
        grown=grown,
        tree=[_judged(split, rows, data, lost) if len(rows) else split for split, rows in nodes],
        formula=formula,
        measured=[
            TrainingProblem(problem.id, kernels[int(column)])
            for problem, column in zip(data.times.problems, fastest, strict=True)
        ],
    )


def _listed(root: TreeNode, space: FeatureSpace) -> list[tuple[Split, Array]]:
    """Return the nodes of a tree, each after the one above it, and the problems of each leaf."""
    nodes: list[TreeNode] = [root]
    splits = []
    for node in nodes:
        if node.below is None or node.above is None:
            splits.append((Split(order=node.order.tolist()), node.rows))
        else:
            below = len(nodes)
            nodes += [node.below, node.above]
            text = space.texts[node.feature]
            split = Split(expression=text, threshold=node.threshold, below=below, above=below + 1)
            splits.append((split, node.rows[:0]))
    return splits


def _by_choice(chosen: Array) -> list[tuple[Split, Array]]:
    """Return a leaf for each kernel that is a first choice, and the problems that it is that for."""
    places = np.argsort(chosen, axis=1)
    groups = [np.flatnonzero(chosen[:, 0] == first) for first in np.unique(chosen[:, 0])]
    return [(Split(order=np.argsort(places[rows].mean(axis=0), kind="stable").tolist()), rows) for rows in groups]


def _judged(leaf: Split, rows: Array, data: Data, lost: PolicyLosses) -> Split:
    logs = lost.logs[rows]
    spread = share(-logs, drawn(data.families[rows]))
    return msgspec.structs.replace(leaf, problems=len(rows), share=spread, worst=float(np.exp(-logs.max())))


class Trained(NamedTuple):
    """A trained selector, and the losses of each way to choose on held-out problems."""

    model: Model
    lost: list[PolicyLosses]


def train(store: Reader, registry: Registry, runs: Sequence[str], tests: Sequence[str]) -> Trained:
    """Train a selector on runs, and measure its regret on held-out families or on `tests`. Raises UsageError."""
    times = read_times(store, registry, runs)
    held = _held_out(store, registry, times, tests) if tests else None
    if held is not None:
        times = _without(times, held)
    data = data_of(times, space_of(times.problems)) if times.problems else None
    where = f"run {' and '.join(runs)}"
    if data is None:
        raise UsageError(f"{where}: has only the shapes of --test; train on others, such as those of train-conv")
    require_enough(where, data)
    trials = {grown: losses(times, held_out(data, grown)) for grown in GROWERS}
    grown = min(trials, key=lambda name: trials[name][0].logs.mean())
    own = trials[grown]
    lost, found = own, regret(store, times, data.families, own, f"families of shapes in {FOLDS} folds")
    if held is not None:
        lost, found = _tested(store, data, held, tests, grown)
    return Trained(made(runs, data, own[0], found, grown), lost)


def _held_out(store: Reader, registry: Registry, times: Times, tests: Sequence[str]) -> Times:
    """Return the times of the test's problems, by the kernels that are trained. Raises UsageError."""
    found = read_times(store, registry, tests, selected=True)
    if found.setting != times.setting:
        pairs = zip(found.setting._fields, found.setting, times.setting, strict=True)
        name, own, trained = next((name, own, other) for name, own, other in pairs if own != other)
        raise UsageError(f"--test {' '.join(tests)}: its {name} is {own}, the training's is {trained}; use the same")
    selected = f"{times.setting.op}/{SELECTED}"
    kernels = [*times.kernels, *([selected] if selected in found.kernels else [])]
    timed = ~np.isnan(found.only(range(len(found.problems)), times.kernels).means).all(axis=1)
    return found.only(np.flatnonzero(timed).tolist(), kernels)


def _without(times: Times, held: Times) -> Times:
    """Return the times without the sizes of the test, in any layout, direction or place."""
    groups = {group_of(problem.id) for problem in held.problems}
    remaining = [i for i, problem in enumerate(times.problems) if group_of(problem.id) not in groups]
    return times.only(remaining, times.kernels)


def _tested(
    store: Reader, data: Data, held: Times, tests: Sequence[str], grown: str
) -> tuple[list[PolicyLosses], Regret]:
    asked = data_of(held.only(range(len(held.problems)), data.times.kernels), data.space)
    lost = losses(held, orders_by_way(data, asked, grown))
    return lost, regret(store, held, asked.families, lost, f"the rows of {' and '.join(tests)}")
