"""The ways to make a choice from what kernels cost: two trees and a formula, of which a training takes one."""

from collections.abc import Callable

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.tune.select.forest import alone, taught
from kernelmark.bench.tune.select.formula import Formula, fitted
from kernelmark.bench.tune.select.training import FeatureSpace
from kernelmark.bench.tune.select.tree import TreeNode, descend

#: By name; a training takes the one that loses least on held-out families.
GROWERS: dict[str, Callable[[FeatureSpace, Array, Array], TreeNode | Formula]] = {
    "alone": alone,
    "taught": taught,
    "formula": fitted,
}


def orders(grown: TreeNode | Formula, space: FeatureSpace, known: Array) -> Array:
    """Return problems x kernels: the kernels for each problem, the one to call first."""
    if isinstance(grown, Formula):
        return np.argsort(grown.costs(space, known), axis=1, kind="stable")
    return np.array([descend(grown, values).order for values in space.features(known)])
