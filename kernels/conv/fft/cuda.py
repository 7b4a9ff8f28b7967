"""Our own convolutions by the spectra of overlapping tiles (cuda/conv/fft_tiled.cu, fft_tiled_fused.cu)."""

import math

import numpy as np

from kernelmark import KernelCall, Scratch, Tile, cuda_kernel
from kernels._cuda import ceil_div
from kernels.conv.fft._matrices import (
    SIDES,
    THREADS,
    WASTE,
    Cut,
    cuts,
    fitting,
    frequencies,
    supports,
    transform_flop,
    wasteful,
)
from kernels.conv.problem import ConvProblem

#: Tiles of the product by their height BM: BN, BK, WM, WN, TM, TN, STAGES of fft_tiled_product.
PRODUCTS = {64: (64, 8, 32, 32, 8, 4, 3), 32: (64, 8, 32, 32, 8, 4, 3), 16: (32, 8, 16, 32, 4, 4, 3)}


def padded(p: ConvProblem, height: int) -> int:
    """Elements of the product at one frequency, with those that its tiles reach beyond."""
    a, b, _ = cuts(p, fitting(p)[0])
    width = PRODUCTS[height][0]
    return ceil_div(a.matrix[1], height) * height * ceil_div(b.matrix[1], width) * width


def _valid(p: ConvProblem, t: Tile) -> str | None:
    if reason := wasteful(p, t.T, fitting(p)):
        return reason
    found, least = padded(p, t.BM), min(padded(p, height) for height in PRODUCTS)
    if found <= WASTE * least:
        return None
    return f"products in tiles of {t.BM} rows have {found} elements where {least} are enough"


def executed(p: ConvProblem, side: int) -> int:
    """Transforms, and 8 for a complex multiply-add."""
    a, b, c = (cut.matrix for cut in cuts(p, side))
    transforms = (math.prod(a) + math.prod(b) + math.prod(c)) // 2 * transform_flop(side)
    return p.groups * (transforms + 8 * frequencies(side) * a[0] * a[1] * b[1])


@cuda_kernel(
    "conv",
    source="conv/fft_tiled.cu",
    entry="fft_tiled_product<{BM}>",
    min_arch=80,
    numerics="fft",
    dtypes=("f32",),
    layouts=("nchw",),
    supports=supports,
    valid=_valid,
    executed=lambda p: min(executed(p, side) for side in fitting(p)),
    tunables={"T": SIDES, "BM": tuple(PRODUCTS)},
)
def fft_tiled(p: ConvProblem, t: Tile) -> list[KernelCall]:
    """By FFT of overlapping tiles of T x T, and a complex product at each frequency."""
    a, b, c = cuts(p, t.T)
    spectra = [cut.spectrum(t.T, p.groups) for cut in (a, b, c)]
    return [
        _to_spectrum(a, spectra[0], t.T, p.groups),
        _to_spectrum(b, spectra[1], t.T, p.groups),
        _product(a, b, spectra, t, p.groups),
        _to_image(c, spectra[2], t.T, p.groups),
    ]


def _to_spectrum(cut: Cut, spectrum: Scratch, side: int, groups: int) -> KernelCall:
    entry = f"fft_tiled_spectrum<{side}, {_word(cut.by_channel)}, {_word(cut.conjugate)}>"
    args = (cut.name, spectrum, *cut.arguments(side, extent=True))
    return KernelCall(cut.grid(side, groups), THREADS, args, entry=entry)


