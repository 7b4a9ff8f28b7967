"""The spectra of tiles as matrices, in the layout of the transforms in cuda/conv/fft_tiled*.cu."""

from typing import Any, NamedTuple

import numpy as np

from kernelmark import Scratch
from kernelmark.kernels._cuda import GRID_LIMIT, INT_LIMIT, ceil_div
from kernelmark.kernels.conv.fft._tiling import Cut, cuts
from kernelmark.kernels.conv.problem import ConvProblem

THREADS = 128  # threads of a block that transforms; each thread has a column of each of two tiles
SIDES = (32, 16)
#: A side or a tile is refused if it costs more than this many times the cheapest one.
WASTE = 1.5


class Spectra(NamedTuple):
    """An operand's spectra at one frequency: a matrix whose rows are channels if `by_channel`, otherwise tiles."""

    name: str
    cut: Cut
    by_channel: bool

    @property
    def matrix(self) -> tuple[int, int]:
        """Return the rows and columns of the matrix."""
        size = (self.cut.channels, self.cut.places)
        return size if self.by_channel else size[::-1]

    @property
    def ld(self) -> int:
        """Return the number of columns, rounded up to a multiple of the columns that a block transforms."""
        width = 2 * THREADS // self.cut.height.side
        return ceil_div(self.matrix[1], width) * width

    @property
    def scratch(self) -> Scratch:
        """Return the scratch buffer of all spectra of all groups."""
        elements = self.cut.frequencies * self.cut.groups * self.matrix[0] * self.ld
        return Scratch(f"spectrum_{self.name}", 8 * elements)

    @property
    def grid(self) -> tuple[int, int]:
        """Return the size of the transform's grid, in blocks."""
        return self.matrix[0] * self.ld * self.cut.height.side // (2 * THREADS), self.cut.groups

    @property
    def first(self) -> tuple[int, int]:
        """Return the row and column of the operand at which the first tile begins."""
        return self.cut.height.first - self.cut.height.lead, self.cut.width.first - self.cut.width.lead

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the rows and columns of the operand."""
        return self.cut.height.size, self.cut.width.size

    @property
    def strides(self) -> tuple[np.int64, np.int64]:
        """Return the strides of images and of groups in the operand."""
        return np.int64(self.cut.strides[2]), np.int64(self.cut.strides[0])

    def arguments(self, *, extent: bool) -> tuple[Any, ...]:
        cut, axes = self.cut, (self.cut.height, self.cut.width)
        tiles, steps = (axis.tiles for axis in axes), (axis.step for axis in axes)
        taken = (axis.extent for axis in axes if extent)
        return (cut.channels, cut.images, *self.sizes, *tiles, *self.first, *steps, *taken, self.ld, *self.strides)


def fitting(p: ConvProblem) -> list[int]:
    """Return the sides of tiles that are larger than a filter."""
    return [side for side in SIDES if max(p.r, p.s) < side]


def spectra(p: ConvProblem, side: int) -> tuple[Spectra, Spectra, Spectra]:
    """Return the spectra A and B of the operands, and C = A^T B of the output."""
    names, by_channel = {
        "fprop": ("wxy", (True, True, True)),
        "dgrad": ("wyx", (False, True, True)),
        "wgrad": ("xyw", (False, False, True)),
    }[p.direction]
    cut_of = cuts(p, (side, side))._asdict()
    a, b, c = (Spectra(name, cut_of[name], rows) for name, rows in zip(names, by_channel, strict=True))
    return a, b, c


def supports(p: ConvProblem) -> str | None:
    """Return why convolution by tiles cannot take the problem, or None."""
    for name in ("stride", "dilation"):
        if getattr(p, name) != 1:
            return f"{name} is {getattr(p, name)}, expected 1"
    for name in ("r", "s"):
        if getattr(p, name) >= max(SIDES):
            return f"{name} is {getattr(p, name)}, expected less than {max(SIDES)}, the side of a tile"
    if p.groups > GRID_LIMIT:
        return f"groups is {p.groups}, expected at most {GRID_LIMIT}: a grid has {GRID_LIMIT} blocks along y"
    blocks = max(operand.grid[0] for side in fitting(p) for operand in spectra(p, side))
    return None if blocks <= INT_LIMIT else f"the grid has {blocks} blocks along x, expected at most {INT_LIMIT}"


def not_held(side: int, among: list[int]) -> str | None:
    """Return why tiles of this side do not fit the problem, or None. among: the sides that do."""
    return None if side in among else f"tiles of {side} x {side} do not fit the problem"


def wasteful(p: ConvProblem, side: int, among: list[int]) -> str | None:
    """Return why tiles of this side have far more frequencies than the best side in `among`, or None if they do not."""
    cut = {each: cuts(p, (each, each)).x for each in among}
    frequencies = {each: x.frequencies * x.places // p.n for each, x in cut.items()}
    if frequencies[side] <= WASTE * min(frequencies.values()):
        return None
    least = min(frequencies.values())
    return f"tiles of {side} x {side} have {frequencies[side]} frequencies per image where {least} are enough"
