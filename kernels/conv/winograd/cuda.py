"""Winograd's minimal filtering in `cuda/conv`: F(2x2,3x3) in one kernel, F(4x4,3x3) as a batch of matrix products."""

from kernelmark import DeviceLimits, KernelCall, Prefer, Scratch, Tile, cuda_kernel
from kernels._cuda import GRID_LIMIT, ceil_div
from kernels.conv.problem import ConvProblem
from kernels.conv.winograd._cuda import (
    CHANNELS,
    DOMAIN,
    TILES,
    View,
    executed,
    filters,
    frequencies,
    supports,
    transformed,
    view,
)
from kernels.gemm._tiles import PACK, PIPELINE, pipelined, warps
from kernels.gemm.ladder import MIDDLE, SMALL, stages_bytes

#: For products of at most 64 filters.
LOW = MIDDLE | {"BM": 64, "WM": 32, "WN": 64}
#: KIB: of the transformed input and the products, as large as they may be at a time; 32 MiB stay in a large L2.
_CHUNKED = (MIDDLE | {"KIB": 2**20}, MIDDLE | {"KIB": 2**15}, LOW | {"KIB": 2**20}, SMALL | {"KIB": 64})


def round_up(a: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return ceil_div(a, unit) * unit


def _wide_enough(p: ConvProblem, width: int) -> str | None:
    """Why a tile of `width` filters, for which there is one of half as many, is not for `p`, or None."""
    k = view(p).k
    return None if 2 * k > width else f"{k} filters a group fill at most half of a tile of {width}"


@cuda_kernel(
    "conv",
    source="conv/winograd.cu",
    entry="winograd_fused<{BK}, Layout::{layout}>",
    numerics="winograd",
    tunables={"BK": (64, 32)},
    prefer=Prefer(({"BK": 64}, {"BK": 32}), lambda p, t, _: _wide_enough(p, t.BK) if t.BK > 32 else None),
    supports=supports(GRID_LIMIT),
    executed=executed(2),
    **DOMAIN,
)
def winograd(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Winograd F(2x2,3x3), transforms and products in one kernel, filters transformed beforehand."""
    v = view(p)
    ldk = round_up(v.k, t.BK)
    grid = (ceil_div(v.tiles(2), TILES) * (ldk // t.BK), v.groups)
    stages, exchange = 2 * CHANNELS * (t.BK + TILES), 32 * TILES
    args = (v.source, transformed(v, 2, ldk), v.target, v.n, v.c, v.h, v.w, v.k, v.p, v.q, v.top, v.left, ldk)
    return [filters(p, 2, ldk), KernelCall(grid, 256, args, 4 * frequencies(2) * max(stages, exchange))]


@cuda_kernel(
    "conv",
    source="conv/winograd4.cu",
    entry="winograd4_products<{BM}, {BN}, {BK}, {WM}, {WN}, {TM}, {TN}, {STAGES}>",
    numerics="winograd4",
    tunables={**PIPELINE, "KIB": (64, 2**13, 2**14, 2**15, 2**16, 2**20)},
    valid=lambda p, t, _: pipelined(t, (False, False), PACK),
    prefer=Prefer(_CHUNKED, lambda p, t, _: _wide_enough(p, t.BM) if t.BM > 64 else None),
    supports=supports(GRID_LIMIT // frequencies(4)),
    executed=executed(4),
    **DOMAIN,
)
def winograd4(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Winograd F(4x4,3x3): transforms, and 36 matrix products between them."""
    v = view(p)
    ldk, count = round_up(v.k, PACK), v.tiles(4)
    step = min(count, chunk(v, ldk, t))
    calls = [filters(p, 4, ldk)]
    for first in range(0, count, step):
        calls += _of_chunk(v, t, ldk, first, min(step, count - first), step)
    return calls


def chunk(v: View, ldk: int, t: Tile) -> int:
    """Tiles that are transformed and multiplied at a time."""
    fitting = 1024 * t.KIB // (4 * frequencies(4) * v.groups * (v.c + ldk))
    return max(TILES, int(fitting) // TILES * TILES)


def _of_chunk(v: View, t: Tile, ldk: int, first: int, count: int, most: int) -> list[KernelCall]:
    """The three passes over `count` tiles from `first` on. Scratch is for `most`."""
    ldt, channels, outputs = round_up(count, PACK), v.c * v.groups, v.k * v.groups
    plane = 4 * frequencies(4) * v.groups * round_up(most, PACK)
    made, products = Scratch("input", plane * v.c), Scratch("products", plane * ldk)
    across, batch = ceil_div(ldt, TILES), frequencies(4) * v.groups
    return [
        KernelCall(
            (across, ceil_div(channels, CHANNELS)),
            256,
            (v.source, made, v.n, channels, v.h, v.w, v.p, v.q, v.top, v.left, first, ldt),
            entry="winograd4_input<Layout::{layout}>",
        ),
        KernelCall(
            (ceil_div(ldt, t.BN), ceil_div(ldk, t.BM), batch),
            warps(t),
            (transformed(v, 4, ldk), made, products, v.c, ldk, ldt),
            stages_bytes(t),
        ),
        KernelCall(
            (across, ceil_div(outputs, CHANNELS)),
            256,
            (products, v.target, v.n, v.k, v.groups, v.p, v.q, first, ldk, ldt),
            entry="winograd4_output<Layout::{layout}>",
        ),
    ]
