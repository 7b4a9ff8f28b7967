"""Rows of images between zeros, as Winograd's transforms on the CPU read them."""

from kernelmark import Array, Launch
from kernels._numba import bind
from kernels._team import in_bands
from kernels.conv.problem import ConvOperands, ConvProblem
from kernels.conv.winograd import _loops as loops
from kernels.conv.winograd._lines import LANES
from kernels.conv.winograd._tiling import Tiling


def between_zeros(problem: ConvProblem, x: ConvOperands, g: Tiling, source: Array) -> tuple[Array, Launch]:
    """Return the scratch for all rows, and what fills it."""
    lines = problem.n * (1 if g.channels_last else g.inputs) * g.rows
    image = x.scratch((lines * g.phases * g.columns + LANES,), "f32")

    def band(start: int, stop: int) -> Launch:
        held = x.scratch((2 * g.phases * (g.columns + LANES),), "f32")
        return bind(loops.padded, image, source, held, g, start, stop)

    return image, in_bands(lines, x.threads, band)
