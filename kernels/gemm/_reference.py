"""The truth of a product in float64: all of it, or a grid of its elements and weighted sums of its rows and columns.

It is exact where operands are 8-bit integers: float64 holds every sum of their products.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from kernelmark import DTYPES, Array, Bound, Verdict, compare, error_variance, sums_limit

#: Problems of at most this many multiply-adds are compared with the whole float64 product (about 20 ms of DGEMM).
WHOLE_REFERENCE_MACS = 2**29
#: Larger ones are sampled: rows and columns at BORDERS borders of tiles of each size and right before these, and
#: SAMPLED others. At most SUSPECTS elements that are 0 are looked at. Rows and columns are summed with SUMS weights.
TILES, BORDERS, SAMPLED, SUSPECTS, SUMS = (8, 16, 32, 64, 128, 256), 4, 32, 16, 2
BLOCK_ELEMENTS = 2**19
EDGES = [0, -1]


class Product(NamedTuple):
    """alpha A B + beta C for each of a batch: a (batch, m, k), b (batch, k, n), c (batch, m, n) where beta is not 0."""

    a: Array
    b: Array
    c: Array | None
    alpha: float
    beta: float

    def grid(self, rows: Array, cols: Array, batch: slice = slice(None)) -> Array:
        """The elements where these rows and columns cross, in float64."""
        product = self.a[batch, rows].astype(np.float64) @ self.b[batch][:, :, cols].astype(np.float64)
        if self.c is None:
            return self.alpha * product
        return self.alpha * product + self.beta * self.c[batch][:, rows][:, :, cols].astype(np.float64)

    def weighted(self, i: int, over_row: Array, over_column: Array) -> tuple[Array, Array]:
        """One of the batch times `over_row`, and its transpose times `over_column`."""
        rows, columns = (self.alpha * found for found in _weighted(self.a[i], self.b[i], over_row, over_column))
        if self.c is None:
            return rows, columns
        of_rows, of_columns = both_ways(self.c[i], over_row, over_column)
        return rows + self.beta * of_rows, columns + self.beta * of_columns


class Sums(NamedTuple):
    """Weights drawn from a normal distribution, and the float64 sums of all rows (or columns) with them.

    edges: the first and the last column (or row) of the product, which are sums with weights of 0 and 1.
    """

    weights: Array
    values: Array
    edges: Array


class Reference(NamedTuple):
    """`values` of all elements, or of those where `rows` and `cols` cross, with sums over each whole row and column.

    name: of the output. beside: of the problem's other outputs. factor: how much larger the errors of a sum are for the
    scales of its products.
    """

    product: Product
    values: Array
    rows: Array
    cols: Array
    sums: tuple[tuple[Sums, ...], ...] = ()
    name: str = "c"
    beside: tuple["Reference", ...] = ()
    factor: float = 1.0

    def check(self, c: Array, bound: Bound) -> Verdict:
        """Compare an output, (batch, m, n)."""
        batch, _, k = self.product.a.shape
        bound = bound._replace(roundings=batch * min(len(self.rows), len(self.cols)) * k)
        if not self.sums:
            return compare(self.name, c, self.values, bound, bound.stored)
        sample = c[:, self.rows][:, :, self.cols]
        verdict = compare(f"sampled {self.name}", sample, self.values, bound, bound.stored)
        reason = verdict.reason or self._wrong_edges(c, bound)
        reason = reason or self._wrong_zeros(c, bound) or self._wrong_sums(c, sample, bound)
        return msgspec.structs.replace(verdict, reason=reason)

    def _wrong_edges(self, c: Array, bound: Bound) -> str | None:
        """Look at all of the first and last rows and columns, where tiles that end early go wrong."""
        for i, (rows, columns) in enumerate(self.sums):
            for name, found, want in (
                ("columns", c[i][:, EDGES], rows.edges),
                ("rows", c[i][EDGES].T, columns.edges),
            ):
                of = f"{self.name}[{i}]" if len(c) > 1 else self.name
                if reason := compare(f"first and last {name} of {of}", found, want, bound, bound.stored).reason:
                    return reason
        return None

    def _wrong_zeros(self, c: Array, bound: Bound) -> str | None:
        """Look at elements that are 0, which are rare in a right product, and common in one with gaps."""
        zeros = c == 0
        places = np.argwhere(zeros)[:SUSPECTS].tolist() if zeros.any() else ()
        for i, row, col in places:
            want = self.product.grid(np.array([row]), np.array([col]), slice(i, i + 1))[0, 0]
            if reason := compare(self.name, c[i, row, col : col + 1], want, bound, bound.stored).reason:
                place = f"{self.name}[{i}, {row}, {col}]"
                return reason.replace(f"{self.name}[0]", place).removesuffix(" (1 of 1 elements wrong)")
        return None

    def _wrong_sums(self, c: Array, sample: Array, bound: Bound) -> str | None:
        """Weighted sums of whole rows and columns, as in Freivalds' check, show what lies beside the sample."""
        # The sums themselves are chains of n (or m) and of k additions in float64.
        k = self.product.a.shape[2]
        largest = 2.0**14 if bound.stored == "s32" else 1.0  # of a product of two elements
        magnitude = largest * abs(self.product.alpha) * math.sqrt(k / 9) + abs(self.product.beta)
        lengths = (c.shape[2], c.shape[1])
        unstored = [error_variance(sample, self.values, bound, length) for length in lengths]
        for i, (rows, columns) in enumerate(self.sums):
            found = both_ways(c[i], rows.weights, columns.weights)
            squares = both_ways(c[i], rows.weights**2, columns.weights**2, squared=True)
            for name, sums, got, square, error, length in zip(
                ("row", "column"), (rows, columns), found, squares, unstored, lengths, strict=True
            ):
                own = DTYPES["f64"].roundoff * (length + k) * magnitude * math.sqrt(length)
                stored = DTYPES[bound.stored].roundoff ** 2 / 3 * np.nan_to_num(square)
                limit = sums_limit(error * (sums.weights**2).sum(axis=0) + stored, own)
                of = f"{self.name}[{i}]" if len(c) > 1 else self.name
                if reason := compare(f"checksum of {of} by {name}", got, sums.values, limit, "f64").reason:
                    return reason
        return None


