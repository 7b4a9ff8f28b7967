"""Numba functions that transform images to spectra and back, UNIT tiles at a time, one in each vector lane.

A row of UNIT tiles is transposed, so that a vector holds one element of all tiles, then transformed. The columns of the
half spectra are transformed next, and written where products read them. The functions are serial and release the GIL.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernelmark.kernels._numba import fence, jit, move, part
from kernelmark.kernels.conv.fft._codelets import UNIT, call, turned
from kernelmark.kernels.conv.fft._planes import met, place

FLOAT = 4  # bytes of a number
#: Stands for the image offset of a tile that does not exist.
_NOWHERE = -1


@jit
def forward(codelets, flat, cut, order, buffers, spectra, start, stop):
    """Transform batches start:stop of tiles to spectra (frequency, part, plane); parts are real and imaginary.

    codelets: addresses of the functions for rows and for columns. buffers: scratch for a batch's half spectra (unit,
    row, column, part, lane), for a row of UNIT tiles interleaved by lane, and for that row tile by tile.
    """
    half, line, buffer = buffers
    units, _, across = half.shape[:3]
    rows, sign = _rows(cut.height), -1 if cut.turned else 1
    places, addresses = np.empty((5, UNIT), np.int64), np.empty(UNIT, np.int64)
    to_step, to_part = FLOAT * across * spectra[0].size, FLOAT * spectra[0, 0].size
    step = 2 * FLOAT * UNIT
    half[:, rows:] = np.float32(0)
    for first in range(start * units, stop * units, units):
        count = min(units, _units(order) - first)
        for u in range(count):
            together = _find(places, cut, order, (first + u) * UNIT)
            for i in range(rows):
                _fetch(line, buffer, flat, cut, places, addresses, together, i)
                call(codelets[0], (half[u, i].ctypes.data, line.ctypes.data))
        for x in range(across):
            to, off = spectra[x].ctypes.data + FLOAT * UNIT * first, half[0, 0, x].ctypes.data
            for u in range(count):
                line_at = off + u * FLOAT * half[0].size
                call(codelets[1], (to, to_step, to_part, line_at, across * step, FLOAT * UNIT, sign))
                to += FLOAT * UNIT
    fence()  # type: ignore[call-arg]  # for columns written past the caches


@jit
def inverse(codelets, flat, cut, order, buffers, spectra, start, stop):
    """Transform batches start:stop of spectra to tiles, and store their outputs, which begin at index `lead` of a tile.

    The inverse is computed as a forward transform, with real and imaginary parts swapped in input and output.
    """
    half, line, buffer = buffers
    units, across = half.shape[0], half.shape[2]
    scale = np.float32(1 / (cut.height.side * cut.width.side))
    places, addresses = np.empty((5, UNIT), np.int64), np.empty(UNIT, np.int64)
    step, part = FLOAT * across * spectra[0].size, FLOAT * spectra[0, 0].size
    to_step = 2 * FLOAT * UNIT
    for first in range(start * units, stop * units, units):
        count = min(units, _units(order) - first)
        for x in range(across):
            off, to = spectra[x, 1].ctypes.data + FLOAT * UNIT * first, half[0, 0, x, 1].ctypes.data
            for u in range(count):
                at = to + u * FLOAT * half[0].size
                call(codelets[1], (at, across * to_step, -FLOAT * UNIT, off, step, -part, 1))
                off += FLOAT * UNIT
        for u in range(count):
            together = _find(places, cut, order, (first + u) * UNIT)
            for i in range(_rows(cut.height)):
                call(codelets[0], (line.ctypes.data, half[u, cut.height.lead + i].ctypes.data))
                _store(line, buffer, flat, cut, places, addresses, together, i, scale)


@part
def _rows(height):
    """Return the number of rows of a tile that are read from an image or stored there."""
    return min(height.extent, (height.size - 1) * height.spacing + 1 - height.first)


@part
def _units(order):
    return (order.channels * order.tiles + UNIT - 1) // UNIT


@part
def _find(places, cut, order, plane):
    """Find, for the tiles of UNIT planes, the image, the corner's row and column, and the range of the image's columns.

    Return whether the tiles have the same corner and are contiguous in memory, as in neighbouring channels.
    """
    same = not order.tiles_first and cut.strides[1] == 1
    for lane in range(UNIT):
        exists, offset, top, left = place(cut, order, plane + lane)
        places[0, lane] = offset if exists else _NOWHERE
        places[1, lane], places[2, lane] = top + cut.height.first, left + cut.width.first
        places[3, lane], places[4, lane] = met(cut.width, left + cut.width.first)
        same = same and exists and offset == places[0, 0] + lane
        same = same and places[1, lane] == places[1, 0] and places[2, lane] == places[2, 0]
    return same


@part
def _row(cut, places, lane, i):
    """Return the offset of column 0 in row i of a tile, the tile's first column, and the range of image columns."""
    height, at = cut.height, places[1, lane] + i
    exists = places[0, lane] != _NOWHERE and i < height.extent and 0 <= at < height.size * height.spacing
    if height.spacing > 1:
        at, between = divmod(at, height.spacing)
        exists = exists and between == 0
    last = places[4, lane] if exists else places[3, lane]
    return places[0, lane] + at * cut.strides[3], places[2, lane], places[3, lane], last


