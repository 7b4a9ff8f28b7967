"""Wrong products: exchanged, missing, stale or repeated parts."""

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong, add, put, scale, swap

#: Large enough to be sampled and not computed as a whole.
F32, BF16, F16 = (f"gemm/m1025n1024k1024/{dtype}/NN" for dtype in ("f32", "bf16", "f16"))
UPDATE = "gemm/m700n900k1000/f32/NN/alpha2/beta0.5"
BATCH = "gemm/m300n310k500/f32/NN/batch16"
DOUBLE, SMALL = "gemm/m900n800k1000/f64/NN", "gemm/m33n65k100/f32/NN"
INTEGERS, FEW_INTEGERS = "gemm/m1025n1024k1024/s8.s32/NN", "gemm/m33n65k100/s8.s32/NN"


def exact(problem: object, inputs: Inputs) -> Array:
    """The product in float64."""
    product: Array = getattr(problem, "alpha", 1.0) * (inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64))
    beta = getattr(problem, "beta", 0.0)
    return product + beta * inputs["c"] if beta else product


def miss(rows: slice | int | None, cols: slice | int | None, k: int = -1, times: float = -1.0) -> Spoil:
    """Return what leaves a product out of rows and columns, or adds it again; None is one drawn at random."""

    def spoil(c: Array, inputs: Inputs, rng: "np.random.Generator") -> None:
        i, j = (int(rng.integers(n)) if at is None else at for at, n in zip((rows, cols), c.shape, strict=True))
        row, col = inputs["a"][i, k].astype(np.float64), inputs["b"][k, j].astype(np.float64)
        c[i, j] += times * (np.multiply.outer(row, col) if np.ndim(row) and np.ndim(col) else row * col)

    return spoil


def tile_without_last_product(c: Array, inputs: Inputs, rng: "np.random.Generator") -> None:
    """One tile of 64 x 64 stops a step early."""
    i, j = (64 * int(rng.integers(n // 64)) for n in c.shape)
    miss(slice(i, i + 64), slice(j, j + 64))(c, inputs, rng)


def transposed_block(c: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    """A fragment of 8 x 8 is stored transposed."""
    i, j = (8 * int(rng.integers(n // 8)) for n in c.shape)
    c[i : i + 8, j : j + 8] = c[i : i + 8, j : j + 8].T.copy()


def row_again(c: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    """A row holds what belongs into the row before it."""
    i = int(rng.integers(1, len(c)))
    c[i] = c[i - 1]


def column_again(c: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
    """A column holds what belongs into the column before it."""
    j = int(rng.integers(1, c.shape[1]))
    c[:, j] = c[:, j - 1]


def pairs_exchanged(c: Array, _inputs: Inputs, _rng: "np.random.Generator") -> None:
    """All even columns are exchanged with the odd ones after them."""
    even = c.shape[1] // 2 * 2
    c[:, :even] = c[:, :even].reshape(len(c), -1, 2)[..., ::-1].reshape(len(c), -1)


def update_without_beta(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """C is not read."""
    c -= 0.5 * inputs["c"]


def update_twice(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """C is added once more."""
    c += 0.5 * inputs["c"]


def half_stale(c: Array, inputs: Inputs, rng: "np.random.Generator") -> None:
    """The lower half is what it was before 16 elements of A changed."""
    a, half = inputs["a"].astype(np.float64), len(c) // 2
    rows, steps = rng.integers(half, len(c), 16), rng.integers(a.shape[1], size=16)
    change = a[rows, steps] - rng.uniform(-1, 1, 16)
    np.add.at(c, rows, -change[:, None] * inputs["b"][steps].astype(np.float64))


def unsigned_b(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """The bytes of B are read as 0 to 255."""
    c += inputs["a"].astype(np.float64) @ (256.0 * (inputs["b"] < 0))


def saturated(c: Array, _inputs: Inputs, _rng: "np.random.Generator") -> None:
    """Sums stop at the ends of 16 bits, as those of pairs of products do in some instructions of a CPU."""
    np.clip(c, -(2**15), 2**15 - 1, out=c)


ALL = slice(None)
GEMM = Family(
    exact,
    (
        Wrong("two columns exchanged", F32, swap(1)),
        Wrong("two rows exchanged", F32, swap(0)),
        Wrong("columns exchanged in pairs", F32, pairs_exchanged),
        Wrong("an 8x8 block transposed", F32, transposed_block),
        Wrong("a row stored twice", F32, row_again),
        Wrong("a column stored twice", F32, column_again),
        Wrong("last column without its last product", F32, miss(ALL, -1)),
        Wrong("last row without its last product", F32, miss(-1, ALL)),
        Wrong("a column without its first product", F32, miss(ALL, None, 0)),
        Wrong("a row without its first product", F32, miss(None, ALL, 0)),
        Wrong("a product added twice everywhere", F32, miss(ALL, ALL, 3, 1.0)),
        Wrong("a 64x64 tile without its last product", F32, tile_without_last_product),
        Wrong("an inner element 0", F32, put(0.0, None, None)),
        Wrong("an inner element not written", F32, put(np.nan, None, None)),
        Wrong("an inner element infinite", F32, put(np.inf, None, None)),
        Wrong("last 8 rows not written", F32, put(np.nan, slice(-8, None))),
        Wrong("a row negated", F32, scale(-1.0, None)),
        Wrong("a column larger by 1 %", F32, scale(1.01, ALL, None)),
        Wrong("all larger by a thousandth", F32, scale(1.001, ALL)),
        Wrong("half of the rows stale", F32, half_stale),
        Wrong("two columns exchanged", BF16, swap(1), "bf16"),
        Wrong("two rows exchanged", BF16, swap(0), "bf16"),
        Wrong("last column without its last product", BF16, miss(ALL, -1), "bf16"),
        Wrong("last row without its last product", BF16, miss(-1, ALL), "bf16"),
        Wrong("an inner element 0", BF16, put(0.0, None, None), "bf16"),
        Wrong("half of the rows stale", BF16, half_stale, "bf16"),
        Wrong("two columns exchanged", F16, swap(1), "f16"),
        Wrong("last column without its last product", F16, miss(ALL, -1), "f16"),
        Wrong("last row without its last product", F16, miss(-1, ALL), "f16"),
        Wrong("an inner element 0", F16, put(0.0, None, None), "f16"),
        Wrong("C not read", UPDATE, update_without_beta),
        Wrong("C added twice", UPDATE, update_twice),
        Wrong("two products of a batch exchanged", BATCH, swap(0)),
        Wrong("two rows exchanged", DOUBLE, swap(0)),
        Wrong("an inner element off by a millionth", DOUBLE, scale(1.000001, None, None), "", 0.9),
        Wrong("an inner element without its last product", SMALL, miss(None, None)),
        Wrong("two columns exchanged", SMALL, swap(1)),
        *(
            Wrong(name, problem, spoil, "exact")
            for problem in (INTEGERS, FEW_INTEGERS)
            for name, spoil in (
                ("an inner element larger by one", add(1.0, None, None)),
                ("the last element smaller by one", add(-1.0, -1, -1)),
                ("an inner element not written", put(-(2.0**31), None, None)),
                ("last column without its last product", miss(ALL, -1)),
                ("a row without its first product", miss(None, ALL, 0)),
                ("two columns exchanged", swap(1)),
                ("sums saturated at 16 bits", saturated),
                ("B read as unsigned", unsigned_b),
            )
        ),
    ),
)
