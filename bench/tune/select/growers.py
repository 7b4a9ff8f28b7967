"""The ways to make a selector: a tree, a tree that imitates many others, and a formula for each kernel's cost.

A node of a tree splits at the threshold that leaves the least variance of all kernels' costs on both sides (CART,
Breiman et al., 1984, with several outputs). Each leaf has an order of kernels. The trees are a few lines of NumPy:
scikit-learn would be a dependency of 40 MB, and compares in single precision, so exported code could disagree with it
at a threshold.

A tree grown on a few hundred noisy problems depends on the choice of these problems. The mean prediction of many trees,
grown on resampled problems, varies less (bagging, Breiman, 1996). This mean predicts costs for shapes near the measured
shapes, and a single tree is grown on these predictions (Breiman and Shang, "Born again trees", 1996).

If the work of two algorithms grows with different powers of the sizes, the border between their regions is a slanted
line in the logarithms of the sizes. A tree needs many steps to follow the line, and learns each step from few problems.
A quadratic polynomial of the logarithms of the sizes needs few coefficients.
"""

import math
from collections.abc import Callable, Iterator
from itertools import accumulate, product
from typing import NamedTuple

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.tune.select.training import MISSING, FeatureSpace, evaluated

#: The maximum number of splits above a leaf, and the minimum number of problems in a leaf.
DEPTH, LEAST = 8, 5
#: In the search for splits, costs are capped at this value, so that hopeless kernels influence no split.
CLIP = math.log(2)


class TreeNode(NamedTuple):
    """A node of a tree; it is a leaf if it has no `below` and `above`.

    rows: the node's training problems. order: the kernels, sorted by their mean cost on these problems. feature: the
    column that is compared with the threshold. below, above: the nodes for values up to the threshold and beyond.
    """

    rows: Array
    order: Array
    feature: int = -1
    threshold: float = 0.0
    below: "TreeNode | None" = None
    above: "TreeNode | None" = None


def grow(features: Array, costs: Array, least: int = LEAST, depth: int = DEPTH, rows: Array | None = None) -> TreeNode:
    """Grow a tree on the features of problems and the cost of each kernel.

    least: minimum problems in a leaf. depth: maximum splits above a leaf. rows: the problems, by default all.
    """
    rows = np.arange(len(features)) if rows is None else rows
    node = TreeNode(rows, np.argsort(costs[rows].mean(axis=0), kind="stable"))
    is_large = depth > 0 and len(rows) >= 2 * least
    split = _split(features[rows], np.minimum(costs[rows], CLIP), least) if is_large else None
    if split is None:
        return node
    feature, threshold = split
    is_below = features[rows, feature] <= threshold
    below, above = (grow(features, costs, least, depth - 1, rows[side]) for side in (is_below, ~is_below))
    if below.feature == above.feature == -1 and below.order[0] == above.order[0]:
        return node  # a split that changes no choice
    return node._replace(feature=feature, threshold=threshold, below=below, above=above)


def _split(features: Array, costs: Array, least: int) -> tuple[int, float] | None:
    """Return the feature and the threshold that leave the least variance, or None if no split reduces it."""
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
    low, high = float(values[at, feature]), float(values[at + 1, feature])
    middle = math.sqrt(low) * math.sqrt(high)  # the geometric mean, since sizes are drawn by their logarithms
    return int(feature), middle if low <= middle < high else low


def at_leaves(node: TreeNode, features: Array, rows: Array | None = None) -> Iterator[tuple[TreeNode, Array]]:
    """Yield each leaf with the problems whose features lead to it. rows: the problems, by default all."""
    rows = np.arange(len(features)) if rows is None else rows
    if node.below is None or node.above is None:
        yield node, rows
        return
    is_below = features[rows, node.feature] <= node.threshold
    for side, mask in ((node.below, is_below), (node.above, ~is_below)):
        yield from at_leaves(side, features, rows[mask])


#: CAP: costs are capped at this value, since slower kernels are never chosen. RIDGE: a coefficient's penalty per
#: problem, times the square of its degree. OWN: a factor on the degree of coefficients for a single name on an axis.
CAP, RIDGE, OWN = float(np.log(3)), 3e-3, 2.0


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A variable of the polynomial: (log2(expression) - centre) * scale."""

    expression: str
    centre: float
    scale: float


class Formula(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Coefficients (terms x kernels) for each combination of named values, such as a layout and a direction.

    weights: the combinations in order; the last name varies fastest. The function `terms` computes the terms.
    """

    axes: list[Axis]
    weights: list[list[list[float]]]

    def costs(self, space: FeatureSpace, known: Array) -> Array:
        """Return predicted costs (problems x kernels): log(time / time of the fastest kernel)."""
        values = np.log2(evaluated((*space.inputs, *space.words), [axis.expression for axis in self.axes], known))
        scaled = (values - [axis.centre for axis in self.axes]) * [axis.scale for axis in self.axes]
        return np.asarray(np.einsum("pt,ptk->pk", terms(scaled), np.array(self.weights)[combination(space, known)]))

    def complaint(self, space: FeatureSpace, kernels: int) -> str:
        """Return why the formula does not fit a feature space, or ""."""
        if unknown := [axis.expression for axis in self.axes if axis.expression not in space.slopes]:
            return f"has a formula that uses {unknown[0]!r}, which is not one of its expressions"
        if len({axis.expression for axis in self.axes}) < len(self.axes):
            return "has a formula that contains an expression twice"
        shape = len(_places(space)), len(terms(np.zeros((1, len(self.axes))))[0]), kernels
        shapes = {(len(self.weights), len(table), len(row)) for table in self.weights for row in table}
        return "" if shapes == {shape} else f"has a formula whose coefficients are not {' x '.join(map(str, shape))}"


