"""Convolution on the CPU by FFTW: whole images, and tiles of them."""

import math
from functools import lru_cache
from operator import mul
from typing import Any

from kernelmark import DeviceLimits, Launch, Prefer, Tile, kernel
from kernels.conv.fft._tiling import Cuts, Sides, cheapest, cuts, executed, spans, whole
from kernels.conv.problem import ConvOperands, ConvProblem

#: Sides that FFTW is quick at (24 and 40 were 1.5 times slower a point).
SIDES = (8, 12, 16, 20, 32, 48, 64, 80, 96, 128, 192, 256)
#: KiB of a batch of tiles, which with its spectra stays in a second-level cache, and MiB that the spectra of a block of
#: tiles may take together: more tiles at a time read the filters' less often.
BATCH, BLOCK = 128, 64
_MEMORY = {"BATCH": (32, 64, 128, 256, 512), "BLOCK": (16, 64, 256)}
#: The model's seconds for each part of `work`, on one thread: only their ratios count.
SECONDS = (1 / 25e9, 1 / 100e9, 1 / 12e9, 0.3e-6)
_FFTW: dict[str, Any] = {
    "provider": "pyfftw",
    "device": "cpu",
    "dtypes": ("f32",),
    "numerics": "fft",
    "modules": ("numpy", "numba", "pyfftw", "scipy", "threadpoolctl"),
    "threaded": True,
}


@lru_cache
def chosen(p: ConvProblem) -> Sides:
    """The sides that the model takes for the fastest."""
    return cheapest(p, sorted({*SIDES, *whole(p)}), _seconds)


def at_once(c: Cuts, mib: float) -> int:
    """Tiles that are transformed at a time, with that much memory for their spectra."""
    tiles = c.x.places
    return math.ceil(tiles / min(tiles, math.ceil(_spectra_bytes(c, tiles) / (mib * 2**20))))


def sides(p: ConvProblem, t: Tile) -> Sides:
    """The sides that the tile has, those of the model where they are 0."""
    height, width = chosen(p)
    return t.HEIGHT or height, t.WIDTH or width


def _valid(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    for name, side, least, most in zip(("HEIGHT", "WIDTH"), (t.HEIGHT, t.WIDTH), spans(p), whole(p), strict=True):
        if side and not least <= side <= most:
            return f"{name} is {side}, expected {least}, the filter's, to {most}, that of a whole image"
    return None


def _spectra_bytes(c: Cuts, tiles: int) -> int:
    """Spectra of as many tiles of both images, without the filters'."""
    return 8 * c.frequencies * tiles * c.x.groups * (c.x.channels + c.y.channels)


def work(c: Cuts) -> tuple[float, ...]:
    """What a convolution by tiles is made of: flop of transforms and of products, bytes of spectra, calls of BLAS."""
    block = at_once(c, BLOCK)
    blocks = math.ceil(c.x.places / block)
    moved = 2 * _spectra_bytes(c, block) * blocks + 8 * c.frequencies * c.w.planes * (1 + blocks)
    return c.transform_flop, 8 * c.products, moved, c.frequencies * c.x.groups * blocks


def _seconds(c: Cuts) -> float:
    return float(sum(map(mul, SECONDS, work(c))))


def _launch(problem: ConvProblem, x: ConvOperands, taken: Sides) -> Launch:
    from kernels.conv.fft._spectra import by_fftw, spectral

    c = cuts(problem, taken)
    return spectral(problem, x, c, at_once(c, x.tile.BLOCK), by_fftw)


@kernel(
    "conv",
    executed=lambda p, t: executed(cuts(p, whole(p)), 8),
    tunables=_MEMORY,
    prefer=Prefer(({"BATCH": BATCH, "BLOCK": BLOCK},)),
    **_FFTW,
)
def full(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of whole images and of filters as large, CGEMM for each frequency."""
    return _launch(problem, x, whole(problem))


@kernel(
    "conv",
    executed=lambda p, t: executed(cuts(p, sides(p, t)), 8),
    tunables={"HEIGHT": (0, *SIDES), "WIDTH": (0, *SIDES), **_MEMORY},
    valid=_valid,
    prefer=Prefer(({"HEIGHT": 0, "WIDTH": 0, "BATCH": BATCH, "BLOCK": BLOCK},)),
    **_FFTW,
)
def tiled(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of overlapping tiles, CGEMM for each frequency; the tile's side chosen by a model of cost."""
    return _launch(problem, x, sides(problem, x.tile))


#: Sides of tiles for which there is straight code; up to these, any product of 2, 3, 5 and 7.
SHORT = (8, 12, 16, 20, 24, 32, 40, 48, 64, 96)


@lru_cache
def short(p: ConvProblem) -> Sides:
    """The sides for lanes."""
    return cheapest(p, SHORT, _seconds)


def sides_short(p: ConvProblem, t: Tile) -> Sides:
    height, width = short(p)
    return t.HEIGHT or height, t.WIDTH or width


@kernel(
    "conv",
    provider="numba",
    device="cpu",
    dtypes=("f32",),
    numerics="fft",
    modules=("numba",),
    threaded=True,
    executed=lambda p, t: executed(cuts(p, sides_short(p, t)), 8),
    tunables={"HEIGHT": (0, *SHORT), "WIDTH": (0, *SHORT), **_MEMORY},
    valid=_valid,
    prefer=Prefer(({"HEIGHT": 0, "WIDTH": 0, "BATCH": BATCH, "BLOCK": BLOCK},)),
)
def fft_tiled(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of overlapping tiles, one in each lane of vectors; complex products in vector registers."""
    from kernels.conv.fft._spectra import in_lanes, spectral

    c = cuts(problem, sides_short(problem, x.tile))
    return spectral(problem, x, c, at_once(c, x.tile.BLOCK), in_lanes)
