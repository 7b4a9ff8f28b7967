"""How a selector is made of data: a tree, a formula, or one kernel, each with what its choices cost when held out."""

from collections.abc import Sequence

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.tune.select.bootstrap import drawn, share
from kernelmark.bench.tune.select.formula import Formula
from kernelmark.bench.tune.select.grown import GROWERS, orders
from kernelmark.bench.tune.select.model import Model, Split, TrainingProblem
from kernelmark.bench.tune.select.regret import PolicyLosses, Regret
from kernelmark.bench.tune.select.training import Data, FeatureSpace, single
from kernelmark.bench.tune.select.tree import TreeNode, leaf


def made(runs: Sequence[str], data: Data, lost: PolicyLosses, found: Regret, grown: str) -> Model:
    """Return the selector of some data: one kernel where a choice is not worth it.

    lost: by selectors that have not seen the families of the problems.
    """
    setting, space, kernels = data.times.setting, data.space, data.times.kernels
    best = single(data.times.means, data.costs)
    one = leaf(data.costs)._replace(order=best)
    root = GROWERS[grown](space, data.known, data.costs) if found.is_worth_it else one
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
    found = []
    for node in nodes:
        if node.below is None or node.above is None:
            found.append((Split(order=node.order.tolist()), node.rows))
        else:
            below = len(nodes)
            nodes += [node.below, node.above]
            text = space.texts[node.feature]
            split = Split(expression=text, threshold=node.threshold, below=below, above=below + 1)
            found.append((split, node.rows[:0]))
    return found


def _by_choice(chosen: Array) -> list[tuple[Split, Array]]:
    """Return a leaf for each kernel that is a first choice, and the problems that it is that for."""
    places = np.argsort(chosen, axis=1)
    groups = [np.flatnonzero(chosen[:, 0] == first) for first in np.unique(chosen[:, 0])]
    return [(Split(order=np.argsort(places[rows].mean(axis=0), kind="stable").tolist()), rows) for rows in groups]


def _judged(leaf: Split, rows: Array, data: Data, lost: PolicyLosses) -> Split:
    """Return a leaf with what it cost on its problems when they were held out."""
    logs = lost.logs[rows]
    spread = share(-logs, drawn(data.families[rows]))
    return msgspec.structs.replace(leaf, problems=len(rows), share=spread, worst=float(np.exp(-logs.max())))