def reference(product: Product, rng: "np.random.Generator", whole: bool = False) -> Reference:
    """The reference of a product; a large one is sampled with `rng`, unless all of it is asked for."""
    batch, m, k = product.a.shape
    n = product.b.shape[2]
    if whole or batch * m * n * k <= WHOLE_REFERENCE_MACS:
        rows, cols = np.arange(m), np.arange(n)
        return Reference(product, product.grid(rows, cols), rows, cols)
    rows, cols = sampled(m, rng), sampled(n, rng)
    over = [_weights(length, rng) for length in (n, m)]
    found = (zip(over, product.weighted(i, *over), strict=True) for i in range(batch))
    sums = tuple(tuple(Sums(x[:, :SUMS], y[:, :SUMS], y[:, SUMS:]) for x, y in pair) for pair in found)
    return Reference(product, product.grid(rows, cols), rows, cols, sums)


def _weights(length: int, rng: "np.random.Generator") -> Array:
    """Columns of normally distributed weights, and two that pick the first and the last element."""
    weights = np.zeros((length, SUMS + len(EDGES)))
    weights[:, :SUMS] = rng.standard_normal((length, SUMS))
    weights[EDGES, range(SUMS, SUMS + len(EDGES))] = 1
    return weights


def sampled(size: int, rng: "np.random.Generator") -> Array:
    """Places along an axis: its ends, at the borders of tiles of every size and right before them, and any others."""
    borders = [
        np.concatenate([places, places - 1])
        for tile in TILES
        if size > tile
        for places in [tile * rng.integers(1, -(-size // tile), BORDERS)]
    ]
    found: Array = np.unique(np.concatenate([[0, size - 1], *borders, rng.integers(size, size=SAMPLED)]))
    return found


def _weighted(a: Array, b: Array, over_row: Array, over_column: Array) -> tuple[Array, Array]:
    """A B `over_row` and (A B)^T `over_column`; the smaller of A and B is read twice, the other once."""
    if a.size <= b.size:
        at_y = both_ways(a, np.empty((a.shape[1], 0)), over_column)[1]
        bx, columns = both_ways(b, over_row, at_y)
        return both_ways(a, bx, np.empty((a.shape[0], 0)))[0], columns
    bx = both_ways(b, over_row, np.empty((b.shape[0], 0)))[0]
    rows, at_y = both_ways(a, bx, over_column)
    return rows, both_ways(b, np.empty((b.shape[1], 0)), at_y)[1]


def both_ways(matrix: Array, x: Array, y: Array, squared: bool = False) -> tuple[Array, Array]:
    """`matrix @ x` and `matrix.T @ y` in float64 (of its elements' squares, if asked for), without a float64 copy."""
    if matrix.strides[0] < matrix.strides[1]:  # by rows as they lie in memory
        return both_ways(matrix.T, y, x, squared)[::-1]
    rows = max(1, BLOCK_ELEMENTS // matrix.shape[1])
    products, transposed = [], np.zeros((matrix.shape[1], y.shape[1]))
    for start in range(0, matrix.shape[0], rows):
        block = matrix[start : start + rows].astype(np.float64)
        if squared:
            block *= block
        products.append(block @ x)
        transposed += block.T @ y[start : start + rows]
    return np.concatenate(products), transposed
