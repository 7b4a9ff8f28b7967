"""A regression tree over shapes, with an order of kernels at each leaf.

Each node splits at the threshold for which the costs of all kernels together vary least on both sides (CART, Breiman et
al., 1984, with a number of outputs); the cost of a kernel is the logarithm of its time over the fastest one's. It is a
few lines of NumPy here instead of scikit-learn, which would be a dependency of 40 MB and compares in single precision,
so that exported code could not agree with it at a threshold.
"""

import math
from typing import NamedTuple

import numpy as np

from kernelmark.bench.plan.dtypes import Array

#: The most splits above a leaf, and the fewest problems in it.
DEPTH, LEAST = 8, 5
#: In the search for splits, larger costs count as this, so that hopeless kernels influence no split.
CLIP = math.log(2)
#: The cost of a kernel on a problem for which it has no time, when the kernels of a leaf are ordered.
MISSING = math.log(100)


class TreeNode(NamedTuple):
    """A node of a tree, with its training problems; a node with `below` and `above` has a split.

    feature: the column that is compared; below: the node for values up to the threshold.
    """

    rows: Array
    order: Array
    feature: int = -1
    threshold: float = 0.0
    below: "TreeNode | None" = None
    above: "TreeNode | None" = None


def costs_of(times: Array) -> Array:
    """Return the cost of each kernel on each problem, from logarithms of times; NaN becomes `MISSING`."""
    costs = times - np.nanmin(times, axis=1, keepdims=True)
    return np.where(np.isnan(costs), MISSING, costs)


def grow(features: Array, costs: Array, least: int = LEAST) -> TreeNode:
    """Grow a tree on the features of problems (rows) and the cost of each kernel.

    least: the fewest problems in a leaf.
    """
    return _grown(np.arange(len(features)), features, costs, DEPTH, least)


def order_of(costs: Array) -> Array:
    """Return the kernels sorted by their cost over some problems, the cheapest first."""
    return np.argsort(costs.mean(axis=0), kind="stable")


def leaf(costs: Array) -> TreeNode:
    """Return a tree without splits."""
    return TreeNode(np.arange(len(costs)), order_of(costs))


def _grown(rows: Array, features: Array, costs: Array, depth: int, least: int) -> TreeNode:
    node = TreeNode(rows, order_of(costs[rows]))
    is_large = depth > 0 and len(rows) >= 2 * least
    split = _split(features[rows], np.minimum(costs[rows], CLIP), least) if is_large else None
    if split is None:
        return node
    feature, threshold = split
    is_below = features[rows, feature] <= threshold
    below, above = (_grown(rows[side], features, costs, depth - 1, least) for side in (is_below, ~is_below))
    if below.feature == above.feature == -1 and below.order[0] == above.order[0]:
        return node  # a split that changes no choice
    return node._replace(feature=feature, threshold=threshold, below=below, above=above)


def _split(features: Array, costs: Array, least: int) -> tuple[int, float] | None:
    """Return the feature and the threshold that leave the least variance, or None where no split leaves less."""
    count = len(features)
    order = np.argsort(features, axis=0, kind="stable")
    values = np.take_along_axis(features, order, axis=0)
    sums = np.cumsum(costs[order], axis=0)[:-1]  # splits x features x kernels
    left = np.arange(1, count)[:, None]
    total = costs.sum(axis=0)
    explained = (sums**2).sum(axis=2) / left + ((total - sums) ** 2).sum(axis=2) / (count - left)
    open_to = (values[1:] > values[:-1]) & (left >= least) & (count - left >= least)
    explained = np.where(open_to, explained, -np.inf)
    at, feature = np.unravel_index(int(np.argmax(explained)), explained.shape)
    if explained[at, feature] <= (total**2).sum() / count + 1e-9:
        return None
    return int(feature), _between(float(values[at, feature]), float(values[at + 1, feature]))


def _between(low: float, high: float) -> float:
    """Return a threshold from low to below high: their geometric mean, since sizes are drawn by their logarithms."""
    middle = math.sqrt(low) * math.sqrt(high)
    return middle if low <= middle < high else low


def descend(node: TreeNode, values: Array) -> TreeNode:
    """Return the leaf of one problem's features."""
    while node.below is not None and node.above is not None:
        node = node.below if values[node.feature] <= node.threshold else node.above
    return node