@part
def _fetch(line, buffer, flat, cut, places, addresses, together, i):
    """Load row i of UNIT tiles, one tile per lane."""
    width, by_column = cut.width, cut.strides[4]
    side = width.side
    if together:
        begin, left, first, last = _row(cut, places, 0, i)
        line[: side * UNIT] = np.float32(0)
        for column in range(first, last):
            move(line, (column * width.spacing - left) * UNIT, flat, begin + column * by_column, UNIT)
    elif by_column == 1 and width.spacing == 1:
        whole = len(buffer) // UNIT
        for lane in range(UNIT):
            begin, left, first, last = _row(cut, places, lane, i)
            at = begin + left
            if last - first == side and at + whole <= len(flat):
                addresses[lane] = flat.ctypes.data + FLOAT * at
                continue
            off, to = flat[begin + first : begin + last], buffer[lane * whole : (lane + 1) * whole]
            addresses[lane] = to.ctypes.data
            to[:] = np.float32(0)
            to = to[first - left :]
            for j in range(len(off)):
                to[j] = off[j]
        for at in range(0, side, UNIT):
            turned(line.ctypes.data + FLOAT * UNIT * at, UNIT, addresses, at)
    else:
        line[: side * UNIT] = np.float32(0)
        for lane in range(UNIT):
            begin, left, first, last = _row(cut, places, lane, i)
            for column in range(first, last):
                line[(column * width.spacing - left) * UNIT + lane] = flat[begin + column * by_column]


@part
def _store(line, buffer, flat, cut, places, addresses, together, i, scale):
    """Store row i of the outputs of UNIT tiles."""
    width, by_column = cut.width, cut.strides[4]
    if together:
        begin, left, first, last = _row(cut, places, 0, i)
        for column in range(first, last):
            off = line[(width.lead + column * width.spacing - left) * UNIT :]
            to = flat[begin + column * by_column :]
            for lane in range(UNIT):
                to[lane] = off[lane] * scale
        return
    whole = len(buffer) // UNIT
    for at in range(0, width.side, UNIT):
        for j in range(UNIT):
            addresses[j] = line.ctypes.data + FLOAT * UNIT * (at + j)
        turned(buffer.ctypes.data + FLOAT * at, whole, addresses, 0)
    for lane in range(UNIT):
        begin, left, first, last = _row(cut, places, lane, i)
        off = buffer[lane * whole + width.lead + first * width.spacing - left : (lane + 1) * whole]
        if by_column == 1 and width.spacing == 1:
            to = flat[begin + first : begin + last]
            for j in range(len(to)):
                to[j] = off[j] * scale
        else:
            for j in range(last - first):
                flat[begin + (first + j) * by_column] = off[j * width.spacing] * scale
