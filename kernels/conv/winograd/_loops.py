"""Winograd convolution on one thread: transform blocks of tiles, multiply them with filters, transform back.

Transformed operands have a plane for each of the side x side places in a tile. A plane of images is (channels x tiles)
or, with channels last, (tiles x channels); lines along its second axis go through the transforms together.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernelmark.kernels._numba import jit, move, part
from kernelmark.kernels._product import multiply
from kernelmark.kernels.conv.winograd._lines import LANES, divide, inputs, join, outputs, outputs_back

STRIPS = 8  # strips whose columns are transformed before any row: data just stored are slow to load at another offset


@jit
def padded(to, source, buffer, g, start, stop):
    """Copy rows start:stop of images with zero padding, and split each row into `phases` interleaved parts.

    The last vector of a row may extend into the next row, which then overwrites the excess. The last rows are copied
    by way of `buffer`: one half is for a row, the other for its parts.
    """
    row, skipped, left = g.phases * g.columns, max(0, -g.left), max(0, g.left)
    count = min(g.width - skipped, row - left)  # elements that no tile reads are left out
    half, reach = len(buffer) // 2, row - g.columns + (g.columns + LANES - 1) // LANES * LANES
    buffer[:half] = np.float32(0)
    for line in range(start, stop):
        block, down, at = line // g.rows, line % g.rows - g.top, line * row
        if down < 0 or down >= g.height:
            to[at : at + row] = np.float32(0)
            continue
        begin = (block * g.height + down) * g.width + skipped
        if g.phases == 1:
            to[at : at + left] = np.float32(0)
            move(to, at + left, source, begin, count)
            to[at + left + count : at + row] = np.float32(0)
        else:
            move(buffer, left, source, begin, count)
            if at + reach <= stop * row:
                divide(g.tile, to, at, g.columns, buffer)
            else:
                divide(g.tile, buffer, half, g.columns, buffer)
                move(to, at, buffer, half, row)


@part
def planes(v, x, buffer, g, plane, length, c0, c1, s0, s1):
    """Transform channels c0:c1 of strips s0:s1 to planes: tiles are contiguous, channels `length` elements apart.

    g.back: transform the output's gradient instead of the input.
    """
    side, m = g.m + 2, g.m
    row = g.phases * g.columns
    line = row + LANES
    for c in range(c0, c1):
        for first in range(s0, s1, STRIPS):
            last = min(s1, first + STRIPS)
            for strip in range(first, last):
                image, down = strip // g.down, strip % g.down
                at = ((image * g.inputs + c) * g.rows + m * down) * row
                _transformed(g, buffer, x, ((strip - first) * side * line, line, at, row, m * row), row)
            for strip in range(first, last):
                for a in range(side):
                    to, at = a * side * plane + c * length + (strip - s0) * g.across, (strip - first) * side + a
                    _transformed(g, v, buffer, (to, plane, at * line, g.columns, 1), g.across)


@part
def planes_last(v, x, buffer, g, plane, length, s0, s1, tile):
    """Transform strips s0:s1 to planes, from tile `tile` on: channels are contiguous, tiles `length` elements apart."""
    side, m = g.m + 2, g.m
    row, line = g.columns, (g.m + 2) * g.inputs + LANES
    for strip in range(s0, s1):
        image, down = strip // g.down, strip % g.down
        for across in range(g.across):
            at = (image * g.rows + m * down) * row + m * across * g.inputs
            _transformed(g, buffer, x, (0, line, at, row, m * row), (m if g.back else side) * g.inputs)
            for a in range(side):
                to = a * side * plane + tile * length
                _transformed(g, v, buffer, (to, plane, a * line, g.inputs, m * g.inputs), g.inputs)
            tile += 1


@part
def _transformed(g, to, off, place, count):
    if g.back:
        outputs_back(g.tile, to, off, place, count)
    else:
        inputs(g.tile, to, off, place, count)


@part
def _outputs(buffer, products, g, plane, at, count):
    """Write m x m lines of outputs to `buffer`, computed from one line of each plane; return the length of a line."""
    side, m, line = g.m + 2, g.m, (count + LANES - 1) // LANES * LANES
    between = m * m * line
    for b in range(side):
        place = between + b * line, side * line, b * plane + at, side * plane, m * side * plane
        outputs(g.tile, buffer, products, place, count)
    for a in range(m):
        outputs(g.tile, buffer, buffer, (a * m * line, line, between + a * side * line, line, m * line), count)
    return line


@part
def _put(y, buffer, line, g, image_at, s0, s1):
    """Store one channel of the output; a line of `buffer` has one pixel of each tile."""
    between = g.m * g.m * line
    for strip in range(s0, s1):
        image, down = strip // g.down, strip % g.down
        for a in range(min(g.m, g.out_height - g.m * down)):
            at = image * g.outputs * g.out_height * g.out_width + image_at + (g.m * down + a) * g.out_width
            join(g.tile, buffer, between, buffer, (a * g.m * line + (strip - s0) * g.across, line), g.across)
            move(y, at, buffer, between, g.out_width)


@part
def _put_last(y, buffer, line, g, tile, f0, f1):
    """Store one tile of the output; a line of `buffer` has one pixel of each channel."""
    strip, across = tile // g.across, tile % g.across
    image, down = strip // g.down, strip % g.down
    for a in range(min(g.m, g.out_height - g.m * down)):
        for b in range(min(g.m, g.out_width - g.m * across)):
            pixel = (image * g.out_height + g.m * down + a) * g.out_width + g.m * across + b
            to, off = y[pixel * g.outputs + f0 : pixel * g.outputs + f1], buffer[(a * g.m + b) * line :]
            for i in range(len(to)):
                to[i] = off[i]


@part
def _multiplied(product, u, v, products, packed, g, tiles, item, strides, result_strides):
    """Compute all planes of products for an item's output channels, and return the distance between planes.

    strides: between planes, channels and tiles in v. result_strides: between channels and tiles in the products.
    """
    count, row = item[3] - item[2], item[4]
    out_plane = count * tiles + LANES
    for e in range((g.m + 2) ** 2):
        factor = u, e * g.filter_plane + row * g.filter_line, g.filter_line, 1
        operand = v, e * strides[0], strides[1], strides[2]
        result = products, e * out_plane, result_strides[0], result_strides[1]
        multiply(product, packed, count, tiles, g.inputs, factor, operand, False, result)
    return out_plane


@jit
def block(product, y, u, v, products, buffer, packed, g, strides, item):
    """Compute item (s0, s1, f0, f1, row): output channels f0:f1 of strips s0:s1, with filters from row `row` of u on.

    strides: the strides of v, as in `_multiplied`.
    """
    s0, s1, f0, f1, _row = item
    tiles = (s1 - s0) * g.across
    plane = _multiplied(product, u, v, products, packed, g, tiles, item, strides, (tiles, 1))
    for f in range(f1 - f0):
        line = _outputs(buffer, products, g, plane, f * tiles, tiles)
        _put(y, buffer, line, g, (f0 + f) * g.out_height * g.out_width, s0, s1)


@jit
def block_last(product, y, u, v, products, buffer, packed, g, strides, item):
    """Compute an item as `block` does, for images with channels last."""
    s0, s1, f0, f1, _row = item
    tiles, count = (s1 - s0) * g.across, f1 - f0
    plane = _multiplied(product, u, v, products, packed, g, tiles, item, strides, (1, count))
    for tile in range(tiles):
        line = _outputs(buffer, products, g, plane, tile * count, count)
        _put_last(y, buffer, line, g, s0 * g.across + tile, f0, f1)
