"""Weighted sums of the rows of a product, as in Freivalds' check, for outputs of many calls.

C x is compared with A (B x). Where a few elements of A and B change, the latter is corrected and not computed anew.
"""

import numpy as np

from kernelmark import DTYPES, Array, Bound, compare, sums_limit
from kernelmark.kernels.gemm._reference import BLOCK_ELEMENTS, Product, both_ways

#: A bound holds for all these sums of as many outputs as are ever checked.
VERDICTS = 2**20
#: How far the rms error of a row may exceed what its operands' norms give, squared: one product may outweigh the rest.
_UNEVEN = 16.0

#: Changes of A, B or C: which of the batch, rows, columns, the values now and before, in float64.
Changed = tuple[Array, Array, Array, Array, Array]


class RowSums:
    """The sums of the rows of alpha A B + beta C, weighted by x, and the norms that bound their errors."""

    def __init__(self, product: Product, rng: "np.random.Generator") -> None:
        a, b, c, self._alpha, self._beta = product
        self._x = rng.standard_normal(b.shape[2])
        weights, ones = self._x[:, None], np.ones((a.shape[2], 1))
        self._bx = _times(b, weights)
        self._ab = np.concatenate([_times(a[i : i + 1], bx[:, None]) for i, bx in enumerate(self._bx)])
        self._cx = 0.0 if c is None else _times(c, weights)
        self._a_squares = _times(a, ones, squared=True)
        self._b_squares = _times(b, weights**2, squared=True).sum(axis=1)
        self._c_squares = 0.0 if c is None else _times(c, weights**2, squared=True)

    def wrong(self, name: str, found: Array, a: Array, changes: dict[str, Changed], bound: Bound) -> str | None:
        """Return why an output, (batch, m, n), is not that of operands of which a few elements have changed.

        a: A as it is now.
        """
        rows, k, x = self._ab.copy(), a.shape[2], self._x
        a_squares, b_squares = self._a_squares.copy(), self._b_squares.copy()
        which, row, column, new, old = changes["a"]
        np.add.at(rows, (which, row), (new - old) * self._bx[which, column])
        np.add.at(a_squares, (which, row), new**2)  # beside the old one, which the corrected sum was rounded with
        which, row, column, new, old = changes["b"]
        np.add.at(b_squares, which, (new * x[column]) ** 2)
        for i, at, difference in zip(which.tolist(), row.tolist(), ((new - old) * x[column]).tolist(), strict=True):
            rows[i] += difference * a[i, :, at]
        want = self._alpha * rows + self._beta * self._cx
        products, added = a_squares * b_squares[:, None], self._c_squares
        if "c" in changes:
            which, row, column, new, old = changes["c"]
            np.add.at(want, (which, row), self._beta * (new - old) * x[column])
            added = added + np.zeros_like(want)
            np.add.at(added, (which, row), (new * x[column]) ** 2)
        weights = float(x @ x)
        # The bound is that of operands in [-1, 1]: their norms are the square roots of k / 3, and of 1 / 3 for C.
        larger = np.maximum(weights, np.maximum(products * (9 / k**2), 3 * added))
        variance = _UNEVEN * (bound.rms**2 + (bound.largest / len(x)) ** 2) * larger
        largest = abs(self._alpha) * np.sqrt(products) + abs(self._beta) * np.sqrt(added)
        own = DTYPES["f64"].roundoff * (len(x) + k) * largest
        got = _times(found, x[:, None])
        limit = sums_limit(variance, own, VERDICTS)
        if (np.abs(got - want) <= limit).all():
            return None
        # Storing the elements has rounded them too, which takes another look at all of them to bound.
        variance += DTYPES[bound.stored].roundoff ** 2 / 3 * np.nan_to_num(_times(found, x[:, None] ** 2, squared=True))
        limit = sums_limit(variance, own, VERDICTS)
        return compare(f"checksum of {name} by row", got, want, limit, "f64").reason


def _times(matrices: Array, vector: Array, squared: bool = False) -> Array:
    """Each of a batch of matrices (of their elements' squares, if asked for) times a vector, in float64."""
    batch, m, n = matrices.shape
    if m * n >= BLOCK_ELEMENTS:
        nothing = np.empty((m, 0))
        return np.stack([both_ways(matrix, vector, nothing, squared)[0][:, 0] for matrix in matrices])
    step = max(1, BLOCK_ELEMENTS // (m * n))
    blocks = (matrices[first : first + step].astype(np.float64) for first in range(0, batch, step))
    return np.concatenate([(block * block if squared else block) @ vector for block in blocks])[..., 0]
