"""Convolution on the CPU by FFTs: FFTW transforms whole images or tiles, kernelmark's own transforms only tiles."""

import math
from collections.abc import Callable
from functools import lru_cache
from operator import mul
from typing import Any

from kernelmark import DeviceLimits, Launch, Prefer, Tile, kernel
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.conv.fft._tiling import Cuts, Sides, cheapest, cuts, executed, spans, whole
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem

#: Sides at which FFTW is fast (24 and 40 took 1.5 times as long per point).
SIDES = (8, 12, 16, 20, 32, 48, 64, 80, 96, 128, 192, 256)
#: Sides of kernelmark's transforms; their code has no loops and grows with the side.
STRAIGHT = (8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96)
#: BATCH: KiB of a batch of tiles, which stays in a second-level cache with its spectra. BLOCK: the most MiB of the
#: spectra of a block of tiles; with more tiles at a time, the filters' spectra are read less often.
BATCH, BLOCK = 128, 64
_MEMORY = {"BATCH": (32, 64, 128, 256, 512), "BLOCK": (16, 64, 256)}
#: From this many MiB on, an operand's spectra are written past the caches: more than second-level caches hold.
STREAM = 4
#: The model's seconds for each part of `work`, on one thread: only their ratios count.
SECONDS = (1 / 25e9, 1 / 100e9, 1 / 12e9, 0.3e-6)
#: The same for kernelmark's transforms: fitted to runs of train-numba-fft-tiles by non-negative least squares of
#: relative errors.
STRAIGHT_SECONDS = (2.5e-12, 9.5e-12, 79e-12, 0.23e-6)
_ANY: dict[str, Any] = {"device": "cpu", "dtypes": ("f32",), "numerics": "fft", "threaded": True}
_FFTW: dict[str, Any] = {"provider": "pyfftw", "modules": ("numpy", "numba", "pyfftw"), **_ANY}


@lru_cache
def chosen(p: ConvProblem) -> Sides:
    """Return the height and width of the tile that is fastest with FFTW according to the model."""
    return cheapest(p, sorted({*SIDES, *whole(p)}), _seconds)


@lru_cache
def straight(p: ConvProblem) -> Sides:
    """Return the height and width of the tile that is fastest with kernelmark's transforms according to the model."""
    return cheapest(p, STRAIGHT, _straight_seconds)


def at_once(c: Cuts, mib: float) -> int:
    """Return how many tiles to transform at a time so that their spectra take `mib` MiB of memory."""
    tiles = c.x.places
    return math.ceil(tiles / min(tiles, math.ceil(_spectra_bytes(c, tiles) / (mib * 2**20))))


def sides(p: ConvProblem, t: Tile, by_model: Callable[[ConvProblem], Sides]) -> Sides:
    """Return the tile's height and width: the tunables HEIGHT and WIDTH, or the model's choice where one is 0."""
    height, width = by_model(p)
    return t.HEIGHT or height, t.WIDTH or width


def _valid(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    for name, side, least, most in zip(("HEIGHT", "WIDTH"), (t.HEIGHT, t.WIDTH), spans(p), whole(p), strict=True):
        if side and not least <= side <= most:
            return f"{name} is {side}, expected {least} (the filter's) to {most} (a whole image's)"
    return None


def _too_long(p: ConvProblem) -> str | None:
    """Return why no tile of kernelmark's transforms is large enough for a filter, or None."""
    for name, span in zip("rs", spans(p), strict=True):
        if span > STRAIGHT[-1]:
            return f"{name} spans {span} elements, expected at most {STRAIGHT[-1]}, the side of the largest tile"
    return None


def _spectra_bytes(c: Cuts, tiles: int) -> int:
    """Return the bytes of the spectra of this many tiles of x and of y, without the filters' spectra."""
    return 8 * c.frequencies * tiles * c.x.groups * (c.x.channels + c.y.channels)


def work(c: Cuts) -> tuple[float, ...]:
    """Return the work of a convolution: flop of transforms, flop of products, bytes of spectra, number of products."""
    block = at_once(c, BLOCK)
    blocks = math.ceil(c.x.places / block)
    moved = 2 * _spectra_bytes(c, block) * blocks + 8 * c.frequencies * c.w.planes * (1 + blocks)
    return c.transform_flop, 8 * c.products, moved, c.frequencies * c.x.groups * blocks


def _seconds(c: Cuts) -> float:
    return float(sum(map(mul, SECONDS, work(c))))


def _straight_seconds(c: Cuts) -> float:
    return float(sum(map(mul, STRAIGHT_SECONDS, work(c))))


def _launch(problem: ConvProblem, x: ConvOperands, taken: Sides, is_in_lanes: bool) -> Launch:
    from kernelmark.kernels.conv.fft._spectra import by_fftw, in_lanes, spectral

    c = cuts(problem, taken)
    return spectral(problem, x, c, at_once(c, x.tile.BLOCK), in_lanes if is_in_lanes else by_fftw)


@kernel(
    "conv",
    executed=lambda p, t: executed(cuts(p, whole(p)), 8),
    tunables=_MEMORY,
    prefer=Prefer(({"BATCH": BATCH, "BLOCK": BLOCK},)),
    **_FFTW,
)
@threads_that_pay(compiled=False)
def full(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of whole images and of filters of the same size, with a complex product per frequency."""
    return _launch(problem, x, whole(problem), is_in_lanes=False)


@kernel(
    "conv",
    executed=lambda p, t: executed(cuts(p, sides(p, t, chosen)), 8),
    tunables={"HEIGHT": (0, *SIDES), "WIDTH": (0, *SIDES), **_MEMORY},
    valid=_valid,
    prefer=Prefer(({"HEIGHT": 0, "WIDTH": 0, "BATCH": BATCH, "BLOCK": BLOCK},)),
    **_FFTW,
)
@threads_that_pay(compiled=False)
def tiled(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of overlapping tiles, with a complex product per frequency; a cost model chooses the tile's side."""
    return _launch(problem, x, sides(problem, x.tile, chosen), is_in_lanes=False)


@kernel(
    "conv",
    provider="numba",
    modules=("numpy", "numba"),
    supports=_too_long,
    executed=lambda p, t: executed(cuts(p, sides(p, t, straight)), 8),
    tunables={"HEIGHT": (0, *STRAIGHT), "WIDTH": (0, *STRAIGHT), **_MEMORY, "STREAM": (0, STREAM, 32, 1024)},
    valid=_valid,
    prefer=Prefer(({"HEIGHT": 0, "WIDTH": 0, "BATCH": BATCH, "BLOCK": BLOCK, "STREAM": STREAM},)),
    **_ANY,
)
@threads_that_pay()
def fft_tiled(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of overlapping tiles, one per vector lane, with complex products in vector registers."""
    return _launch(problem, x, sides(problem, x.tile, straight), is_in_lanes=True)