def _product(a: Cut, b: Cut, spectra: list[Scratch], t: Tile, groups: int) -> KernelCall:
    width, depth, warp_m, warp_n, *_, stages = PRODUCTS[t.BM]
    (k, m), lda, ldb = a.matrix, a.ld(t.T), b.ld(t.T)
    grid = (ceil_div(m, t.BM) * ceil_div(ldb, width), groups, frequencies(t.T))
    threads = 32 * (t.BM // warp_m) * (width // warp_n)
    entry = f"fft_tiled_product<{', '.join(map(str, (t.BM, *PRODUCTS[t.BM])))}>"
    return KernelCall(grid, threads, (*spectra, m, k, lda, ldb), 8 * stages * depth * (t.BM + width), entry)


def _to_image(cut: Cut, spectrum: Scratch, side: int, groups: int) -> KernelCall:
    entry = f"fft_tiled_image<{side}, {_word(cut.by_channel)}>"
    args = (spectrum, cut.name, *cut.arguments(side, extent=False))
    return KernelCall(cut.grid(side, groups), THREADS, args, entry=entry)


def _word(value: bool) -> str:
    return str(value).lower()


def _held(p: ConvProblem) -> list[int]:
    """Sides of tiles of which a block of fft_fused holds one for each input channel."""
    channels = cuts(p, SIDES[0])[1].tensor.channels
    return [side for side in fitting(p) if channels <= THREADS // side]


def _few(p: ConvProblem) -> str | None:
    if reason := supports(p):
        return reason
    if _held(p):
        return None
    name, channels = ("k", p.k) if p.direction == "dgrad" else ("c", p.c)
    most = max(THREADS // side for side in fitting(p))
    return f"{name} / groups is {channels // p.groups}, expected at most {most}, the tiles of a block"


def executed_fused(p: ConvProblem, side: int) -> int:
    """Transforms of filters, inputs and outputs, and 8 for each complex multiply-add of two tiles with a filter."""
    _, b, c = cuts(p, side)
    both, inputs, outputs = b.places / 2, b.tensor.channels, c.tensor.channels
    transforms = int((inputs * outputs / 2 + both * (inputs + outputs)) * transform_flop(side))
    return p.groups * (transforms + int(8 * side**2 * both * inputs * outputs))


@cuda_kernel(
    "conv",
    source="conv/fft_tiled_fused.cu",
    entry="fft_fused<{T}>",
    numerics="fft",
    dtypes=("f32",),
    layouts=("nchw",),
    directions=("fprop", "dgrad"),
    supports=_few,
    valid=lambda p, t: wasteful(p, t.T, _held(p)),
    executed=lambda p: min(executed_fused(p, side) for side in _held(p)),
    tunables={"T": SIDES, "BLOCKS": (396, 1)},  # that fill a device, three on each of 132 multiprocessors; the least
)
def fft_fused(p: ConvProblem, t: Tile) -> list[KernelCall]:
    """By FFT of overlapping tiles of few channels, transformed, multiplied and transformed back in one block."""
    a, b, c = cuts(p, t.T)
    teams, inputs, outputs = THREADS // t.T, b.tensor.channels, c.tensor.channels
    filters = inputs * outputs * p.groups
    spectra = Scratch("spectrum_w", 8 * frequencies(t.T) * filters)
    pairs, rounds = ceil_div(b.places, 2), ceil_div(outputs, teams)
    share = ceil_div(rounds, min(rounds, ceil_div(t.BLOCKS, pairs * p.groups))) * teams
    sizes = (b.tensor.images, *b.tiles, *b.step)
    steps = (inputs, 1) if p.direction == "fprop" else (1, outputs)
    args = (*sizes, *_side(b), *_side(c), share, *steps, inputs * outputs)
    blocks, grid = ceil_div(filters, 2 * teams), (pairs, p.groups, ceil_div(outputs, share))
    entry = f"fft_fused_filters<{t.T}, {_word(a.conjugate)}>"
    return [
        KernelCall(blocks, THREADS, ("w", spectra, filters, p.r, p.s), entry=entry),
        KernelCall(grid, THREADS, (b.name, spectra, c.name, *args), _shared_bytes(t.T, inputs)),
    ]


def _side(cut: Cut) -> tuple[object, ...]:
    """What fft_fused wants to know of its input, or of its output."""
    t = cut.tensor
    return (t.channels, *t.size, *cut.first, np.int64(t.image_stride), np.int64(t.group_stride))


def _shared_bytes(side: int, inputs: int) -> int:
    """A tile for each input channel and for each team, padded as in fft/tile.cuh."""
    return 8 * (inputs + THREADS // side) * (ceil_div(side * (side + 1), 16) * 16 + side // 8)
