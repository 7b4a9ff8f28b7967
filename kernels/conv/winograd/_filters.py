"""Transformed filters: a plane for each of the side x side positions in a tile, in the layout of the products.

A plane has a row for each output channel with the input channels along it, so that products read it in place.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from collections.abc import Callable

from kernelmark.kernels._numba import jit, move
from kernelmark.kernels._packing import SIDE, turn
from kernelmark.kernels.conv.winograd._lines import LANES, TAPS, divide, filters
from kernelmark.kernels.conv.winograd._tiling import Tiling


def lines(g: Tiling) -> tuple[Callable[..., None], int]:
    """Return the function that transforms filters, and how many output channels it transforms at a time."""
    return (lines_of_k, SIDE) if g.rotated else (lines_of_c, 1)


def scratch(line: int) -> int:
    """Return the elements of scratch for the larger of the two transforms."""
    return 9 * SIDE * line + LANES


@jit
def lines_of_c(u, w, buffer, g, start, stop, first):
    """Transform the filters k = start:stop for fprop; u starts with filter `first`."""
    line, depth = g.filter_line, 9 * g.c
    for k in range(start, stop):
        if g.channels_last:
            for tap in range(9):
                move(buffer, tap * line, w, k * depth + tap * g.c, g.c)
        else:
            move(buffer, 9 * line, w, k * depth, depth)
            divide(TAPS, buffer, 0, line, buffer[9 * line :])
        filters(g.tile, u, buffer, ((k - first) * line, g.filter_plane, 0, line), g.c)


@jit
def lines_of_k(u, w, buffer, g, start, stop, first):
    """Transform rows c = start:stop of rotated filters for dgrad, SIDE rows at a time; u starts with row `first`."""
    line, depth = g.filter_line, 9 * g.c
    for row in range(start, stop, SIDE):
        count = min(SIDE, stop - row)
        parts, begin, inner = (9, row, count) if g.channels_last else (1, 9 * row, 9 * count)
        for i in range(parts):
            turn(buffer, i * SIDE * line, w, begin + i * g.c, depth, inner, g.k, line)
        for c in range(count):
            at, tap = (c * line, SIDE * line) if g.channels_last else (9 * c * line, line)
            filters(g.tile, u, buffer, ((row + c - first) * line, g.filter_plane, at + 8 * tap, -tap), g.k)
