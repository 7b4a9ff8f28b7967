"""Launch plans of the direct convolutions in `cuda/conv`."""

from typing import NamedTuple

from kernelmark import DeviceLimits, KernelCall, Prefer, Tile, cuda_kernel
from kernelmark.kernels._cuda import GRID_LIMIT, ceil_div
from kernelmark.kernels.conv._geometry import divisor, fits_ints, geometry
from kernelmark.kernels.conv.problem import ConvProblem

WARP, WARPS = 32, 8  # the threads of a block of direct.cu
PLACES, FILTERS = 256, 32  # pixels and channels of a block of direct_tiled.cu
ROW = FILTERS + 4  # floats in a row of its weights in shared memory
SHARED_BYTES = 96 * 1024  # of a block: an sm_80 has room for one such block, an sm_90 for two, an sm_75 for none


def places(p: ConvProblem) -> tuple[int, int]:
    """Return the numbers of output pixels and of channels. For wgrad: of elements in a filter, and of filters."""
    if p.direction == "wgrad":
        return p.c // p.groups * p.r * p.s, p.k
    return (p.n * p.p * p.q, p.k) if p.direction == "fprop" else (p.n * p.h * p.w, p.c)


def _direct(p: ConvProblem) -> str | None:
    channels = max(p.c, p.k)
    if channels > GRID_LIMIT * WARPS:
        return f"an operand has {channels} channels, expected at most {GRID_LIMIT * WARPS}: they are blocks along y"
    return fits_ints(p)


@cuda_kernel(
    "conv",
    source="conv/direct.cu",
    entry="conv_direct_{direction}<{ctype}, Layout::{layout}>",
    supports=_direct,
    executed=lambda p: p.least_flop("fp32"),
)
def direct(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """One thread per element of the output, without staging."""
    along_places = p.layout == "nchw" or p.direction == "wgrad"
    width, height = (WARP, WARPS) if along_places else (WARPS, WARP)
    count, channels = places(p)
    grid = (ceil_div(count, width), ceil_div(channels, height))
    return [KernelCall(grid, (WARP, WARPS), ("x", "w", "y", geometry(p)))]


class Staged(NamedTuple):
    """A tile of direct_tiled.cu: columns of the output, and the rows and columns of the image that they need."""

    log_cols: int
    rows: int
    cols: int


def staged(p: ConvProblem) -> Staged:
    """Return the widest tile of 32, 16 or 8 columns that is more than half full, or otherwise the tile of 8."""
    log_cols = min(5, max(3, (_out(p)[1] - 1).bit_length()))
    across = 1 << log_cols
    rows = (PLACES // across - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1
    return Staged(log_cols, rows, (across - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1)


def staged_bytes(p: ConvProblem, channels: int) -> int:
    """Return the bytes of shared memory that hold the image's part and the filters for this many channels."""
    tile = staged(p)
    return 4 * (ceil_div(channels * tile.rows * tile.cols, 4) * 4 + channels * p.r * p.s * ROW)


def _out(p: ConvProblem) -> tuple[int, int]:
    return (p.p, p.q) if p.direction == "fprop" else (p.h, p.w)


def _filters(p: ConvProblem) -> int:
    return (p.k if p.direction == "fprop" else p.c) // p.groups


def _tiled(p: ConvProblem) -> str | None:
    if p.direction == "dgrad" and not p.unit_stride:
        return f"stride is {p.stride}, expected 1: dgrad is run as a forward convolution"
    blocks = max(p.n, p.groups * ceil_div(_filters(p), FILTERS))
    if blocks > GRID_LIMIT:
        return f"the grid has {blocks} blocks along y or z, expected at most {GRID_LIMIT}"
    return fits_ints(p)


def _fits_shared(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    wanted = staged_bytes(p, t.BC)
    return None if wanted <= SHARED_BYTES else f"{t.BC} channels take {wanted} bytes, expected at most {SHARED_BYTES}"


@cuda_kernel(
    "conv",
    source="conv/direct_tiled.cu",
    entry="conv_direct_tiled<{ctype}, {BC}, Direction::{direction}, Layout::{layout}>",
    directions=("fprop", "dgrad"),
    min_arch=80,
    tunables={"BC": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)},
    supports=_tiled,
    valid=_fits_shared,
    prefer=Prefer(({"BC": 4}, {"BC": 8}, {"BC": 1})),
)
def direct_tiled(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Image and filters are staged in shared memory, with 4 x 8 sums per thread."""
    tile, (rows, cols), of_filters = staged(p), _out(p), ceil_div(_filters(p), FILTERS)
    across = ceil_div(cols, 1 << tile.log_cols)
    grid = (ceil_div(rows, PLACES >> tile.log_cols) * across, p.groups * of_filters, p.n)
    operands = ("x", "w", "y") if p.direction == "fprop" else ("y", "w", "x")
    sizes = (tile.log_cols, across, of_filters, tile.rows, tile.cols, divisor(tile.cols))
    return [KernelCall(grid, PLACES, (*operands, *sizes, geometry(p)), staged_bytes(p, t.BC))]
