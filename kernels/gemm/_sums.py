"""Weighted sums of the rows of a product, as in Freivalds' check, to verify the outputs of many calls.

C x is compared with A (B x). If a few elements of A and B change, A (B x) is corrected, not recomputed.
"""

from functools import partial

import numpy as np

from kernelmark import DTYPES, Array, Bound, sum_weights, summed
from kernelmark.kernels.gemm._reference import BLOCK_ELEMENTS, Product, both_ways

#: Changes of A, B or C: the indices in the batch, the rows, the columns, the new and the old values in float64.
Changed = tuple[Array, Array, Array, Array, Array]


class RowSums:
    """The sums of the rows of alpha A B + beta C, weighted by x, and the norms that bound their errors."""

    def __init__(self, product: Product, rng: "np.random.Generator") -> None:
        a, b, c, self._alpha, self._beta, added = product
        self._largest_unit = product.largest_unit
        self._x = sum_weights(rng, b.shape[2])
        weights = self._x[:, None]
        self._bx = _times(b, weights)
        self._ab = _each_times(a, self._bx)
        self._cx = 0.0 if c is None else _times(c, weights)
        self._b_squares = _times(b, weights**2, squared=True)
        self._squares = _each_times(a, self._b_squares, squared=True)
        self._c_squares = 0.0 if c is None else _times(c if added is None else added, weights**2, squared=True)

    def wrong(
        self, name: str, output: Array, a: Array, changes: dict[str, Changed], bound: Bound, mixed: bool
    ) -> str | None:
        """Return None, or why an output, (batch, m, n), is wrong after a few elements of the operands have changed.

        a: A after the changes. mixed: as in `Reference.check`.
        """
        rows, k, x, squares = self._ab.copy(), a.shape[2], self._x, self._squares.copy()
        which, row, column, new, old = changes["a"]
        np.add.at(rows, (which, row), (new - old) * self._bx[which, column])
        # The squares of the old values stay: the sum was rounded with these before it was corrected.
        np.add.at(squares, (which, row), new**2 * self._b_squares[which, column])
        which, row, column, new, old = changes["b"]
        for i in set(which.tolist()):  # index in the batch
            at = which == i
            along = a[i][:, row[at]].astype(np.float64)
            rows[i] += along @ ((new - old) * x[column])[at]
            squares[i] += along**2 @ (new * x[column])[at] ** 2
        want = self._alpha * rows + self._beta * self._cx
        added = self._c_squares
        if "c" in changes:
            which, row, column, new, old = changes["c"]
            np.add.at(want, (which, row), self._beta * (new - old) * x[column])
            added = added + np.zeros_like(want)
            np.add.at(added, (which, row), (new * x[column]) ** 2)
        norms = self._alpha**2 * squares + self._beta**2 * added
        units = norms * (9 / k)
        if mixed:
            units = np.maximum(units, self._largest_unit() ** 2 * float(x @ x))
        own_error = DTYPES["f64"].roundoff * (len(x) + k) * np.sqrt(norms)
        label, over = f"checksum of {name} by row", x[:, None]
        stored = partial(_times, output, over**2, squared=True)
        return summed(label, _times(output, over), want, bound, len(x), units, float(x @ x), own_error, stored)


def _each_times(matrices: Array, vectors: Array, squared: bool = False) -> Array:
    """Return each matrix of a batch times its own vector."""
    products = [_times(matrices[i : i + 1], vector[:, None], squared) for i, vector in enumerate(vectors)]
    return np.concatenate(products)


def _times(matrices: Array, vector: Array, squared: bool = False) -> Array:
    """Return each matrix of a batch times one vector, in float64. squared: square the matrices' elements first."""
    batch, m, n = matrices.shape
    if m * n >= BLOCK_ELEMENTS:
        nothing = np.empty((m, 0))
        return np.stack([both_ways(matrix, vector, nothing, squared)[0][:, 0] for matrix in matrices])
    step = max(1, BLOCK_ELEMENTS // (m * n))
    blocks = (matrices[first : first + step].astype(np.float64) for first in range(0, batch, step))
    return np.concatenate([(block * block if squared else block) @ vector for block in blocks])[..., 0]
