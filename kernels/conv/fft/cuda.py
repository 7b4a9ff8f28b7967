"""Launch plans of convolution by the FFT of overlapping tiles (cuda/conv/fft_tiled.cu, fft_tiled_fused.cu)."""

import math
from collections.abc import Mapping

from kernelmark import DeviceLimits, KernelCall, Prefer, Scratch, Tile, cuda_kernel
from kernelmark.kernels._cuda import beyond_block, blocks_on_each, ceil_div
from kernelmark.kernels.conv.fft._matrices import (
    SIDES,
    THREADS,
    WASTE,
    Spectra,
    fitting,
    not_held,
    spectra,
    supports,
    wasteful,
)
from kernelmark.kernels.conv.fft._tiling import cuts, executed
from kernelmark.kernels.conv.problem import ConvProblem
from kernelmark.kernels.gemm._tiles import unlike_fragments, unshared, warps

#: Tiles of the product, by their height BM, with their tuning spaces.
PRODUCTS = tuple(
    dict(zip(("BM", "BN", "BK", "WM", "WN", "TM", "TN", "STAGES"), values, strict=True))
    for values in ((64, 64, 8, 32, 32, 8, 4, 3), (32, 64, 8, 32, 32, 8, 4, 3), (16, 32, 8, 16, 32, 4, 4, 3))
)
SPACE = {
    "T": SIDES,
    "BM": (16, 32, 64, 128),
    "BN": (32, 64, 128),
    "BK": (4, 8, 16),
    "WM": (16, 32, 64),
    "WN": (16, 32, 64),
    "TM": (2, 4, 8),
    "TN": (2, 4, 8),
    "STAGES": (2, 3, 4),
}
BLOCKS_PER_SM = 3  # blocks of fft_fused that fill a multiprocessor


def padded(p: ConvProblem, values: Mapping[str, int]) -> int:
    """Return the number of elements in the tiles that cover the product at one frequency."""
    a, b, _ = spectra(p, fitting(p)[0])
    return math.prod(ceil_div(x.matrix[1], values[side]) * values[side] for x, side in ((a, "BM"), (b, "BN")))


