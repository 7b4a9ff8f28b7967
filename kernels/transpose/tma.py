"""Plan of a launch that transposes by Hopper's tensor memory accelerator (TMA), with tensor maps."""

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, TensorMap, Tile, cuda_kernel
from kernelmark.kernels._cuda import blocks_on_each, ceil_div, rows_of_16_bytes
from kernelmark.kernels.transpose.handwritten import BANDS, BITS, within_ints
from kernelmark.kernels.transpose.problem import TransposeProblem

SPAN = 1024  # alignment of tiles in bytes, and the most bytes that alignment may cost
BOX_BYTES = 128  # bytes of a tile's row that one copy moves, swizzled by the TMA
BLOCKS_PER_SM = 2  # blocks that fit into the shared memory of an H100's multiprocessor
BOX_ROWS = 256  # most rows that one copy moves
VECTOR = 16  # bytes; the TMA needs rows that begin at multiples of 16 bytes


def tile_width(p: TransposeProblem, squares: int) -> int:
    """Return the side of a tile in elements: `squares` times the elements of a vector of 16 bytes."""
    return squares * VECTOR // DTYPES[p.dtype].itemsize


def stages(p: TransposeProblem, t: Tile) -> int:
    """Return the number of tiles that a ring buffer of t.RING KiB holds."""
    return int(t.RING * 1024 // (tile_width(p, t.SQUARES) * t.SQUARES * VECTOR))


def _valid(p: TransposeProblem, t: Tile, _: DeviceLimits) -> str | None:
    if (width := tile_width(p, t.SQUARES)) > BOX_ROWS:
        return f"a tile has {width} rows, expected at most {BOX_ROWS}, which the TMA copies at once"
    count = stages(p, t)
    return None if count > 1 else f"a ring of {t.RING} KiB holds {count} tiles, expected at least 2"


@cuda_kernel(
    "transpose",
    source="transpose/tma.cu",
    entry="transpose_tma",
    places=("out",),
    min_arch=90,
    tunables={
        "SQUARES": (32, 8, 16, 24),  # 32 needs a larger ring than the default, which has no room for two such tiles
        "RING": (16, 48, 64, 96, 128, 192),
        "BLOCKS": (*map(blocks_on_each, (BLOCKS_PER_SM, 1, 4)), 1),
        "GROUP": BANDS,
    },
    supports=lambda p: rows_of_16_bytes(p) or within_ints(p),
    valid=_valid,
    prefer=Prefer(
        tuple(
            {"SQUARES": squares, "RING": ring, "BLOCKS": blocks, "GROUP": BANDS[0]}
            for squares in (16, 8)
            for ring in (96, 16)
            for blocks in (blocks_on_each(BLOCKS_PER_SM), 1)
        )
    ),
    **BITS,
)
def tma(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Tiles loaded and stored by the TMA, transposed in a swizzled ring in shared memory."""
    width = tile_width(p, t.SQUARES)
    grid = min(ceil_div(p.m, width) * ceil_div(p.n, width), t.BLOCKS)
    box = (width, BOX_BYTES // DTYPES[p.dtype].itemsize)
    args = (TensorMap("a", box, "128B"), TensorMap("b", box, "128B"), p.m, p.n)
    entry = f"transpose_tma<bits::{p.dtype}, {t.SQUARES}, {stages(p, t)}, {t.GROUP}>"
    return [KernelCall(grid, t.SQUARES**2, args, t.RING * 1024 + SPAN, entry)]
