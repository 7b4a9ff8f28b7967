"""Wrong products: parts exchanged, missing, stale or repeated; wrong epilogues, groups, scales and arithmetic."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.selftest.wrong.library import (
    ALL,
    Family,
    Inputs,
    Spoil,
    Wrong,
    add,
    flip_tile,
    float64,
    nearest,
    put,
    repeat,
    scale,
    swap,
    truncated,
)

#: Large enough that only a sample of the reference is computed.
F32, BF16, F16 = (f"gemm/m1025n1024k1024/{dtype}/NN" for dtype in ("f32", "bf16", "f16"))
UPDATE = "gemm/m700n900k1000/f32/NN/alpha2/beta0.5"
BATCH = "gemm/m300n310k500/f32/NN/batch16"
DOUBLE, SMALL = "gemm/m900n800k1000/f64/NN", "gemm/m33n65k100/f32/NN"
INTEGERS, FEW_INTEGERS = "gemm/m1025n1024k1024/s8.s32/NN", "gemm/m33n65k100/s8.s32/NN"


def exact(problem: object, inputs: Inputs) -> Array:
    """Return alpha A B + beta C in float64."""
    a, b = float64(inputs, "a", "b")
    product: Array = getattr(problem, "alpha", 1.0) * (a @ b)
    beta = getattr(problem, "beta", 0.0)
    return product + beta * inputs["c"] if beta else product


def miss(rows: slice | int | None, cols: slice | int | None, k: int = -1, times: float = -1.0) -> Spoil:
    """Return a function that adds `times` x the k-th product to the sums in `rows` and `cols` (None: one at random)."""

    def spoil(c: Array, inputs: Inputs, rng: "np.random.Generator") -> None:
        i, j = (int(rng.integers(n)) if at is None else at for at, n in zip((rows, cols), c.shape, strict=True))
        row, col = inputs["a"][i, k].astype(np.float64), inputs["b"][k, j].astype(np.float64)
        c[i, j] += times * (np.multiply.outer(row, col) if np.ndim(row) and np.ndim(col) else row * col)

    return spoil


def _tile_without_last_product(c: Array, inputs: Inputs, rng: "np.random.Generator") -> None:
    i, j = (64 * int(rng.integers(n // 64)) for n in c.shape)
    miss(slice(i, i + 64), slice(j, j + 64))(c, inputs, rng)


def _pairs_exchanged(c: Array, _inputs: Inputs, _rng: "np.random.Generator") -> None:
    even = c.shape[1] // 2 * 2
    c[:, :even] = c[:, :even].reshape(len(c), -1, 2)[..., ::-1].reshape(len(c), -1)


def half_stale(c: Array, inputs: Inputs, rng: "np.random.Generator") -> None:
    """Replace the lower half of C by a stale result, computed before 16 elements of A changed."""
    a, half = inputs["a"].astype(np.float64), len(c) // 2
    rows, steps = rng.integers(half, len(c), 16), rng.integers(a.shape[1], size=16)
    change = a[rows, steps] - rng.uniform(-1, 1, 16)
    np.add.at(c, rows, -change[:, None] * inputs["b"][steps].astype(np.float64))


_HALF_PRECISION = (
    ("two columns exchanged", swap(1)),
    ("last column without its last product", miss(ALL, -1)),
    ("last row without its last product", miss(-1, ALL)),
    ("an inner element set to 0", put(0.0, None, None)),
)
GEMM = Family(
    exact,
    (
        Wrong("two columns exchanged", F32, swap(1)),
        Wrong("two rows exchanged", F32, swap(0)),
        Wrong("columns exchanged in pairs", F32, _pairs_exchanged),
        Wrong("an 8x8 block transposed", F32, flip_tile(8)),
        Wrong("a row stored twice", F32, repeat(0)),
        Wrong("a column stored twice", F32, repeat(1)),
        Wrong("last column without its last product", F32, miss(ALL, -1)),
        Wrong("last row without its last product", F32, miss(-1, ALL)),
        Wrong("a column without its first product", F32, miss(ALL, None, 0)),
        Wrong("a row without its first product", F32, miss(None, ALL, 0)),
        Wrong("a product added twice everywhere", F32, miss(ALL, ALL, 3, 1.0)),
        Wrong("a 64x64 tile without its last product", F32, _tile_without_last_product),
        Wrong("an inner element set to 0", F32, put(0.0, None, None)),
        Wrong("an inner element not written", F32, put(np.nan, None, None)),
        Wrong("an inner element infinite", F32, put(np.inf, None, None)),
        Wrong("last 8 rows not written", F32, put(np.nan, slice(-8, None))),
        Wrong("a row negated", F32, scale(-1.0, None)),
        Wrong("a column larger by 1 %", F32, scale(1.01, ALL, None)),
        Wrong("all larger by a thousandth", F32, scale(1.001, ALL)),
        Wrong("half of the rows stale", F32, half_stale),
        *(Wrong(name, BF16, spoil, "bf16") for name, spoil in _HALF_PRECISION),
        Wrong("two rows exchanged", BF16, swap(0), "bf16"),
        Wrong("half of the rows stale", BF16, half_stale, "bf16"),
        *(Wrong(name, F16, spoil, "f16") for name, spoil in _HALF_PRECISION),
        Wrong("C not read", UPDATE, lambda c, x, _: c - 0.5 * x["c"]),
        Wrong("C added twice", UPDATE, lambda c, x, _: c + 0.5 * x["c"]),
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
                # As in some CPU instructions that add pairs of products.
                ("sums saturated at 16 bits", lambda c, _x, _rng: np.clip(c, -(2**15), 2**15 - 1)),
                ("B read as unsigned", lambda c, x, _: c + x["a"].astype(np.float64) @ (256.0 * (x["b"] < 0))),
            )
        ),
    ),
)

#: Square, so that a bias fits either axis.
BIAS, SIGMOID, MOMENTUM = (f"gemm/m300n300k500/f32/NN/epi-{name}" for name in ("bias-relu", "sigmoid", "update"))
#: Large enough to be sampled.
SAMPLED_MOMENTUM = "gemm/m801n901k800/f32/NN/epi-update"


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), from tanh, which does not overflow."""
    activated: Array = 0.5 + 0.5 * np.tanh(x / 2)
    return activated


