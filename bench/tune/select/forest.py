"""A tree that is fitted to the mean of many trees, chooses nearly as they do, and is exported as a few comparisons.

A tree from a few hundred noisy problems depends on which of them it saw. Trees grown on resampled problems vary, and
the mean of their predictions varies less (bagging, Breiman, 1996). That mean labels shapes around the measured ones,
and a single tree is grown on these (Breiman and Shang, "Born again trees", 1996).
"""

from collections.abc import Callable

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.tune.select.formula import Formula, fitted
from kernelmark.bench.tune.select.training import FeatureSpace
from kernelmark.bench.tune.select.tree import TreeNode, descend, grow

#: Trees grown on resampled problems; shapes drawn around each measured one, and within how many octaves.
TREES, AROUND, OCTAVES, SEED = 20, 12, 0.25, 0
#: An input with fewer values than these is kept as it is: taps, strides, groups.
FEWEST_VALUES = 10
#: Least problems in each leaf of such a tree, which may err more than a single tree.
LEAST_TAUGHT = 3


def taught(space: FeatureSpace, known: Array, costs: Array) -> TreeNode:
    """Return a tree fitted to trees that were grown on resampled problems; each leaf has some of the problems."""
    rng = np.random.default_rng(SEED)
    features = space.features(known)
    shapes = space.features(_around(rng, known, len(space.inputs)))
    expected = np.zeros((len(shapes), costs.shape[1]))
    for _ in range(TREES):
        drawn = rng.integers(0, len(known), len(known))
        teacher = grow(features[drawn], costs[drawn], LEAST_TAUGHT)
        expected += _means(teacher, shapes, costs[drawn])
    pupil = grow(shapes, expected / TREES, LEAST_TAUGHT * AROUND)
    return _settled(pupil, np.arange(len(known)), features)


def alone(space: FeatureSpace, known: Array, costs: Array) -> TreeNode:
    """Return the tree grown directly on the problems."""
    return grow(space.features(known), costs)


def _around(rng: "np.random.Generator", known: Array, inputs: int) -> Array:
    """Return shapes around the known ones, which come first in each group of them."""
    shapes = np.repeat(known, AROUND, axis=0)
    is_many = [i < inputs and len(np.unique(column)) >= FEWEST_VALUES for i, column in enumerate(known.T)]
    factors = np.where(is_many, 2.0 ** rng.uniform(-OCTAVES, OCTAVES, shapes.shape), 1.0)
    factors[::AROUND] = 1.0
    around: Array = shapes * factors
    return around


def _means(node: TreeNode, features: Array, costs: Array) -> Array:
    """Return what each kernel costs in the leaf of each shape, from the costs that the tree was grown on."""
    if node.below is None or node.above is None:
        return np.broadcast_to(costs[node.rows].mean(axis=0), (len(features), costs.shape[1]))
    is_below = features[:, node.feature] <= node.threshold
    means = np.empty((len(features), costs.shape[1]))
    for side, mask in ((node.below, is_below), (node.above, ~is_below)):
        means[mask] = _means(side, features[mask], costs)
    return means


def _settled(node: TreeNode, rows: Array, features: Array) -> TreeNode:
    """Return the tree with the measured problems at its leaves, without splits that separate none of these."""
    if node.below is None or node.above is None:
        return node._replace(rows=rows)
    is_below = features[rows, node.feature] <= node.threshold
    if is_below.all() or not is_below.any():
        return _settled(node.below if is_below.any() else node.above, rows, features)
    below, above = (
        _settled(side, rows[mask], features) for side, mask in ((node.below, is_below), (node.above, ~is_below))
    )
    if below.below is None and above.below is None and below.order[0] == above.order[0]:
        return node._replace(rows=rows, feature=-1, threshold=0.0, below=None, above=None)
    return node._replace(rows=rows, below=below, above=above)


#: The methods by name; training takes the one that loses least on held-out families.
GROWERS: dict[str, Callable[[FeatureSpace, Array, Array], TreeNode | Formula]] = {
    "alone": alone,
    "taught": taught,
    "formula": fitted,
}


def orders(grown: TreeNode | Formula, space: FeatureSpace, known: Array) -> Array:
    """Return an array (problems x kernels) with the kernels for each problem in the order to call."""
    if isinstance(grown, Formula):
        return np.argsort(grown.costs(space, known), axis=1, kind="stable")
    return np.array([descend(grown, values).order for values in space.features(known)])
