"""The float64 reference of a product: all of it, or a grid of elements and weighted sums of rows and columns.

It is exact for operands of 8-bit integers, since float64 represents every sum of their products exactly.
"""

import math
from typing import Any, NamedTuple

import msgspec
import numpy as np

from kernelmark import (
    DTYPES,
    Array,
    Bound,
    Verdict,
    compare,
    error_variance,
    independent_roundings,
    sum_weights,
    sums_limit,
)

#: Problems of at most this many multiply-adds are compared with the whole float64 product (about 20 ms of DGEMM).
WHOLE_REFERENCE_MACS = 2**29
#: Larger problems are sampled: the rows and columns on both sides of BORDERS tile borders for each size in TILES, and
#: SAMPLED random rows and columns. At most SUSPECTS elements that are 0 are checked. All rows and columns are summed
#: with SUMS sets of weights.
TILES, BORDERS, SAMPLED, SUSPECTS, SUMS = (8, 16, 32, 64, 128, 256), 4, 32, 16, 2
BLOCK_ELEMENTS = 2**19
EDGES = [0, -1]


class Product(NamedTuple):
    """A batch of alpha A B + beta C: a (batch, m, k), b (batch, k, n), c (batch, m, n), or None if beta is 0.

    added: if each element of C is itself a sum, the norm of its terms; error bounds use it instead of beta C.
    """

    a: Array
    b: Array
    c: Array | None
    alpha: float
    beta: float
    added: Array | None = None

    def part(self, i: int, rows: Any, cols: Any) -> "Product":
        """Return the product that computes some rows and columns of product i of the batch."""
        batch = slice(i, i + 1)
        c = None if self.c is None else self.c[batch, rows][:, :, cols]
        return self._replace(a=self.a[batch, rows], b=self.b[batch][:, :, cols], c=c)

    def grid(self, rows: Array, cols: Array, batch: slice = slice(None)) -> Array:
        """Return the elements where these rows and columns cross, in float64."""
        product = self.a[batch, rows].astype(np.float64) @ self.b[batch][:, :, cols].astype(np.float64)
        if self.c is None:
            return self.alpha * product
        return self.alpha * product + self.beta * self.c[batch][:, rows][:, :, cols].astype(np.float64)

    def unit(self, rows: Array, cols: Array, batch: slice = slice(None)) -> Array:
        """Return the norm of each element's summands divided by the norm of k products of uniform operands."""
        a, b = (np.square(x.astype(np.float32)) for x in (self.a[batch, rows], self.b[batch][:, :, cols]))
        norm = abs(self.alpha) * np.sqrt(a @ b, dtype=np.float64)
        added, beta = (self.c, self.beta) if self.added is None else (self.added, 1.0)
        if added is not None:
            norm = np.hypot(norm, beta * added[batch][:, rows][:, :, cols].astype(np.float64))
        units: Array = norm * (3 / math.sqrt(self.a.shape[2]))
        return units

    def largest_unit(self) -> float:
        """Return `unit` for the row of A and column of B with the largest norms, if their elements pair at random."""
        a, b = (np.square(x.astype(np.float32)).sum(axis=axis).max() for x, axis in ((self.a, 2), (self.b, 1)))
        norm = abs(self.alpha) * math.sqrt(float(a) * float(b) / self.a.shape[2])
        if self.c is not None:
            norm = math.hypot(norm, self.beta * float(np.abs(self.c).max()))
        return norm * (3 / math.sqrt(self.a.shape[2]))

    def weighted_squares(self, i: int, over_row: Array, over_column: Array) -> tuple[Array, Array]:
        """Return the squared `unit` of each sum from `weighted`: its terms' squared units times squared weights."""
        weights = over_row**2, over_column**2
        rows, columns = (self.alpha**2 * sums for sums in _weighted(self.a[i], self.b[i], *weights, squared=True))
        added, beta = (self.c, self.beta) if self.added is None else (self.added, 1.0)
        if added is not None:
            of_rows, of_columns = both_ways(added[i], *weights, squared=True)
            rows, columns = rows + beta**2 * of_rows, columns + beta**2 * of_columns
        each = 9 / self.a.shape[2]
        return rows * each, columns * each

    def weighted(self, i: int, over_row: Array, over_column: Array) -> tuple[Array, Array]:
        """Return P @ over_row and P.T @ over_column for the product P that is number i of the batch."""
        rows, columns = (self.alpha * sums for sums in _weighted(self.a[i], self.b[i], over_row, over_column))
        if self.c is None:
            return rows, columns
        of_rows, of_columns = both_ways(self.c[i], over_row, over_column)
        return rows + self.beta * of_rows, columns + self.beta * of_columns


class Sums(NamedTuple):
    """Random weights, and the float64 sums of all rows (or of all columns) with these weights.

    edges: the product's first and last column (or row), computed as sums with weights of 0 and 1. squares: the squared
    units of error bounds (`Product.unit`), first of the sums, then of the edges.
    """

    weights: Array
    values: Array
    edges: Array
    squares: Array


