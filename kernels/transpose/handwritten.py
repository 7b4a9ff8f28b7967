"""Our own transpositions in `cuda/transpose`: pure plans of launches. They move bits, so every storage type will do."""

from collections.abc import Callable
from typing import Any

from kernelmark import KernelCall, Tile, cuda_kernel
from kernels.transpose.problem import TransposeProblem

_BITS: dict[str, Any] = {"dtypes": ("f64", "f32", "f16", "bf16"), "numerics": "exact"}
_TILE = {"TILE": (32,), "ROWS": (8, 4, 16)}
GRID_LIMIT = 65535  # blocks along y, on every compute capability


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _rows_within_grid(width: int) -> Callable[[TransposeProblem], str | None]:
    """The predicate for kernels whose blocks cover `width` rows along the grid's y."""

    def supports(p: TransposeProblem) -> str | None:
        if p.m <= GRID_LIMIT * width:
            return None
        return f"m is {p.m}, expected at most {GRID_LIMIT * width}: a grid has {GRID_LIMIT} blocks along y"

    return supports


def _square(p: TransposeProblem) -> str | None:
    if p.m != p.n:
        return f"transposes square matrices only; m is {p.m} and n is {p.n}"
    return _rows_within_grid(2 * 32)(p)  # the grid is folded: two tiles for each of its rows


@cuda_kernel(
    "transpose",
    source="transpose/naive.cu",
    entry="transpose_naive<bits::{dtype}>",
    places=("out",),
    supports=_rows_within_grid(8),
    **_BITS,
)
def naive(p: TransposeProblem, t: Tile) -> list[KernelCall]:
    """One thread an element, coalesced reads and strided writes."""
    return [KernelCall((_ceil_div(p.n, 32), _ceil_div(p.m, 8)), (32, 8), ("a", "b", p.m, p.n))]


@cuda_kernel(
    "transpose",
    source="transpose/tiled.cu",
    entry="transpose_tiled<bits::{dtype}, {TILE}, {ROWS}>",
    places=("out",),
    tunables=_TILE,
    supports=_rows_within_grid(32),
    **_BITS,
)
def tiled(p: TransposeProblem, t: Tile) -> list[KernelCall]:
    """Through a padded tile in shared memory, coalesced on both sides."""
    grid = (_ceil_div(p.n, t.TILE), _ceil_div(p.m, t.TILE))
    return [KernelCall(grid, (t.TILE, t.ROWS), ("a", "b", p.m, p.n))]


@cuda_kernel(
    "transpose",
    source="transpose/square_inplace.cu",
    entry="transpose_square_inplace<bits::{dtype}, {TILE}, {ROWS}>",
    places=("in",),
    tunables=_TILE,
    supports=_square,
    **_BITS,
)
def tiled_inplace(p: TransposeProblem, t: Tile) -> list[KernelCall]:
    """Square matrices in place: a block swaps two tiles across the diagonal."""
    tiles = _ceil_div(p.n, t.TILE)
    return [KernelCall((tiles | 1, _ceil_div(tiles, 2)), (t.TILE, t.ROWS), ("a", p.n))]
