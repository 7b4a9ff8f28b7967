"""Products of matrices in vector registers, against NumPy in float64: every order of operands, every ragged end."""

from itertools import product

import numpy as np
import pytest

pytest.importorskip("numba")

from kernelmark.kernels._host import ALONE, NEAR
from kernelmark.kernels._numba import jit
from kernelmark.kernels._order import DEPTH, FAR, FEW, PANELS
from kernelmark.kernels._packing import ROWS, VECTORS, WIDTH
from kernelmark.kernels._product import SCRATCH, multiply, multiplying
from kernelmark.kernels._tile import LANES, LINE, products

#: One, fewer than a tile, a tile, tiles and some more, and where tiles of a row less fit better.
M = (1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS - 1, 2 * (ROWS - 1), 5 * ROWS + 1)
#: Columns that leave as many as a panel for a second group of panels.
REST = PANELS * WIDTH + WIDTH
#: `ALONE` columns and more; lanes with one, `FEW` and more beyond whole vectors; several groups of panels.
N = (1, 2, ALONE, ALONE + 1, LANES - 1, LANES, LANES + 1, 2 * LANES + FEW + 1, WIDTH, WIDTH + FEW, REST - 1, REST)
K = (1, 5, LANES, LANES + 1, DEPTH + 3)
U = 2.0**-24


def stored(x: np.ndarray, order: str) -> tuple[np.ndarray, int, int, int]:
    """Return a copy in rows (N), columns (T), or rows too far apart to be read in place (F).

    Elements before it and after each of its rows are no numbers.
    """
    lines = x.T if order == "T" else x
    padded = np.full((len(lines) + 1, FAR + NEAR if order == "F" else lines.shape[1] + 3), np.nan, np.float32)
    padded[:-1, : lines.shape[1]] = lines
    flat = np.concatenate([np.full(5, np.nan, np.float32), padded.ravel()])
    return (flat, 5, 1, padded.shape[1]) if order == "T" else (flat, 5, padded.shape[1], 1)


@pytest.fixture(scope="module")
def compiled() -> np.ndarray:
    """What functions multiply with."""
    found: list[np.ndarray] = []

    def setup(product: np.ndarray):
        found.append(product)
        return lambda: None

    multiplying(setup)
    return found[0]


def matrix(x: tuple[np.ndarray, int, int, int], m: int, n: int) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(x[0][x[1] :], (m, n), (4 * x[2], 4 * x[3]))


@pytest.mark.parametrize("k", K)
def test_a_product_is_right_at_every_end_and_in_every_order(compiled: np.ndarray, k: int) -> None:
    rng, held = np.random.default_rng(17), np.full(SCRATCH, np.nan, np.float32)
    for m, n in product(M, N):
        a, b, before = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
        plain = a.astype(np.float64) @ b
        size = np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(before)
        for first, second, third, keep in product("NT", "NTF", "NT", (False, True)):
            c = stored(before if keep else np.full((m, n), np.nan, np.float32), third)
            outside = np.isnan(c[0]).sum() - (0 if keep else m * n)
            multiply(compiled, held, m, n, k, stored(a, first), stored(b, second), keep, c)
            error = np.abs(matrix(c, m, n) - plain - (before if keep else 0))
            assert (error <= (k + 2) * U * size).all(), f"{m} x {n}, {first}{second}{third}, added: {keep}"
            assert np.isnan(c[0]).sum() == outside  # nothing was stored beside the product


def test_each_step_of_a_wide_tile_fetches_a_row_and_another_line() -> None:
    tile = products((ROWS,), VECTORS)

    @jit
    def added(c, a, b):
        tile((ROWS, VECTORS * LANES), c, (0, WIDTH), False, a, (0, 1, ROWS), b, (0, WIDTH), len(a) // ROWS, (0, 0))

    added.compile("void(f4[::1], f4[::1], f4[::1])")  # type: ignore[attr-defined]
    (code,) = added.inspect_llvm().values()  # type: ignore[attr-defined]
    assert code.count("call void @llvm.prefetch") >= -(-VECTORS * LANES // LINE) + 1
