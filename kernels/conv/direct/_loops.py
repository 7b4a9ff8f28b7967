"""Direct convolution without im2col: tables of offsets locate the two factors of each product.

All three directions are out[row, lane] = sum over t of b[rows[row] + steps[t]] v[t, lane], where `b` is either the
filters or an image surrounded by zeros, and `v` is the other operand in panels of WIDTH lanes (tables in `_plan.py` and
`_pixels.py` list the operands).
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernelmark.kernels._numba import inlined, jit, move
from kernelmark.kernels._tile import LANES
from kernelmark.kernels.conv.direct._tile import (
    ROWS,
    WIDTH,
    add_fewer_narrow_products,
    add_fewer_products,
    add_narrow_products,
    add_products,
)
from kernelmark.kernels.conv.direct._vectors import move as vector
from kernelmark.kernels.transpose._blocks import row, square, square_side

SIDE = square_side(4)
WORTH = SIDE // 4 + 1  # the fewest steps for which transposing a square is faster than gathering elements


@jit
def surround(b, source, counts, strides, inner, which):
    """Copy lines of `inner` elements of the source to b, with zeros around them.

    counts: an outer block's lines in the source, its lines in b, and the lines of zeros before the copied lines.
    strides: the distance between lines in the source, between lines in b, and from the start of a line of b to its
    copied elements. which: the lines of b to write.
    """
    lines, padded, top = counts
    short, long, left = strides
    for line in which:
        block, row = line // padded, line % padded - top
        at = line * long
        if row < 0 or row >= lines:
            b[at : at + long] = np.float32(0)
        else:
            for i in range(left):
                b[at + i] = np.float32(0)
            move(b, at + left, source, (block * lines + row) * short, inner)
            for i in range(left + inner, long):
                b[at + i] = np.float32(0)


@jit
def sums(out, b, v, totals, panel, turned, rows, steps, places, ends, targets, lanes, items, high, deep, start, stop):
    """Compute items start:stop of a plan (`_plan.py`), `deep` steps of their sums at a time.

    ends: for each step, the end of its run, which is a group of successive steps whose offsets in v span less than
    SIDE. lanes: the stride between lanes in v, and the stride between lanes in the output. high: the rows of a tile.
    totals, panel, turned: scratch for the sums of an item, for `deep` steps of v, and for a block to transpose.
    """
    for item in range(start, stop):
        r0, r1, t0, t1, at_b, at_v, at_out, count, images, next_b, next_v = items[item]
        tall = 2 * high if count <= LANES else high
        tiles = (r1 - r0 + tall - 1) // tall
        totals[: tiles * tall * WIDTH] = np.float32(0)
        for image in range(images):
            base, source = at_b + image * next_b, at_v + image * next_v
            for first in range(t0, t1, deep):
                last = min(t1, first + deep)
                if lanes[0] == 1:
                    _copy(panel, v, source, count, places[first:last])
                else:
                    _turn(panel, v, source, count, lanes[0], places, ends, first, last, turned)
                for tile in range(0, tiles * tall, tall):
                    place = tile * WIDTH, base, r0 + tile, -first * WIDTH, first, last
                    if tall == ROWS:
                        add_products(totals, b, rows, steps, panel, place)
                    elif tall == ROWS - 1:
                        add_fewer_products(totals, b, rows, steps, panel, place)
                    elif tall == 2 * ROWS:
                        add_narrow_products(totals, b, rows, steps, panel, place)
                    else:
                        add_fewer_narrow_products(totals, b, rows, steps, panel, place)
        _store(out, totals, panel, targets[r0:r1], at_out, count, lanes[1], deep)


@jit
def _copy(panel, v, base, count, places):
    """Copy lanes of v that are contiguous, step by step."""
    for t in range(len(places)):
        _lanes(panel, t * WIDTH, v, base + places[t], count)


@inlined
def _lanes(to, at, source, begin, count):
    """Copy contiguous elements."""
    if count == WIDTH:
        for i in range(0, WIDTH, LANES):
            vector(to, at + i, source, begin + i)
    else:
        for i in range(count):
            to[at + i] = source[begin + i]


@jit
def _turn(panel, v, base, count, lane, places, ends, first, last, turned):
    """Copy lanes of v that are not contiguous: transpose blocks of SIDE lanes by a run of steps (see `sums`)."""
    t = first
    while t < last:
        end = min(ends[t], last)
        for i in range(0, count, SIDE):
            begin, at = base + i * lane + places[t], (t - first) * WIDTH + i
            if i + SIDE > count or begin + (SIDE - 1) * lane + SIDE > len(v):
                for u in range(t, end):
                    for e in range(min(SIDE, count - i)):
                        panel[(u - first) * WIDTH + i + e] = v[base + places[u] + (i + e) * lane]
            elif end - t == SIDE:
                square(panel, at, WIDTH, v, begin, lane)
            elif end - t < WORTH:
                for u in range(t, end):
                    row(panel, at + (u - t) * WIDTH, v, begin + places[u] - places[t], lane)
            else:
                square(turned, 0, SIDE, v, begin, lane)
                for u in range(t, end):
                    row(panel, at + (u - t) * WIDTH, turned, (places[u] - places[t]) * SIDE, 1)
        t = end


@jit
def _store(out, totals, panel, targets, at, lanes, lane, deep):
    """Store rows of sums in the output, in the order of ascending addresses."""
    if lane == 1:
        for row in range(len(targets)):
            _lanes(out, at + targets[row], totals, row * WIDTH, lanes)
        return
    first = 0
    while first < len(targets):
        last, joined = min(len(targets), first + deep), first + 1
        while joined < last and targets[joined] - targets[joined - 1] == 1:
            joined += 1
        if joined - first >= SIDE:
            last = joined
        _stand(panel, totals, first, last - first, deep)
        for i in range(lanes):
            to = at + i * lane
            if last == joined:
                move(out, to + targets[first], panel, i * deep, last - first)
            else:
                for row in range(first, last):
                    out[to + targets[row]] = panel[i * deep + row - first]
        first = last


@jit
def _stand(panel, totals, first, count, deep):
    """Transpose rows of sums into lines of `deep` elements."""
    if WIDTH % SIDE == 0:
        for row in range(0, count, SIDE):
            for i in range(0, WIDTH, SIDE):
                square(panel, i * deep + row, deep, totals, (first + row) * WIDTH + i, WIDTH)
    else:
        for row in range(count):
            for i in range(WIDTH):
                panel[i * deep + row] = totals[(first + row) * WIDTH + i]