def terms(scaled: Array) -> Array:
    """Return an array (problems x terms): 1, the variables, and their pairwise products, in order."""
    first, second = np.triu_indices(scaled.shape[1])
    return np.column_stack([np.ones(len(scaled)), scaled, scaled[:, first] * scaled[:, second]])


def combination(space: FeatureSpace, known: Array) -> Array:
    """Return the index of each problem's combination of named values; an unknown name counts as the first."""
    numbers = np.zeros(len(known), dtype=np.intp)
    for column, values in enumerate(space.words.values(), start=len(space.inputs)):
        numbers = numbers * len(values) + np.maximum(known[:, column], 0).astype(np.intp)
    return numbers


def fitted(space: FeatureSpace, known: Array, costs: Array) -> Formula:
    """Fit a formula by least squares: coefficients shared by all problems, plus corrections for each named value."""
    values = np.log2(evaluated((*space.inputs, *space.words), space.slopes, known))
    varies = np.ptp(values, axis=0) > 0
    axes = [
        Axis(text, float(column.mean()), float(1 / column.std()))
        for text, column in zip(np.array(space.slopes)[varies].tolist(), values[:, varies].T, strict=True)
    ]
    shared = terms((values[:, varies] - [axis.centre for axis in axes]) * [axis.scale for axis in axes])
    per_word = [
        shared * (known[:, column] == number)[:, None]
        for column, words in enumerate(space.words.values(), start=len(space.inputs))
        for number in range(len(words))
    ]
    degrees = np.array([0.1, *[1.0] * len(axes), *[2.0] * (shared.shape[1] - 1 - len(axes))])
    penalty = np.square(np.concatenate([degrees, *[OWN * degrees] * len(per_word)]))
    design = np.hstack([shared, *per_word])
    fits = np.column_stack([_ridge(design, costs[:, column], penalty) for column in range(costs.shape[1])])
    parts = fits.reshape(1 + len(per_word), len(degrees), -1)
    return Formula(axes, [(parts[0] + parts[1:][chosen].sum(axis=0)).tolist() for chosen in _places(space)])


def _ridge(design: Array, costs: Array, penalty: Array) -> Array:
    """Return one kernel's coefficients, fitted to its timed problems; without any, those of the constant cost CAP."""
    has = costs != MISSING
    if not has.any():
        return np.asarray(np.eye(len(penalty))[0] * CAP)
    rows = design[has]
    normal = rows.T @ rows + np.diag(RIDGE * len(design) * penalty)
    return np.asarray(np.linalg.solve(normal, rows.T @ np.minimum(costs[has], CAP)))


def _places(space: FeatureSpace) -> list[list[int]]:
    """Return the combinations of one name per axis, each as indices into a list of all axes' names."""
    counts = [len(words) for words in space.words.values()]
    ranges = (range(end - count, end) for end, count in zip(accumulate(counts), counts, strict=True))
    return [list(chosen) for chosen in product(*ranges)]


#: The number of trees; the number of shapes drawn around each measured shape, and the octaves within which they lie.
TREES, AROUND, OCTAVES, SEED = 20, 12, 0.25, 0
#: An input with fewer values than this is not varied, such as taps, strides and groups.
FEWEST_VALUES = 10
#: The minimum number of problems in a leaf of an averaged tree, which may err more than a tree used alone.
LEAST_TAUGHT = 3


def taught(space: FeatureSpace, known: Array, costs: Array) -> TreeNode:
    """Return a tree that imitates trees grown on resampled problems; each leaf has at least one measured problem."""
    rng = np.random.default_rng(SEED)
    features = space.features(known)
    shapes = space.features(_around(rng, known, len(space.inputs)))
    expected = np.zeros((len(shapes), costs.shape[1]))
    for _ in range(TREES):
        drawn = rng.integers(0, len(known), len(known))
        teacher = grow(features[drawn], costs[drawn], LEAST_TAUGHT)
        for leaf, rows in at_leaves(teacher, shapes):
            expected[rows] += costs[drawn[leaf.rows]].mean(axis=0)
    pupil = grow(shapes, expected / TREES, LEAST_TAUGHT * AROUND)
    return _settled(pupil, np.arange(len(known)), features)


def _around(rng: "np.random.Generator", known: Array, inputs: int) -> Array:
    """Return a group of shapes around each known shape; the known shape is the first of its group."""
    shapes = np.repeat(known, AROUND, axis=0)
    is_many = [i < inputs and len(np.unique(column)) >= FEWEST_VALUES for i, column in enumerate(known.T)]
    factors = np.where(is_many, 2.0 ** rng.uniform(-OCTAVES, OCTAVES, shapes.shape), 1.0)
    factors[::AROUND] = 1.0
    return np.asarray(shapes * factors)


def _settled(node: TreeNode, rows: Array, features: Array) -> TreeNode:
    """Return the tree with the measured problems, `rows`, at its leaves, without splits that leave one side empty."""
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


#: The methods by name; training uses the one that loses least on held-out families.
GROWERS: dict[str, Callable[[FeatureSpace, Array, Array], TreeNode | Formula]] = {
    "alone": lambda space, known, costs: grow(space.features(known), costs),
    "taught": taught,
    "formula": fitted,
}


def orders(grown: TreeNode | Formula, space: FeatureSpace, known: Array) -> Array:
    """Return an array (problems x kernels) with the kernels for each problem, the best first."""
    if isinstance(grown, Formula):
        return np.argsort(grown.costs(space, known), axis=1, kind="stable")
    order = np.empty((len(known), len(grown.order)), dtype=np.intp)
    for leaf, rows in at_leaves(grown, space.features(known)):
        order[rows] = leaf.order
    return order
