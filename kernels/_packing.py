"""Pack operands of products in the order of register tiles (panels of b, rows of a), and store sums."""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernelmark.kernels._copies import fetch_line, moved, padded, put_line
from kernelmark.kernels._host import registers
from kernelmark.kernels._numba import part
from kernelmark.kernels._tile import AHEAD, LANES, LINE
from kernelmark.kernels.transpose._blocks import square, square_side

#: A tile of sums has ROWS rows and is as wide as a panel of b: WIDTH lanes.
VECTORS = 3
WIDTH = VECTORS * LANES
ROWS = registers().accumulators // VECTORS
SIDE = square_side(4)
_move_rows = moved(ROWS)
GAP = LINE  # elements between packed tiles of rows, which would otherwise compete for the same cache sets


@part
def widths(first, last):
    """Return the number of columns of the panel that begins at `first`, and the number of lanes that they occupy.

    Four remaining vectors of columns are split 2 + 2, not 3 + 1, since tiles that are one vector wide wait for loads.
    """
    widest = 2 * LANES if WIDTH < last - first <= 4 * LANES else WIDTH
    real = min(widest, last - first)
    return real, (real + LANES - 1) // LANES * LANES


@part
def pack(buffer, b, at, deep, first, last):
    """Copy columns first:last of `deep` rows of b, from offset `at` on, panel by panel; zeros fill the last vector."""
    if b[3] == 1:  # row by row, so that as much as possible is read from each page
        for t in range(deep):
            ahead = at + min(t + AHEAD, deep - 1) * b[2]
            for j in range(first, last, LINE):
                fetch_line(b[0], ahead + j)
            panel, j = 0, first
            while j < last:
                real, lanes = widths(j, last)
                padded(buffer, panel + t * lanes, b[0], at + t * b[2] + j, real, lanes)
                panel, j = panel + deep * lanes, j + lanes
    else:
        panel, j = 0, first
        while j < last:
            real, lanes = widths(j, last)
            turn(buffer, panel, b[0], at + j * b[3], b[3], deep, real, lanes)
            panel, j = panel + deep * lanes, j + lanes


@part
def turn(to, panel, b, at, column, deep, real, lanes):
    """Transpose a panel whose columns are each contiguous, in square blocks.

    Each row of the output has `lanes` elements: one from each of the `real` columns, then zeros.
    """
    steps, columns = deep // SIDE * SIDE, real // SIDE * SIDE
    for t in range(0, steps, SIDE):
        for i in range(0, columns, SIDE):
            square(to, panel + t * lanes + i, lanes, b, at + t + i * column, column)
    for t in range(deep):
        for i in range(columns if t < steps else 0, real):
            to[panel + t * lanes + i] = b[at + t + i * column]
        for i in range(real, lanes):
            to[panel + t * lanes + i] = np.float32(0)


@part
def gather(to, a, place, tiles, deep):
    """Copy tiles of ROWS rows of a, column by column across all tiles, so that each page is read as fully as possible.

    tiles: the first row, the end row, the distance between tiles in rows, and the number of rows of a. Rows that
    are missing in a tile are copies of a's last row.
    """
    at, row, step = place
    first, end, rows, m = tiles
    highest = max(0, min((end - 1 - first) // rows * rows + first, m - rows))
    vectors = min(deep, max(0, (len(a) - ROWS - highest - at) // step + 1)) if row == 1 else 0
    for t in range(vectors):
        line = t * ROWS
        for i in range(first, end, rows):
            _move_rows(to, line, a, at + t * step + max(0, min(i, m - rows)))
            line += deep * ROWS + GAP
    for t in range(vectors, deep):
        line = t * ROWS
        for i in range(first, end, rows):
            for r in range(ROWS):
                to[line + r] = a[at + t * step + min(max(0, min(i, m - rows)) + r, m - 1) * row]
            line += deep * ROWS + GAP


@part
def put(sums, lanes, real, skipped, count, c, at, row, step, keep):
    """Store rows skipped:count of a tile in c, in the order of ascending addresses."""
    if step == 1:
        for r in range(skipped, count):
            put_line(c, at + r * row, sums, r * lanes, real, keep)
    else:
        for i in range(real):
            for r in range(skipped, count):
                place = at + i * step + r * row
                c[place] = c[place] + sums[r * lanes + i] if keep else sums[r * lanes + i]
