"""Direct convolution as sums over tables: offsets tell what an output adds up, and no columns are formed.

All three directions are out[row, lane] = sum over t of b[rows[row] + steps[t]] v[t, lane], where `b` is an image
between zeros or the filters, and `v` the other operand in panels of WIDTH lanes (`_plan.py` and `_pixels.py` have
tables of which is which).
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernels._numba import jit
from kernels.conv.direct._tile import ROWS, WIDTH, add_products
from kernels.transpose._blocks import block, width

SIDE = width(4)  # of a block that is transposed in registers


@jit
def surround(b, source, counts, strides, inner, start, stop):
    """Lines start:stop of b from those of the source: `inner` elements, zeros before and after.

    counts: lines of an outer block of the source and of b, and the first of b that is not all zeros.
    strides: of a line in the source and in b, and where a line's elements begin in b's.
    """
    lines, padded, top = counts
    short, long, left = strides
    for line in range(start, stop):
        block, row = line // padded, line % padded - top
        to = b[line * long : (line + 1) * long]
        if row < 0 or row >= lines:
            to[:] = np.float32(0)
        else:
            off = source[(block * lines + row) * short : (block * lines + row) * short + inner]
            to[:left] = np.float32(0)
            for i in range(inner):
                to[left + i] = off[i]
            to[left + inner :] = np.float32(0)


@jit
def pack(v, source, bases, places, lane, straight, start, stop):
    """Panels start:stop, t by t; `bases` has where each begins in the source, and its number of lanes.

    straight: places are one another's neighbours, so that lanes are transposed block by block.
    """
    size = len(places) * WIDTH
    for panel in range(start, stop):
        base, count = bases[panel, 0], bases[panel, 1]
        to = v[panel * size : (panel + 1) * size]
        if lane == 1:
            for t in range(len(places)):
                row, off = to[t * WIDTH :], source[base + places[t] :]  # views, for LLVM to vectorise the loop
                for i in range(count):
                    row[i] = off[i]
            continue
        lanes, steps = (count // SIDE * SIDE, len(places) // SIDE * SIDE) if straight else (0, 0)
        for i in range(0, lanes, SIDE):
            for t in range(0, steps, SIDE):
                block(to, t * WIDTH + i, WIDTH, source, base + i * lane + t, lane)
        _scatter(to, source, base, places, lane, (0, lanes), (steps, len(places)))
        _scatter(to, source, base, places, lane, (lanes, count), (0, len(places)))


@jit
def _scatter(to, source, base, places, lane, lanes, steps):
    """Lanes and steps one by one, as many steps at a time as lie in a line of cache."""
    for t in range(steps[0], steps[1], SIDE):
        for i in range(lanes[0], lanes[1]):
            for u in range(t, min(steps[1], t + SIDE)):
                to[u * WIDTH + i] = source[base + places[u] + i * lane]


@jit
def sums(out, b, v, held, rows, steps, targets, lane, items, deep, start, stop):
    """Items as in `_plan.py`, `deep` steps at a time."""
    for item in range(start, stop):
        r0, r1, t0, t1, at_b, at_v, at_out, lanes, images, next_b, next_v = items[item]
        tiles = (r1 - r0 + ROWS - 1) // ROWS
        held[: tiles * ROWS * WIDTH] = np.float32(0)
        for image in range(images):
            base, panel = at_b + image * next_b, at_v + image * next_v
            for first in range(t0, t1, deep):
                last = min(t1, first + deep)
                for tile in range(tiles):
                    row = r0 + tile * ROWS
                    add_products(held, b, rows, steps, v, (tile * ROWS * WIDTH, base, row, panel, first, last))
        _store(out, held, targets[r0:r1], at_out, lanes, lane)


@jit
def _store(out, held, targets, at, lanes, lane):
    """Rows of sums where they belong, in the order in which addresses rise."""
    if lane == 1:
        for row in range(len(targets)):
            for i in range(lanes):
                out[at + targets[row] + i] = held[row * WIDTH + i]
    else:
        for i in range(lanes):
            for row in range(len(targets)):
                out[at + targets[row] + i * lane] = held[row * WIDTH + i]