class Reference(NamedTuple):
    """The float64 `values` of all elements, or of a sample along with sums over each whole row and column.

    rows, cols: the sample consists of the elements where these rows and columns cross. name: the output's name. beside:
    references of the problem's other outputs. unit: error bounds of `values` are multiples of it. mixed: if the
    algorithm adds rows and columns before it multiplies, the least unit of any element, since errors of large elements
    spread; otherwise 0. before: if `values` are sigmoids, their arguments.
    """

    product: Product
    values: Array
    rows: Array
    cols: Array
    sums: tuple[tuple[Sums, ...], ...] = ()
    name: str = "c"
    beside: tuple["Reference", ...] = ()
    unit: Array | float = 1.0
    mixed: float = 0.0
    before: Array | None = None

    def scaled(self, bound: Bound) -> Bound:
        """Return the bound in multiples of these values' `unit`, which is multiplied by the slope if they are sigmoids.

        A sigmoid multiplies an error of x by at most its steepest slope between x and the erroneous x. This slope is at
        the point nearest to 0: |x| less the largest error.
        """
        if self.before is None:
            return bound._replace(unit=self.unit)
        decay = np.exp(-np.maximum(np.abs(self.before) - bound.largest * self.unit, 0))
        return bound._replace(unit=self.unit * decay / (1 + decay) ** 2)

    def check(self, c: Array, bound: Bound, mixed: bool = False) -> Verdict:
        """Compare an output (batch, m, n). mixed: whether the algorithm adds rows and columns before it multiplies."""
        if mixed:
            unit = self.product.largest_unit()
            sums = tuple(
                tuple(s._replace(squares=np.maximum(s.squares, unit**2 * _squares(s.weights))) for s in pair)
                for pair in self.sums
            )
            return self._replace(unit=unit, sums=sums, mixed=unit).check(c, bound._replace(unit=unit))
        batch, _, k = self.product.a.shape
        roundings = batch * independent_roundings(len(self.rows), len(self.cols), k)
        bound = self.scaled(bound)._replace(roundings=roundings)
        if not self.sums:
            return compare(self.name, c, self.values, bound, bound.stored)
        sample = c[:, self.rows][:, :, self.cols]
        verdict = compare(f"sampled {self.name}", sample, self.values, bound, bound.stored)
        reason = verdict.reason or self._wrong_edges(c, bound)
        reason = reason or self._wrong_zeros(c, bound) or self._wrong_sums(c, sample, bound)
        return msgspec.structs.replace(verdict, reason=reason)

    def _wrong_edges(self, c: Array, bound: Bound) -> str | None:
        """Check all of the first and last rows and columns, where errors in partial tiles show."""
        for i, (rows, columns) in enumerate(self.sums):
            for name, edges, sums in (("columns", c[i][:, EDGES], rows), ("rows", c[i][EDGES].T, columns)):
                of = f"{self.name}[{i}]" if len(c) > 1 else self.name
                roundings = independent_roundings(len(edges), len(EDGES), self.product.a.shape[2])
                within = bound._replace(unit=np.sqrt(sums.squares[:, SUMS:]), roundings=roundings)
                within = within._replace(comparisons=2 * len(self.sums) * bound.comparisons)
                if reason := compare(f"first and last {name} of {of}", edges, sums.edges, within, bound.stored).reason:
                    return reason
        return None

    def _wrong_zeros(self, c: Array, bound: Bound) -> str | None:
        """Check elements that are 0: few in a correct product, but many if parts of it were not computed."""
        zeros = c == 0
        places = np.argwhere(zeros)[:SUSPECTS].tolist() if zeros.any() else ()
        for i, row, col in places:
            at = np.array([row]), np.array([col]), slice(i, i + 1)
            within = bound._replace(unit=np.maximum(self.product.unit(*at)[0, 0], self.mixed))
            want = self.product.grid(*at)[0, 0]
            if reason := compare(self.name, c[i, row, col : col + 1], want, within, bound.stored).reason:
                place = f"{self.name}[{i}, {row}, {col}]"
                return reason.replace(f"{self.name}[0]", place).removesuffix(" (1 of 1 elements wrong)")
        return None

    def _wrong_sums(self, c: Array, sample: Array, bound: Bound) -> str | None:
        """Check weighted sums of whole rows and columns, as in Freivalds' check, for errors outside the sample."""
        # The float64 sums have rounding errors of their own, from n (or m) and k additions in a chain.
        k = self.product.a.shape[2]
        lengths = (c.shape[2], c.shape[1])
        if self.mixed:  # a sample may have none of the rows whose errors are large
            unstored = [(bound.uneven * bound.rms) ** 2 + (bound.largest / length) ** 2 for length in lengths]
        else:
            unstored = [error_variance(sample, self.values, bound, length) for length in lengths]
        for i, (rows, columns) in enumerate(self.sums):
            checksums = both_ways(c[i], rows.weights, columns.weights)
            outputs = both_ways(c[i], rows.weights**2, columns.weights**2, squared=True)
            for name, sums, got, square, error, length in zip(
                ("row", "column"), (rows, columns), checksums, outputs, unstored, lengths, strict=True
            ):
                squares = sums.squares[:, :SUMS]
                own_error = DTYPES["f64"].roundoff * (length + k) * np.sqrt(squares * (k / 9))
                stored = DTYPES[bound.stored].roundoff ** 2 / 3 * np.nan_to_num(square)
                limit = sums_limit(error * squares + stored, own_error, 2 * len(self.sums) * bound.comparisons)
                of = f"{self.name}[{i}]" if len(c) > 1 else self.name
                if reason := compare(f"checksum of {of} by {name}", got, sums.values, limit, "f64").reason:
                    return reason
        return None


