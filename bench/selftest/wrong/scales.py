"""Products whose scales of blocks are forgotten, another block's, stale or rounded."""

from collections.abc import Callable

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.selftest.wrong.arithmetic import nearest
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong, put

BLOCK = 128
#: Square, so that the scales of either operand fit the other one; and large enough to be sampled.
WHOLE, SAMPLED = (f"gemm/{sizes}/e4m3.f32/NT/scale-blocks" for sizes in ("m300n300k700", "m900n900k800"))
#: Changes copies of the scales of A and of B in place, or returns others.
Change = Callable[[Array, Array, "np.random.Generator"], tuple[Array, Array] | None]


def exact(_problem: object, inputs: Inputs) -> Array:
    """The product in float64."""
    return product(inputs, inputs["scale_a"], inputs["scale_b"])


def product(inputs: Inputs, of_a: Array, of_b: Array) -> Array:
    """The product with these scales, block by block of k."""
    a, b = (inputs[name].astype(np.float64) for name in "ab")
    found = np.zeros((len(a), len(b)))
    for block, (rows, columns) in enumerate(zip(of_a, of_b.T, strict=True)):
        along_k = slice(block * BLOCK, (block + 1) * BLOCK)
        scales = np.multiply.outer(rows.astype(np.float64), np.repeat(columns, BLOCK)[: len(b)])
        found += scales * (a[:, along_k] @ b[:, along_k].T)
    return found


def with_scales(change: Change) -> Spoil:
    """Return what multiplies by scales that are changed."""

    def spoil(_c: Array, inputs: Inputs, rng: "np.random.Generator") -> Array:
        scales = inputs["scale_a"].copy(), inputs["scale_b"].copy()
        return product(inputs, *(change(*scales, rng) or scales))

    return spoil


def a_block_unscaled(a: Array, b: Array, rng: "np.random.Generator") -> None:
    """One block of k is added as it is."""
    block = int(rng.integers(len(a)))
    a[block] = b[:, block] = 1


def a_scale_stale(a: Array, _b: Array, rng: "np.random.Generator") -> None:
    """One block of a row has a scale of before."""
    a[int(rng.integers(len(a))), int(rng.integers(a.shape[1]))] = rng.uniform(-1, 1)


def exchanged(a: Array, b: Array, _rng: "np.random.Generator") -> tuple[Array, Array]:
    """A has the scales of B, and B those of the first of each 128 rows of A."""
    return np.repeat(b.T, BLOCK, axis=1)[:, : a.shape[1]], a[:, ::BLOCK].T


SCALES = Family(
    exact,
    tuple(
        Wrong(name, problem, spoil, "e4m3")
        for problem in (WHOLE, SAMPLED)
        for name, spoil in (
            ("no scales of A", with_scales(lambda a, b, _: (np.ones_like(a), b))),
            ("no scales of B", with_scales(lambda a, b, _: (a, np.ones_like(b)))),
            ("a block of k without its scales", with_scales(a_block_unscaled)),
            ("scales of A of the block before", with_scales(lambda a, b, _: (np.roll(a, 1, axis=0), b))),
            ("scales of A of the row before", with_scales(lambda a, b, _: (np.roll(a, 1, axis=1), b))),
            ("scales of B of the block before", with_scales(lambda a, b, _: (a, np.roll(b, 1, axis=1)))),
            ("scales of B of the columns before", with_scales(lambda a, b, _: (a, np.roll(b, 1, axis=0)))),
            ("scales of A and B exchanged", with_scales(exchanged)),
            ("scales rounded to BF16", with_scales(lambda a, b, _: (nearest(8)(a), nearest(8)(b)))),
            ("a scale of one row stale", with_scales(a_scale_stale)),
            ("an element NaN", put(np.nan, None, None)),
        )
    ),
)
