"""How an FFT convolution cuts its images into tiles, and which size of tile costs least by a model.

Overlap-save: a tile of side L yields L - r + 1 outputs of a filter of r taps. Strided outputs and dilated filters are
taken as dense ones with zeros between.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from kernels.conv.problem import ConvProblem

#: Sides that FFTW is quick at (24 and 40 were 1.5 times slower a point);
SIDES = (8, 12, 16, 20, 32, 48, 64, 80, 96, 128, 192, 256)
#: Bytes that the spectra of a block of tiles may take together: more tiles at a time read the filters' less often.
BLOCK_BYTES = 64 << 20
#: The model's rates a thread: only their ratios count. FFTW with 256-bit vectors, CGEMM, spectra through the caches.
_FFT_FLOP_PER_S, _GEMM_FLOP_PER_S, _BYTES_PER_S = 25e9, 100e9, 12e9
_CALL_S = 0.3e-6  # of BLAS, for one frequency


class Axis(NamedTuple):
    """One axis: `dense` outputs that `tiles` tiles of `side` yield, `step` each, for a filter that spans `taps`."""

    dense: int
    taps: int
    side: int
    step: int
    tiles: int


class Tiling(NamedTuple):
    """Tiles of a problem along height and width; `block` of all its `tiles` are transformed at a time."""

    height: Axis
    width: Axis
    tiles: int
    block: int

    @property
    def points(self) -> int:
        return self.height.side * self.width.side

    @property
    def frequencies(self) -> int:
        """Of a real tile: the others are conjugates of these."""
        return self.height.side * (self.width.side // 2 + 1)

    @property
    def name(self) -> int | str:
        """32, or 1x64 where the sides differ."""
        height, width = self.height.side, self.width.side
        return width if height == width else f"{height}x{width}"


@lru_cache
def cheapest(problem: ConvProblem) -> Tiling:
    """The tiling that the model takes for the fastest."""
    return min(_candidates(problem), key=lambda tiling: _seconds(problem, tiling))


@lru_cache
def whole(problem: ConvProblem) -> Tiling:
    """One tile an image."""
    (dense_h, taps_h), (dense_w, taps_w) = _extents(problem)
    return _tiling(problem, good_size(dense_h + taps_h - 1), good_size(dense_w + taps_w - 1))


def executed(problem: ConvProblem, tiling: Tiling) -> int:
    """Floating-point operations: half of 5 N log2 N a real transform, and 8 a complex multiply-add."""
    return round(_transform_flop(problem, tiling)) + _product_flop(problem, tiling)


def good_size(size: int) -> int:
    """The next product of 2, 3, 5 and 7 that is even, or 1."""
    candidate = size + (size > 1 and size % 2)
    while _rest(candidate) > 1:
        candidate += 2
    return candidate


def _rest(number: int) -> int:
    for prime in (2, 3, 5, 7):
        while number % prime == 0:
            number //= prime
    return number


def _extents(problem: ConvProblem) -> tuple[tuple[int, int], tuple[int, int]]:
    """Dense outputs (of fprop and wgrad's y, of dgrad's x) and taps, of height and of width."""
    taps = [(n - 1) * d + 1 for n, d in ((problem.r, problem.dilation_h), (problem.s, problem.dilation_w))]
    if problem.direction == "dgrad":
        return (problem.h, taps[0]), (problem.w, taps[1])
    dense = [(n - 1) * s + 1 for n, s in ((problem.p, problem.stride_h), (problem.q, problem.stride_w))]
    return (dense[0], taps[0]), (dense[1], taps[1])


def _candidates(problem: ConvProblem) -> Iterator[Tiling]:
    (dense_h, taps_h), (dense_w, taps_w) = _extents(problem)
    for side in sorted({*SIDES, good_size(dense_h + taps_h - 1), good_size(dense_w + taps_w - 1)}):
        sides = [min(side, good_size(dense + taps - 1)) for dense, taps in ((dense_h, taps_h), (dense_w, taps_w))]
        if sides[0] >= taps_h and sides[1] >= taps_w:
            yield _tiling(problem, *sides)


def _tiling(problem: ConvProblem, side_h: int, side_w: int) -> Tiling:
    height, width = (
        Axis(dense, taps, side, side - taps + 1, math.ceil(dense / (side - taps + 1)))
        for (dense, taps), side in zip(_extents(problem), (side_h, side_w), strict=True)
    )
    tiles = problem.n * height.tiles * width.tiles
    tiling = Tiling(height, width, tiles, tiles)
    blocks = math.ceil(_spectra_bytes(problem, tiling) / BLOCK_BYTES)
    return tiling._replace(block=math.ceil(tiles / min(tiles, blocks)))


def _spectra_bytes(problem: ConvProblem, tiling: Tiling) -> int:
    return 8 * tiling.frequencies * tiling.block * (problem.c + problem.k)


def _transform_flop(problem: ConvProblem, tiling: Tiling) -> float:
    planes = tiling.tiles * (problem.c + problem.k) + problem.k * problem.c // problem.groups
    return 2.5 * tiling.points * math.log2(tiling.points) * planes


def _product_flop(problem: ConvProblem, tiling: Tiling) -> int:
    return 8 * tiling.frequencies * tiling.tiles * problem.k * (problem.c // problem.groups)


def _seconds(problem: ConvProblem, tiling: Tiling) -> float:
    blocks = math.ceil(tiling.tiles / tiling.block)
    filters = 8 * tiling.frequencies * problem.k * (problem.c // problem.groups)
    moved = 2 * _spectra_bytes(problem, tiling) * blocks + filters * (1 + blocks)
    return (
        _transform_flop(problem, tiling) / _FFT_FLOP_PER_S
        + _product_flop(problem, tiling) / _GEMM_FLOP_PER_S
        + moved / _BYTES_PER_S
        + tiling.frequencies * problem.groups * blocks * _CALL_S
    )
