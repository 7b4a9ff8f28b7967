"""Products of matrices on one thread, for Numba functions that form an operand and multiply it while it is in cache.

Panels of b, a few vectors wide, are copied side by side, a second-level cache of them at a time. Tiles of c are held in
registers: rows of a, read as they lie or copied if their elements lie side by side, meet one panel after the other.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernels._host import registers
from kernels._numba import jit
from kernels._tile import LANES, dots, products
from kernels.transpose._blocks import block, width

VECTORS = 3
WIDTH = VECTORS * LANES
ROWS = registers().accumulators // VECTORS
#: Steps of a sum at a time, and panels of b: 384 KiB together with 512-bit registers.
DEPTH, PANELS = 512, 4
#: Columns beyond whole vectors that are multiplied one by one rather than as a vector that is mostly zeros.
FEW = 2
SIDE = width(4)  # of a block that is transposed in registers

#: Where the parts of the scratch begin: panels of b, columns of b, rows of a, a tile of c.
_COLUMNS = PANELS * WIDTH * DEPTH
_A = _COLUMNS + FEW * DEPTH
_TILE = _A + ROWS * DEPTH
#: Elements of scratch that `multiply` needs.
SCRATCH = _TILE + ROWS * WIDTH

#: Cycles that it takes to store an element of c, or copy one of b or a, where they do not lie side by side in lanes.
STORE, TURN, COPY = 0.7, 0.35, 0.15

_whole3, _whole2, _whole1 = (products(ROWS, count) for count in (3, 2, 1))
_less3, _less2, _less1 = (products(ROWS - 1, count) for count in (3, 2, 1))
_row_dots = dots(ROWS)


@jit
def multiply(held, m, n, k, a, b, keep, c):
    """C = A B, added to what is there if `keep`, for A (m x k), B (k x n) and C.

    Each is given as (flat array, offset, row stride, column stride), one of the strides being 1. held: scratch of
    SCRATCH elements.
    """
    if _cycles(n, m, k, b[2] != 1, a[2] != 1, c[2] != 1) < _cycles(m, n, k, a[3] != 1, b[3] != 1, c[3] != 1):
        m, n, a, b, c = n, m, _turned(b), _turned(a), _turned(c)
    rows, few = _rows_of(m), _few(m, n, a[3] != 1)
    for first in range(0, n - few, PANELS * WIDTH):
        last = min(n - few, first + PANELS * WIDTH)
        for begin in range(0, k, DEPTH):
            deep = min(k - begin, DEPTH)
            _pack(held, b, b[1] + begin * b[2], deep, first, last)
            _tiles(held, rows, m, begin, deep, a, first, last, keep or begin > 0, c)
    for begin in range(0, k if few else 0, DEPTH):
        _dots(held, m, begin, min(k - begin, DEPTH), a, b, n - few, n, keep or begin > 0, c)


@jit
def _turned(x):
    return x[0], x[1], x[3], x[2]


@jit
def _rows_of(m):
    """Rows of a tile, such that the last of the tiles wastes least."""
    return ROWS if -(-m // ROWS) * ROWS <= -(-m // (ROWS - 1)) * (ROWS - 1) else ROWS - 1


@jit
def _few(m, n, a_copied):
    """How many columns are multiplied one by one."""
    return n % LANES if n % LANES <= FEW and m >= ROWS and not a_copied else 0


@jit
def _cycles(m, n, k, a_copied, b_turned, c_scattered):
    """About how long the product takes with rows of tiles along m and lanes along n, at two vectors a cycle."""
    rows, few = _rows_of(m), _few(m, n, a_copied)
    tiles = -(-m // rows) * rows * (-(-(n - few) // LANES) + few / LANES) * k / 2
    copies = a_copied * COPY * m * k * -(-n // (PANELS * WIDTH)) + b_turned * TURN * n * k
    return tiles + copies + c_scattered * STORE * m * n


@jit
def _panel(first, last):
    """Columns of the panel that begins at `first`, and the lanes that they take.

    Four vectors are two panels of two, since a tile one vector wide waits for its loads.
    """
    widest = 2 * LANES if WIDTH < last - first <= 4 * LANES else WIDTH
    real = min(widest, last - first)
    return real, (real + LANES - 1) // LANES * LANES


@jit
def _pack(held, b, at, deep, first, last):
    """Copy columns first:last of the rows from b[at] on, panel by panel, the last with zeros up to a whole vector."""
    if b[3] == 1:  # row by row, so that as much as possible is read from each page
        for t in range(deep):
            panel, j = 0, first
            while j < last:
                real, lanes = _panel(j, last)
                to, off = held[panel + t * lanes : panel + (t + 1) * lanes], b[0][at + t * b[2] + j :]
                for i in range(real):
                    to[i] = off[i]
                for i in range(real, lanes):
                    to[i] = np.float32(0)
                panel, j = panel + deep * lanes, j + lanes
    else:
        panel, j = 0, first
        while j < last:
            real, lanes = _panel(j, last)
            _turn(held[panel : panel + deep * lanes], b[0], at + j * b[3], b[3], deep, real, lanes)
            panel, j = panel + deep * lanes, j + lanes


@jit
def _turn(to, b, at, column, deep, real, lanes):
    """Copy a panel of columns, each of which lies side by side, block by block."""
    steps, columns = deep // SIDE * SIDE, real // SIDE * SIDE
    for t in range(0, steps, SIDE):
        for i in range(0, columns, SIDE):
            block(to, t * lanes + i, lanes, b, at + t + i * column, column)
    for t in range(deep):
        for i in range(columns if t < steps else 0, real):
            to[t * lanes + i] = b[at + t + i * column]
        for i in range(real, lanes):
            to[t * lanes + i] = np.float32(0)


@jit
def _tiles(held, rows, m, begin, deep, a, first, last, keep, c):
    """Add up the packed panels for all rows of a; the last tile begins earlier, where it would reach beyond c."""
    for i in range(0, m, rows):
        r = max(0, min(i, m - rows))
        count, source, place = min(rows, m - r), a[0], (a[1] + r * a[2] + begin * a[3], a[2], a[3])
        if a[3] != 1 or count < rows:
            _gather(held[_A:_TILE], source, place, count, deep)
            source, place = held, (_A, 1, ROWS)
        to = c[0], c[1] + r * c[2], c[2], c[3]
        _across(held, rows, i - r, count, source, place, deep, first, last, keep, to)


@jit
def _gather(to, a, place, count, deep):
    """Copy ROWS rows of a, step by step; a row that is not there repeats the first, or one that is not summed up."""
    at, row, step = place
    if row == 1 and at + (deep - 1) * step + ROWS <= len(a):
        for t in range(deep):
            line, off = to[t * ROWS : (t + 1) * ROWS], a[at + t * step :]
            for r in range(ROWS):
                line[r] = off[r]
    else:
        for t in range(deep):
            for r in range(ROWS):
                to[t * ROWS + r] = a[at + t * step + (r * row if r < count else 0)]


@jit
def _across(held, rows, skipped, count, a, a_place, deep, first, last, keep, c):
    """Add to a row of tiles of c; of the first `skipped` rows, and those from `count` on, nothing is stored."""
    panel, j = 0, first
    while j < last:
        real, lanes = _panel(j, last)
        whole = c[3] == 1 and not skipped and count == rows and real == lanes
        to, place = (c[0], (c[1] + j, c[2])) if whole else (held, (_TILE, lanes))
        _tile(rows, lanes, to, place, keep and whole, a, a_place, held, panel, deep)
        if not whole:
            _put(held[_TILE:], lanes, real, skipped, count, c[0], c[1] + j * c[3], c[2], c[3], keep)
        panel, j = panel + deep * lanes, j + lanes


@jit
def _put(sums, lanes, real, skipped, count, c, at, row, step, keep):
    """Store rows skipped:count of a tile, in the order in which addresses rise."""
    if step == 1:
        for r in range(skipped, count):
            to, off = c[at + r * row : at + r * row + real], sums[r * lanes : r * lanes + real]
            for i in range(len(to)):
                to[i] = to[i] + off[i] if keep else off[i]
    else:
        for i in range(real):
            for r in range(skipped, count):
                place = at + i * step + r * row
                c[place] = c[place] + sums[r * lanes + i] if keep else sums[r * lanes + i]


@jit
def _tile(rows, lanes, c, c_place, keep, a, a_place, b, at, deep):
    """One of the tiles that registers hold."""
    if rows == ROWS:
        if lanes == 3 * LANES:
            _whole3(c, c_place, keep, a, a_place, b, at, deep)
        elif lanes == 2 * LANES:
            _whole2(c, c_place, keep, a, a_place, b, at, deep)
        else:
            _whole1(c, c_place, keep, a, a_place, b, at, deep)
    elif lanes == 3 * LANES:
        _less3(c, c_place, keep, a, a_place, b, at, deep)
    elif lanes == 2 * LANES:
        _less2(c, c_place, keep, a, a_place, b, at, deep)
    else:
        _less1(c, c_place, keep, a, a_place, b, at, deep)


@jit
def _dots(held, m, begin, deep, a, b, first, last, keep, c):
    """Columns first:last of c one by one; the elements beyond whole vectors are added one by one as well."""
    whole = deep // LANES * LANES
    for j in range(first, last):
        column = held[_COLUMNS + (j - first) * DEPTH : _COLUMNS + (j - first + 1) * DEPTH]
        for t in range(deep):
            column[t] = b[0][b[1] + (begin + t) * b[2] + j * b[3]]
    for i in range(0, m, ROWS):
        r = min(i, m - ROWS)
        at = a[1] + r * a[2] + begin
        for j in range(first, last):
            column = _COLUMNS + (j - first) * DEPTH
            sums = held[_TILE : _TILE + ROWS]
            _row_dots(sums, a[0], at, a[2], held, column, whole)
            for q in range(i - r, ROWS):
                total = sums[q]
                for t in range(whole, deep):
                    total += a[0][at + q * a[2] + t] * held[column + t]
                place = c[1] + (r + q) * c[2] + j * c[3]
                c[0][place] = c[0][place] + total if keep else total
