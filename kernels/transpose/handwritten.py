"""Plans of launches of transpositions in `cuda/transpose`, which move bits and so take any storage type."""

from collections.abc import Callable
from typing import Any

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Tile, cuda_kernel
from kernelmark.kernels._cuda import GRID_LIMIT, INT_LIMIT, ceil_div
from kernelmark.kernels.transpose.problem import TransposeProblem

BITS: dict[str, Any] = {"dtypes": ("f64", "f32", "f16", "bf16"), "numerics": "exact", "batchs": (1,)}
_TILE = {"TILE": (32,), "ROWS": (8, 4, 16)}
BANDS = (4, 1, 2, 8, 16)  # columns of tiles in a band (bands.cuh)
_GROUPS = (1, 4, 2, 8)  # tiles along the side of a group (pairs.cuh)


def within_ints(p: TransposeProblem) -> str | None:
    """Return why a kernel whose sizes are C ints cannot take `p`, or None."""
    large = ((name, size) for name, size in (("m", p.m), ("n", p.n)) if size > INT_LIMIT)
    return next((f"{name} is {size}, expected at most {INT_LIMIT}: it is a C int" for name, size in large), None)


def _rows_within_grid(width: int) -> Callable[[TransposeProblem], str | None]:
    """Return the predicate for kernels whose blocks cover `width` rows along the grid's y."""

    def supports(p: TransposeProblem) -> str | None:
        if p.m <= GRID_LIMIT * width:
            return within_ints(p)
        return f"m is {p.m}, expected at most {GRID_LIMIT * width}: a grid has {GRID_LIMIT} blocks along y"

    return supports


def _square(p: TransposeProblem, width: int = 32) -> str | None:
    if p.m != p.n:
        return f"transposes square matrices only; m is {p.m} and n is {p.n}"
    return _rows_within_grid(2 * width)(p)  # the grid is folded: two tiles for each of its rows


def _vector_tile(p: TransposeProblem) -> int:
    """Return the width of a tile of vectors.cuh: 16 vectors of 16 bytes."""
    return 16 * (16 // DTYPES[p.dtype].itemsize)


def _vector_tiles(p: TransposeProblem) -> int:
    return ceil_div(p.m, _vector_tile(p)) * ceil_div(p.n, _vector_tile(p))


def _vectors_within_grid(p: TransposeProblem) -> str | None:
    tiles = _vector_tiles(p)
    if tiles > INT_LIMIT:
        return f"A has {tiles} tiles, a block each, expected at most {INT_LIMIT}"
    return within_ints(p)


def _vectors_square(p: TransposeProblem) -> str | None:
    return _square(p, _vector_tile(p))


def _out_of_place(p: TransposeProblem, tile: tuple[int, int], block: tuple[int, int]) -> list[KernelCall]:
    """Return the launch that covers A with tiles of `tile` columns and rows."""
    return [KernelCall((ceil_div(p.n, tile[0]), ceil_div(p.m, tile[1])), block, ("a", "b", p.m, p.n))]


@cuda_kernel(
    "transpose",
    source="transpose/naive.cu",
    entry="transpose_naive<bits::{dtype}>",
    places=("out",),
    supports=_rows_within_grid(8),
    **BITS,
)
def naive(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """One thread per element, with coalesced reads and strided writes."""
    return _out_of_place(p, (32, 8), (32, 8))


_TILED = BITS | {"places": ("out",), "tunables": _TILE, "supports": _rows_within_grid(32)}


@cuda_kernel(
    "transpose",
    source="transpose/unpadded.cu",
    entry="transpose_unpadded<bits::{dtype}, {TILE}, {ROWS}>",
    **_TILED,
)
def unpadded(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Through a tile in shared memory, with each column in one bank."""
    return _out_of_place(p, (t.TILE, t.TILE), (t.TILE, t.ROWS))


@cuda_kernel(
    "transpose",
    source="transpose/tiled.cu",
    entry="transpose_tiled<bits::{dtype}, {TILE}, {ROWS}>",
    **_TILED,
)
def tiled(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Through a padded tile in shared memory, coalesced on both sides."""
    return _out_of_place(p, (t.TILE, t.TILE), (t.TILE, t.ROWS))


@cuda_kernel(
    "transpose",
    source="transpose/vectorised.cu",
    entry="transpose_vectorised<bits::{dtype}, {GROUP}>",
    places=("out",),
    tunables={"GROUP": BANDS},
    prefer=Prefer(({"GROUP": BANDS[0]},)),
    supports=_vectors_within_grid,
    **BITS,
)
def vectorised(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """128-bit accesses on both sides, through an XOR-swizzled tile."""
    return [KernelCall(_vector_tiles(p), (16, 16), ("a", "b", p.m, p.n))]


@cuda_kernel(
    "transpose",
    source="transpose/square_inplace.cu",
    entry="transpose_square_inplace<bits::{dtype}, {TILE}, {ROWS}, {GROUP}>",
    places=("in",),
    tunables=_TILE | {"GROUP": _GROUPS},
    prefer=Prefer(
        tuple({"TILE": 32, "ROWS": rows, "GROUP": group} for rows, group in ((8, 1), (4, 1), (16, 1), (8, 4)))
    ),
    supports=_square,
    **BITS,
)
def tiled_inplace(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Square matrices in place: a block swaps two tiles across the diagonal."""
    return [KernelCall(_pairs(p, t.TILE, t.GROUP), (t.TILE, t.ROWS), ("a", p.n))]


@cuda_kernel(
    "transpose",
    source="transpose/vectorised_inplace.cu",
    entry="transpose_vectorised_inplace<bits::{dtype}, {GROUP}>",
    places=("in",),
    tunables={"GROUP": _GROUPS},
    prefer=Prefer(({"GROUP": 1}, {"GROUP": 4})),
    supports=_vectors_square,
    **BITS,
)
def vectorised_inplace(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Square matrices in place: tiles swapped across the diagonal, 128-bit accesses."""
    return [KernelCall(_pairs(p, _vector_tile(p), t.GROUP), (16, 16), ("a", p.n))]


def _pairs(p: TransposeProblem, width: int, group: int) -> tuple[int, int]:
    """Return the grid of pairs.cuh: the tiles on and below the diagonal, folded into a rectangle."""
    groups = ceil_div(p.n, width * group)
    return group**2 * (groups | 1), ceil_div(groups, 2)