def reference(product: Product, rng: "np.random.Generator", whole: bool = False) -> Reference:
    """Return the reference of a product; a large product is sampled with `rng` unless `whole` is True."""
    batch, m, k = product.a.shape
    n = product.b.shape[2]
    if whole or batch * m * n * k <= WHOLE_REFERENCE_MACS:
        rows, cols = np.arange(m), np.arange(n)
        return Reference(product, product.grid(rows, cols), rows, cols, unit=product.unit(rows, cols))
    rows, cols = sampled(m, rng), sampled(n, rng)
    over = [_weights(length, rng) for length in (n, m)]
    pairs = (
        zip(over, product.weighted(i, *over), product.weighted_squares(i, *over), strict=True) for i in range(batch)
    )
    sums = tuple(tuple(Sums(x[:, :SUMS], y[:, :SUMS], y[:, SUMS:], z) for x, y, z in pair) for pair in pairs)
    return Reference(product, product.grid(rows, cols), rows, cols, sums, unit=product.unit(rows, cols))


def _squares(weights: Array) -> Array:
    """Return the sum of the squares of each set of weights, then 1 for each set that picks an edge."""
    return np.concatenate([(weights**2).sum(axis=0), np.ones(len(EDGES))])


def _weights(length: int, rng: "np.random.Generator") -> Array:
    """Return columns of random weights, and two columns that pick the first and the last element."""
    weights = np.zeros((length, SUMS + len(EDGES)))
    weights[:, :SUMS] = sum_weights(rng, (length, SUMS))
    weights[EDGES, range(SUMS, SUMS + len(EDGES))] = 1
    return weights


def sampled(size: int, rng: "np.random.Generator") -> Array:
    """Return indices along an axis: both ends, both sides of some tile borders of each size, and random indices."""
    borders = [
        np.concatenate([places, places - 1])
        for tile in TILES
        if size > tile
        for places in [tile * rng.integers(1, -(-size // tile), BORDERS)]
    ]
    indices: Array = np.unique(np.concatenate([[0, size - 1], *borders, rng.integers(size, size=SAMPLED)]))
    return indices


def _weighted(a: Array, b: Array, over_row: Array, over_column: Array, squared: bool = False) -> tuple[Array, Array]:
    """Return (A B) `over_row` and (A B)^T `over_column`; the smaller of A and B is read twice, the other once.

    squared: square the elements of A and B first.
    """
    how = squared, np.float32 if squared else np.float64  # enough for norms of operands
    if a.size <= b.size:
        at_y = both_ways(a, np.empty((a.shape[1], 0)), over_column, *how)[1]
        bx, columns = both_ways(b, over_row, at_y, *how)
        return both_ways(a, bx, np.empty((a.shape[0], 0)), *how)[0], columns
    bx = both_ways(b, over_row, np.empty((b.shape[0], 0)), *how)[0]
    rows, at_y = both_ways(a, bx, over_column, *how)
    return rows, both_ways(b, np.empty((b.shape[1], 0)), at_y, *how)[1]


def both_ways(
    matrix: Array, x: Array, y: Array, squared: bool = False, kind: type[np.floating[Any]] = np.float64
) -> tuple[Array, Array]:
    """Return `matrix @ x` and `matrix.T @ y`, a block at a time in `kind`. squared: square the elements first."""
    if matrix.strides[0] < matrix.strides[1]:  # read along the contiguous axis
        return both_ways(matrix.T, y, x, squared, kind)[::-1]
    rows = max(1, BLOCK_ELEMENTS // matrix.shape[1])
    x, y = x.astype(kind, copy=False), y.astype(kind, copy=False)
    products, transposed = [], np.zeros((matrix.shape[1], y.shape[1]))
    for start in range(0, matrix.shape[0], rows):
        block = matrix[start : start + rows].astype(kind, copy=False)
        if squared:
            block = np.square(block)
        if x.size:
            products.append(block @ x)
        if y.size:
            transposed += block.T @ y[start : start + rows]
    return np.concatenate(products, dtype=np.float64) if products else np.empty((len(matrix), 0)), transposed
