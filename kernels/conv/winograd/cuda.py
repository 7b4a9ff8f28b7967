"""Winograd's minimal filtering in `cuda/conv`: F(2x2,3x3) in one kernel, F(4x4,3x3) as a batch of matrix products."""

from kernelmark import DeviceLimits, KernelCall, Prefer, Scratch, Tile, Tunable, cuda_kernel
from kernelmark.kernels._cuda import GRID_LIMIT, ceil_div, multiprocessors
from kernelmark.kernels.conv._sums import added, partials
from kernelmark.kernels.conv.problem import ConvProblem
from kernelmark.kernels.conv.winograd._cuda import (
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
from kernelmark.kernels.gemm._tiles import PACK, PIPELINE, pipelined, warps
from kernelmark.kernels.gemm.ladder import MIDDLE, SMALL, stages_bytes

#: F(2x2,3x3) cuts channels into slices of at least DEPTH if tiles and filters do not fill SMS multiprocessors.
_CUT: dict[str, Tunable] = {"SMS": multiprocessors, "DEPTH": 32}
#: For products of at most 64 filters.
LOW = MIDDLE | {"BM": 64, "WM": 32, "WN": 64}
#: KIB: the most KiB of transformed input and products at a time; 32 MiB stay in a large L2.
_CHUNKED = (MIDDLE | {"KIB": 2**20}, MIDDLE | {"KIB": 2**15}, LOW | {"KIB": 2**20}, SMALL | {"KIB": 64})


#: Filters and tiles of a block of winograd4_fused, which multiplies twelve frequencies at a time.
FUSED_FILTERS, FUSED_TILES, TOGETHER, THREADS = 64, 48, 12, 384


def round_up(a: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is not below `a`."""
    return ceil_div(a, unit) * unit


def _wide_enough(p: ConvProblem, width: int) -> str | None:
    """Return a reason if a group's filters fill at most half of a tile of `width` filters, else None."""
    k = view(p).k
    return None if 2 * k > width else f"{k} filters per group fill at most half of a tile of {width}"


def _blocks(v: View, t: Tile) -> int:
    """Return the number of blocks of F(2x2,3x3) for a slice of a group's channels."""
    return ceil_div(v.tiles(2), TILES) * ceil_div(v.k, t.BK)


def slices(p: ConvProblem, t: Tile) -> tuple[int, int]:
    """Divide the sum over channels into slices that fill the device; return their depth (at least DEPTH) and number."""
    v, resident = view(p), t.SMS * (64 // t.BK)
    wanted = max(1, min(resident // (_blocks(v, t) * v.groups), v.c // t.DEPTH))
    depth = round_up(ceil_div(v.c, wanted), CHANNELS)
    return depth, ceil_div(v.c, depth)


@cuda_kernel(
    "conv",
    source="conv/winograd.cu",
    entry="winograd_fused<{BK}, Layout::{layout}>",
    numerics="winograd",
    tunables={"BK": (64, 32), "SMS": (multiprocessors,), "DEPTH": (32, 8, 16, 64, 128)},
    prefer=Prefer(
        ({"BK": 64, **_CUT}, {"BK": 32, **_CUT}), lambda p, t, _: _wide_enough(p, t.BK) if t.BK > 32 else None
    ),
    supports=supports(GRID_LIMIT),
    executed=executed(2),
    **DOMAIN,
)
def winograd(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Winograd F(2x2,3x3): filters transformed first, then transforms and products in one kernel."""
    v, (depth, count) = view(p), slices(p, t)
    ldk = round_up(v.k, t.BK)
    stages, exchange = 2 * CHANNELS * (t.BK + TILES), 32 * TILES
    sizes = (v.n, v.c, v.h, v.w, v.k, v.p, v.q, v.top, v.left, ldk, depth)
    args = (v.source, transformed(v, 2, ldk), partials(p, count), *sizes)
    shared_bytes = 4 * frequencies(2) * max(stages, exchange)
    products = KernelCall((_blocks(v, t), v.groups, count), 256, args, shared_bytes)
    return [filters(p, 2, ldk), products, *added(p, count, "conv_sum<float>")]


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
    step = min(count, chunk(t, frequencies(4) * v.groups * (v.c + ldk), TILES))
    calls = [filters(p, 4, ldk)]
    for first in range(0, count, step):
        calls += _of_chunk(v, t, ldk, first, min(step, count - first), step)
    return calls


def chunk(t: Tile, floats: int, unit: int) -> int:
    """Return how many tiles to transform at a time, a multiple of `unit`; a tile takes `floats` floats of scratch."""
    return max(unit, int(1024 * t.KIB // (4 * floats)) // unit * unit)


def _input(v: View, made: Scratch, first: int, ldt: int) -> KernelCall:
    """Return the launch of the input's transform for ldt tiles from `first` on."""
    channels = v.c * v.groups
    return KernelCall(
        (ceil_div(ldt, TILES), ceil_div(channels, CHANNELS)),
        256,
        (v.source, made, v.n, channels, v.h, v.w, v.p, v.q, v.top, v.left, first, ldt),
        entry="winograd4_input<Layout::{layout}>",
    )


def _of_chunk(v: View, t: Tile, ldk: int, first: int, count: int, most: int) -> list[KernelCall]:
    """Return three launches (transform, product, inverse) for `count` tiles from `first` on; scratch is for `most`."""
    ldt, outputs = round_up(count, PACK), v.k * v.groups
    plane = 4 * frequencies(4) * v.groups * round_up(most, PACK)
    made, products = Scratch("input", plane * v.c), Scratch("products", plane * ldk)
    across, batch = ceil_div(ldt, TILES), frequencies(4) * v.groups
    return [
        _input(v, made, first, ldt),
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


@cuda_kernel(
    "conv",
    source="conv/winograd4_fused.cu",
    entry="winograd4_fused<Layout::{layout}, {STAGES}>",
    numerics="winograd4",
    tunables={"STAGES": (4, 3), "KIB": (2**20, 64, 2**13, 2**14, 2**15, 2**16)},
    prefer=Prefer(({"STAGES": 4, "KIB": 2**20}, {"STAGES": 3, "KIB": 64})),
    supports=supports(GRID_LIMIT),
    archs=("sm_90a",),  # others have less shared memory, or spill
    executed=executed(4),
    **DOMAIN,
)
def winograd4_fused(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Winograd F(4x4,3x3): products and the output's transform in one kernel, twelve frequencies at a time."""
    v = view(p)
    ldk, count, outputs = round_up(v.k, FUSED_FILTERS), v.tiles(4), 16
    panels = 4 * t.STAGES * CHANNELS * TOGETHER * (FUSED_FILTERS + FUSED_TILES)
    exchange = 4 * TOGETHER * (FUSED_FILTERS * FUSED_TILES + (2 * FUSED_FILTERS if p.layout == "nchw" else 0))
    step = min(round_up(count, FUSED_TILES), chunk(t, v.groups * (frequencies(4) * v.c + outputs * ldk), FUSED_TILES))
    made = Scratch("input", 4 * frequencies(4) * v.groups * v.c * step)
    partials = Scratch("kept", 4 * outputs * v.groups * ldk * step)
    calls = [filters(p, 4, ldk)]
    for first in range(0, count, step):
        ldt = round_up(min(step, count - first), FUSED_TILES)
        sizes = (v.n, v.c, v.k, v.p, v.q, first, ldk, ldt)
        grid = (ldk // FUSED_FILTERS * (ldt // FUSED_TILES), v.groups)
        args = (transformed(v, 4, ldk), made, partials, v.target, *sizes)
        calls += [_input(v, made, first, ldt), KernelCall(grid, THREADS, args, max(panels, exchange))]
    return calls
