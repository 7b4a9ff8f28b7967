"""Filters transformed: `side` x `side` planes, one for each place in a tile, as products of planes read them.

A plane has a row for each channel of the output, along which those of the input lie, so that products read it in place.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from collections.abc import Callable

from kernelmark.kernels._numba import jit, move
from kernelmark.kernels._packing import SIDE, turn
from kernelmark.kernels.conv.winograd._lines import LANES, TAPS, divide, filters
from kernelmark.kernels.conv.winograd._tiling import Tiling


def lines(g: Tiling) -> tuple[Callable[..., None], int]:
    """Return the transform of the filters of some output channels, and how many it takes at a time."""
    return (lines_of_k, SIDE) if g.rotated else (lines_of_c, 1)


def scratch(line: int) -> int:
    """Return the elements of scratch for the larger of both."""
    return 9 * SIDE * line + LANES


@jit
def lines_of_c(u, w, held, g, start, stop, first):
    """Transform the filters k = start:stop for fprop; u begins with the row of filter `first`."""
    line, depth = g.filter_line, 9 * g.c
    for k in range(start, stop):
        if g.channels_last:
            for tap in range(9):
                move(held, tap * line, w, k * depth + tap * g.c, g.c)
        else:
            move(held, 9 * line, w, k * depth, depth)
            divide(TAPS, held, 0, line, held[9 * line :])
        filters(g.tile, u, held, ((k - first) * line, g.filter_plane, 0, line), g.c)


@jit
def lines_of_k(u, w, held, g, start, stop, first):
    """Transform rows c, start:stop, of filters rotated for dgrad, SIDE of them transposed together.

    u begins with the row `first`.
    """
    line, depth = g.filter_line, 9 * g.c
    for row in range(start, stop, SIDE):
        count = min(SIDE, stop - row)
        parts, begin, inner = (9, row, count) if g.channels_last else (1, 9 * row, 9 * count)
        for i in range(parts):
            turn(held, i * SIDE * line, w, begin + i * g.c, depth, inner, g.k, line)
        for c in range(count):
            at, tap = (c * line, SIDE * line) if g.channels_last else (9 * c * line, line)
            filters(g.tile, u, held, ((row + c - first) * line, g.filter_plane, at + 8 * tap, -tap), g.k)