def _valid(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    if reason := not_held(t.T, fitting(p)) or unlike_fragments(t) or beyond_block(warps(t), 2 * t.TM * t.TN):
        return reason
    return unshared(warps(t), 0, t.BM // 2) or unshared(warps(t), 0, t.BN // 2)


def _unless(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    if reason := wasteful(p, t.T, fitting(p)):
        return reason
    elements, least = padded(p, vars(t)), min(padded(p, values) for values in PRODUCTS)
    if elements <= WASTE * least:
        return None
    return f"products in tiles of {t.BM} rows have {elements} elements where {least} are enough"


@cuda_kernel(
    "conv",
    source="conv/fft_tiled.cu",
    entry="fft_tiled_product<{BM}>",
    min_arch=80,
    numerics="fft",
    dtypes=("f32",),
    layouts=("nchw",),
    supports=supports,
    executed=lambda p, t: executed(cuts(p, (t.T, t.T)), 8),
    tunables=SPACE,
    valid=_valid,
    prefer=Prefer(tuple({"T": side, **values} for side in SIDES for values in PRODUCTS), _unless),
)
def fft_tiled(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """FFT of overlapping tiles of T x T, with a complex product per frequency."""
    a, b, c = spectra(p, t.T)
    return [_to_spectrum(a, t.T), _to_spectrum(b, t.T), _product(a, b, c, t), _to_image(c, t.T)]


def _to_spectrum(a: Spectra, side: int) -> KernelCall:
    entry = f"fft_tiled_spectrum<{side}, {_word(a.by_channel)}, {_word(a.cut.turned)}>"
    return KernelCall(a.grid, THREADS, (a.name, a.scratch, *a.arguments(extent=True)), entry=entry)


def _product(a: Spectra, b: Spectra, c: Spectra, t: Tile) -> KernelCall:
    k, m = a.matrix
    grid = (ceil_div(m, t.BM) * ceil_div(b.ld, t.BN), a.cut.groups, a.cut.frequencies)
    entry = f"fft_tiled_product<{t.BM}, {t.BN}, {t.BK}, {t.WM}, {t.WN}, {t.TM}, {t.TN}, {t.STAGES}>"
    args = (a.scratch, b.scratch, c.scratch, m, k, a.ld, b.ld)
    return KernelCall(grid, warps(t), args, 8 * t.STAGES * t.BK * (t.BM + t.BN), entry)


def _to_image(c: Spectra, side: int) -> KernelCall:
    entry = f"fft_tiled_image<{side}, {_word(c.by_channel)}>"
    return KernelCall(c.grid, THREADS, (c.scratch, c.name, *c.arguments(extent=False)), entry=entry)


def _word(value: bool) -> str:
    return str(value).lower()


def _inputs(p: ConvProblem) -> int:
    """Return the number of input channels of a group."""
    return (p.k if p.direction == "dgrad" else p.c) // p.groups


def _sides(p: ConvProblem) -> list[int]:
    """Return the sides of tiles for which a block of fft_fused has room for one tile per input channel."""
    return [side for side in fitting(p) if _inputs(p) <= THREADS // side]


def _refusal(p: ConvProblem) -> str | None:
    if reason := supports(p):
        return reason
    if _sides(p):
        return None
    name, most = "k" if p.direction == "dgrad" else "c", max(THREADS // side for side in fitting(p))
    return f"{name} / groups is {_inputs(p)}, expected at most {most}, the tiles of a block"


def _executed_fused(p: ConvProblem, side: int) -> int:
    """Return the operation count: transforms, plus 8 per complex multiply-add; two real tiles form one complex tile."""
    _, b, c = (operand.cut for operand in spectra(p, side))
    both, inputs, outputs = b.places / 2, b.channels, c.channels
    of_two = 5 * side**2 * int(math.log2(side**2))  # two real tiles are transformed as one complex tile
    transforms = int((inputs * outputs / 2 + both * (inputs + outputs)) * of_two)
    return p.groups * (transforms + int(8 * side**2 * both * inputs * outputs))


@cuda_kernel(
    "conv",
    source="conv/fft_tiled_fused.cu",
    entry="fft_fused<{T}>",
    numerics="fft",
    dtypes=("f32",),
    layouts=("nchw",),
    directions=("fprop", "dgrad"),
    supports=_refusal,
    executed=lambda p, t: _executed_fused(p, t.T),
    tunables={"T": SIDES, "BLOCKS": (*map(blocks_on_each, (BLOCKS_PER_SM, 1, 2, 4, 6)), 1)},
    valid=lambda p, t, _: not_held(t.T, _sides(p)),
    prefer=Prefer(
        tuple({"T": side, "BLOCKS": blocks} for side in SIDES for blocks in (blocks_on_each(BLOCKS_PER_SM), 1)),
        lambda p, t, _: wasteful(p, t.T, _sides(p)),
    ),
)
def fft_fused(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """FFT of overlapping tiles of few channels, with transforms and products in one block."""
    a, b, c = spectra(p, t.T)
    teams, inputs, outputs = THREADS // t.T, b.cut.channels, c.cut.channels
    filters = inputs * outputs * p.groups
    transformed = Scratch("spectrum_w", 8 * a.cut.frequencies * filters)
    pairs, rounds = ceil_div(b.cut.places, 2), ceil_div(outputs, teams)
    share = ceil_div(rounds, min(rounds, ceil_div(t.BLOCKS, pairs * p.groups))) * teams
    height, width = b.cut.height, b.cut.width
    sizes = (p.n, height.tiles, width.tiles, height.step, width.step)
    steps = (inputs, 1) if p.direction == "fprop" else (1, outputs)
    args = (*sizes, *_side(b), *_side(c), share, *steps, inputs * outputs)
    blocks, grid = ceil_div(filters, 2 * teams), (pairs, p.groups, ceil_div(outputs, share))
    entry = f"fft_fused_filters<{t.T}, {_word(a.cut.turned)}>"
    return [
        KernelCall(blocks, THREADS, ("w", transformed, filters, p.r, p.s), entry=entry),
        KernelCall(grid, THREADS, (b.name, transformed, c.name, *args), _shared_bytes(t.T, inputs)),
    ]


def _side(operand: Spectra) -> tuple[object, ...]:
    """Return the arguments of fft_fused that describe its input, or its output."""
    return (operand.cut.channels, *operand.sizes, *operand.first, *operand.strides)


def _shared_bytes(side: int, inputs: int) -> int:
    """Return the bytes of a tile per input channel and per team of `side` threads, padded as in fft/tile.cuh."""
    return 8 * (inputs + THREADS // side) * (ceil_div(side * (side + 1), 16) * 16 + side // 8)
