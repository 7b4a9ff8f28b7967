"""A formula for the cost of each kernel: a quadratic polynomial of the logarithms of a shape's sizes.

If the best kernel changes along slopes, as between algorithms whose work grows by different powers, a tree needs many
steps, each from few problems; a polynomial needs a few coefficients for all.
"""

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.tune.select.training import FeatureSpace, evaluated
from kernelmark.bench.tune.select.tree import MISSING

#: CAP: larger costs count as this, since such kernels are never chosen. RIDGE: the penalty of a coefficient for each
#: problem, times the square of its degree; OWN: the factor on that degree for the coefficients of a word.
CAP, RIDGE, OWN = float(np.log(3)), 3e-3, 2.0


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A variable of the polynomial: (log2(expression) - centre) * scale."""

    expression: str
    centre: float
    scale: float


class Formula(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coefficient matrix (terms x kernels) for each combination of words, the last word changing fastest.

    The terms are 1, each variable, and each product of two, in the order of `terms`.
    """

    axes: list[Axis]
    weights: list[list[list[float]]]

    def costs(self, space: FeatureSpace, known: Array) -> Array:
        """Return an array (problems x kernels) of the formula's logarithm of the time over the fastest kernel's."""
        values = np.log2(evaluated((*space.inputs, *space.words), [axis.expression for axis in self.axes], known))
        scaled = (values - [axis.centre for axis in self.axes]) * [axis.scale for axis in self.axes]
        costs: Array = np.einsum("pt,ptk->pk", terms(scaled), np.array(self.weights)[combination(space, known)])
        return costs

    def complaint(self, space: FeatureSpace, kernels: int) -> str:
        """Return why the formula does not belong to a feature space, or ""."""
        if unknown := [axis.expression for axis in self.axes if axis.expression not in space.slopes]:
            return f"has a formula of {unknown[0]!r}, which is not one of its expressions"
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
    """Return the index of each problem's combination of words; an unknown word counts as the first."""
    numbers = np.zeros(len(known), dtype=np.intp)
    for column, values in enumerate(space.words.values(), start=len(space.inputs)):
        numbers = numbers * len(values) + np.maximum(known[:, column], 0).astype(np.intp)
    return numbers


def fitted(space: FeatureSpace, known: Array, costs: Array) -> Formula:
    """Return the formula fitted by least squares, with shared coefficients and coefficients for each word."""
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
    """Return the coefficients of one kernel, from the problems that it has a time for; `CAP` where it has none."""
    has = costs != MISSING
    if not has.any():
        none: Array = np.eye(len(penalty))[0] * CAP
        return none
    rows = design[has]
    normal = rows.T @ rows + np.diag(RIDGE * len(design) * penalty)
    coefficients: Array = np.linalg.solve(normal, rows.T @ np.minimum(costs[has], CAP))
    return coefficients


def _places(space: FeatureSpace) -> list[list[int]]:
    """Return for each combination of words their places among all words."""
    places: list[list[int]] = [[]]
    before = 0
    for words in space.words.values():
        places = [[*chosen, before + number] for chosen in places for number in range(len(words))]
        before += len(words)
    return places