def after_epilogue(problem: Any, inputs: Inputs) -> Array:
    """Return the result of the epilogue in float64; for an update, C and the velocity V, stacked."""
    x = exact(None, inputs)
    if problem.epilogue == "update":
        c, v = float64(inputs, "c", "v")
        v = problem.momentum * v - problem.rate * (x + problem.decay * c)
        return np.stack([c + v, v])
    return np.maximum(x + inputs["bias"], 0) if problem.epilogue == "bias-relu" else sigmoid(x)


def of_product(spoiled: Callable[[Array, Inputs], Array]) -> Spoil:
    """Return a function that replaces the result by `spoiled(A B, inputs)`."""
    return lambda _values, inputs, _rng: spoiled(exact(None, inputs), inputs)


def _late_by_a_step(values: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    values[0] = np.add(*float64(inputs, "c", "v"))


EPILOGUES = Family(
    after_epilogue,
    (
        Wrong("the bias along the rows", BIAS, of_product(lambda x, y: np.maximum(x + y["bias"][:, None], 0))),
        Wrong("no bias", BIAS, of_product(lambda x, _: np.maximum(x, 0))),
        Wrong("ReLU before the bias", BIAS, of_product(lambda x, y: np.maximum(x, 0) + y["bias"])),
        Wrong("no ReLU", BIAS, of_product(lambda x, y: x + y["bias"])),
        Wrong("an element NaN", BIAS, put(np.nan, None, None)),
        Wrong("an element too large", BIAS, put(1e4, 170, 130)),
        Wrong("the sigmoid of -x", SIGMOID, of_product(lambda x, _: sigmoid(-x))),
        Wrong("tanh instead of the sigmoid", SIGMOID, of_product(lambda x, _: np.tanh(x))),
        Wrong("an element NaN", SIGMOID, put(np.nan, None, None)),
        Wrong("C updated by the previous step", MOMENTUM, _late_by_a_step),
        Wrong("V not stored", MOMENTUM, lambda values, x, _: np.stack([values[0], x["v"]])),
        # C keeps the part that weight decay should have removed.
        Wrong("no weight decay", MOMENTUM, lambda values, x, _: values + 2.0**-17 * x["c"].astype(np.float64)),
        Wrong("a step in the wrong direction", MOMENTUM, lambda values, x, _: values + 2.0**-5 * exact(None, x)),
        Wrong("an element of V NaN", MOMENTUM, put(np.nan, 1, None, None)),
        Wrong("C updated by the previous step", SAMPLED_MOMENTUM, _late_by_a_step),
        Wrong("an inner element of V NaN", SAMPLED_MOMENTUM, put(np.nan, 1, 700, 301)),
        Wrong("a row of V zero", SAMPLED_MOMENTUM, put(0.0, 1, None)),
    ),
)

#: Small problems, and problems that are sampled. The last groups of the first problem have one row or none.
GROUPED = (
    ("gemm/m40n70k90/f32/NT/groups12-skewed", "fp32"),
    ("gemm/m301n90k80/bf16.f32/NN/groups7-equal", "bf16"),
    ("gemm/m2100n1100k700/f32/NT/groups3-skewed", "fp32"),
)
#: Returns changed edges and matrices, given the edges of the groups and the number of each group's matrix.
Regroup = Callable[[list[int], list[int]], tuple[list[int], list[int]]]


def grouped(problem: Any, inputs: Inputs, change: Regroup = lambda edges, of: (edges, of)) -> Array:
    """Return each group's rows times its matrix in float64; `change` may alter the groups' edges and matrices."""
    a, b = float64(inputs, "a", "b")
    b = b.transpose(0, 2, 1) if problem.op_b == "T" else b
    edges, matrices = change(list(problem.group_rows), list(range(problem.groups)))
    return np.concatenate([a[i:j] @ b[g] for (i, j), g in zip(pairwise(edges), matrices, strict=True)])


def regrouped(problem: str, change: Regroup) -> Spoil:
    """Return a function that replaces the result by the product of groups that `change` has altered."""
    return lambda _c, inputs, _rng: grouped(discover().problem(problem), inputs, change)


def row_unwritten(problem: str) -> Spoil:
    """Return a function that leaves the last row of the first group unwritten (NaN)."""

    def spoil(values: Array, _inputs: Inputs, _rng: "np.random.Generator") -> None:
        parsed: Any = discover().problem(problem)
        values[parsed.group_rows[1] - 1] = np.nan

    return spoil


_REGROUPED: dict[str, Regroup] = {
    "each group times the previous group's B": lambda edges, of: (edges, [*of[-1:], *of[:-1]]),
    "one B for all groups": lambda edges, of: (edges, [0] * len(of)),
    "a group that ends a row late": lambda edges, of: ([0, edges[1] + 1, *edges[2:]], of),
    "a group that ends a row early": lambda edges, of: ([0, edges[1] - 1, *edges[2:]], of),
    "the last group times the previous group's B": lambda edges, of: (edges, [*of[:-1], of[-2]]),
}
GROUPS = Family(
    grouped,
    tuple(
        Wrong(name, problem, spoil, numerics)
        for problem, numerics in GROUPED
        for name, spoil in (
            *((name, regrouped(problem, change)) for name, change in _REGROUPED.items()),
            ("the last row of a group NaN", row_unwritten(problem)),
            ("an element NaN", put(np.nan, None, None)),
        )
    ),
)

BLOCK = 128
#: Square problems, so that scales of one operand also fit the other; the second problem is large enough to be sampled.
SCALED = tuple(f"gemm/{sizes}/e4m3.f32/NT/scale-blocks" for sizes in ("m300n300k700", "m900n900k800"))
#: Changes copies of the scales of A and B in place, or returns new ones.
Rescale = Callable[[Array, Array, "np.random.Generator"], tuple[Array, Array] | None]


def scaled(inputs: Inputs, of_a: Array, of_b: Array) -> Array:
    """Return the sum, in float64, of the partial products of all blocks along k, each times the block's scales."""
    a, b = float64(inputs, "a", "b")
    product = np.zeros((len(a), len(b)))
    for block, (rows, columns) in enumerate(zip(of_a, of_b.T, strict=True)):
        along_k = slice(block * BLOCK, (block + 1) * BLOCK)
        scales = np.multiply.outer(rows.astype(np.float64), np.repeat(columns, BLOCK)[: len(b)])
        product += scales * (a[:, along_k] @ b[:, along_k].T)
    return product


def rescaled(change: Rescale) -> Spoil:
    """Return a function that replaces the result by the product with scales that `change` has altered."""

    def spoil(_c: Array, inputs: Inputs, rng: "np.random.Generator") -> Array:
        scales = inputs["scale_a"].copy(), inputs["scale_b"].copy()
        return scaled(inputs, *(change(*scales, rng) or scales))

    return spoil


def _block_unscaled(a: Array, b: Array, rng: "np.random.Generator") -> None:
    block = int(rng.integers(len(a)))
    a[block] = b[:, block] = 1


def _scale_stale(a: Array, _b: Array, rng: "np.random.Generator") -> None:
    a[int(rng.integers(len(a))), int(rng.integers(a.shape[1]))] = rng.uniform(-1, 1)


_RESCALED: dict[str, Rescale] = {
    "no scales of A": lambda a, b, _: (np.ones_like(a), b),
    "no scales of B": lambda a, b, _: (a, np.ones_like(b)),
    "a block of k without its scales": _block_unscaled,
    "scales of A from the previous block": lambda a, b, _: (np.roll(a, 1, axis=0), b),
    "scales of A from the previous row": lambda a, b, _: (np.roll(a, 1, axis=1), b),
    "scales of B from the previous block": lambda a, b, _: (a, np.roll(b, 1, axis=1)),
    "scales of B from the previous columns": lambda a, b, _: (a, np.roll(b, 1, axis=0)),
    # A gets the scales of B, and B gets the scales of every 128th row of A.
    "scales of A and B exchanged": lambda a, b, _: (np.repeat(b.T, BLOCK, axis=1)[:, : a.shape[1]], a[:, ::BLOCK].T),
    "scales rounded to BF16": lambda a, b, _: (nearest(8)(a), nearest(8)(b)),
    "a scale of one row stale": _scale_stale,
}
SCALES = Family(
    lambda _problem, inputs: scaled(inputs, inputs["scale_a"], inputs["scale_b"]),
    tuple(
        Wrong(name, problem, spoil, "e4m3")
        for problem in SCALED
        for name, spoil in (
            *((name, rescaled(change)) for name, change in _RESCALED.items()),
            ("an element NaN", put(np.nan, None, None)),
        )
    ),
)

#: The lengths of reductions that are tried with worse arithmetic than declared.
LENGTHS = (16, 256, 1024, 4096, 26752)


def operands(rounded: Callable[[Array], Array]) -> Spoil:
    """Return a function that rounds the operands before they are multiplied."""
    return lambda _c, inputs, _rng: rounded(inputs["a"]) @ rounded(inputs["b"])


def sums(chunk: int, bits: int, *, chained: bool = False) -> Spoil:
    """Return a function that rounds each sum of `chunk` products (if `chained`: the total so far) to `bits` bits."""
    rounded = nearest(bits)

    def spoil(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> Array:
        a, b = float64(inputs, "a", "b")
        total = np.zeros_like(c)
        for start in range(0, a.shape[1], chunk):
            part = a[:, start : start + chunk] @ b[start : start + chunk]
            total = rounded(total + part) if chained else total + rounded(part)
        return total

    return spoil


def unpromoted(c: Array, inputs: Inputs, _rng: "np.random.Generator") -> Array:
    """Add products as Hopper does in FP8: 32 at a time, with terms and sums truncated to 14 bits (dtypes.py)."""
    a, b = float64(inputs, "a", "b")
    totals = np.zeros((*c.shape, 1))
    for start in range(0, a.shape[1], 32):
        products = a[:, None, start : start + 32] * b[start : start + 32].T
        terms = np.concatenate([totals, products], axis=2)
        unit = np.exp2(np.frexp(abs(terms).max(axis=2, keepdims=True))[1] - 14)
        totals = np.floor(terms / unit).sum(axis=2, keepdims=True) * unit
    return totals[..., 0]


def _worse_arithmetic(k: int) -> tuple[Wrong, ...]:
    f32, f16, fp8, stored = (f"gemm/m48n48k{k}/{dtype}/NN" for dtype in ("f32", "f16.f32", "e4m3.f32", "f16"))
    seen = 0.99 if k < 20000 else None  # right sums longer than that have errors as large
    return (
        Wrong("operands of 8 bits (BF16)", f32, operands(nearest(8)), "tf32"),
        Wrong("operands of 11 bits (TF32)", f32, operands(nearest(11)), "3xtf32"),
        Wrong("operands of 11 bits, truncated (TF32)", f32, operands(truncated(11)), "fp32"),
        Wrong("operands of 11 bits (TF32)", f32, operands(nearest(11)), "strassen"),
        Wrong("operands of 17 bits", f32, operands(nearest(17)), "fp32", seen),
        Wrong("sums of 16 products in FP16", f16, sums(16, 11), "f16", seen),
        *([Wrong("FP8 sums that are not promoted", fp8, unpromoted, "e4m3")] if 16 < k < 20000 else []),
        # A single sum of 16 products is rounded to FP16 once, as a right result is when it is stored.
        Wrong("sums of 16 products in FP16", stored, sums(16, 11), "f16", seen if k > 16 else None),
        Wrong("one chain in FP16", f16, sums(1, 11, chained=True), "f16"),
    )


ARITHMETIC = Family(exact, tuple(wrong for k in LENGTHS for wrong in _worse_arithmetic(k)))
