"""Grouped convolution: vectors of places, each the sum of a weight for each tap times what the tap meets.

A vector is of pixels, or in depthwise convolution with channels last of channels, whose weights differ. The arguments that `_planes.py` describes are the same in all functions.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernels._numba import inlined, jit, part
from kernels._tile import LANES
from kernels.conv.direct._vectors import (
    ACROSS,
    FEW,
    MANY,
    ROWS,
    SOME,
    TAPS,
    add_few_taps,
    add_tap,
    add_taps,
    halve,
    halve_4,
    halve_8,
    many_alike,
    many_sums,
    move,
    move_4,
    move_8,
    one_alike,
    one_sum,
    row_sums,
    some_alike,
    some_sums,
    total_of,
)  # fmt: skip


@inlined
def _copy(to, at, source, begin, count):
    """Elements side by side, the last vector reaching back."""
    if count >= LANES:
        for i in range(0, count - LANES, LANES):
            move(to, at + i, source, begin + i)
        move(to, at + count - LANES, source, begin + count - LANES)
    elif LANES > 8 and count >= 8:
        move_8(to, at, source, begin)
        move_8(to, at + count - 8, source, begin + count - 8)
    elif LANES > 4 and count >= 4:
        move_4(to, at, source, begin)
        move_4(to, at + count - 4, source, begin + count - 4)
    else:
        for i in range(count):
            to[at + i] = source[begin + i]


@inlined
def _pick(to, at, source, begin, step, count):
    """Elements `step` apart."""
    if step == 1:
        _copy(to, at, source, begin, count)
    elif step == 2 and count >= LANES:
        for i in range(0, count - LANES, LANES):
            halve(to, at + i, source, begin + 2 * i)
        halve(to, at + count - LANES, source, begin + 2 * (count - LANES))
    elif step == 2 and LANES > 8 and count >= 8:
        halve_8(to, at, source, begin)
        halve_8(to, at + count - 8, source, begin + 2 * (count - 8))
    elif step == 2 and LANES > 4 and count >= 4:
        halve_4(to, at, source, begin)
        halve_4(to, at + count - 4, source, begin + 2 * (count - 4))
    else:
        for i in range(count):
            to[at + i] = source[begin + i * step]


@part
def _load(b, x, side, cut, at, lanes, first):
    """Fill a buffer that was zero at first with the source's rows, from that of the target's row `first` on."""
    for phase in range(cut.down * cut.across):
        h_phase, w_phase = phase // cut.across, phase % cut.across
        low = min(cut.pitch, max(0, -((w_phase - cut.left) // cut.across)))
        count = min(cut.pitch, max(low, -((w_phase - cut.left - side.width) // cut.across))) - low
        begin, step = at + (low * cut.across + w_phase - cut.left) * side.column, cut.across * side.column
        for row in range(cut.depth):
            h = (first + row) * cut.down + h_phase - cut.top
            line = ((phase * cut.depth + row) * cut.pitch + low) * cut.unit
            if h < 0 or h >= side.height:
                for i in range(count * cut.unit):
                    b[line + i] = np.float32(0)
            elif cut.unit == 1:
                _pick(b, line, x, begin + h * side.row, step, count)
            else:
                for j in range(count):
                    _copy(b, line + j * cut.unit, x, begin + h * side.row + j * step, lanes)


@part
def _store(out, side, held, cut, at, lanes, rows, columns):
    """Put a strip's sums where they belong; rows: first, step and number; columns: the same."""
    step, count = columns[1] * side.column, columns[2]
    for i in range(rows[2]):
        line, to = i * cut.pitch * cut.unit, at + (rows[0] + i * rows[1]) * side.row + columns[0] * side.column
        if cut.unit > 1:
            for j in range(count):
                _copy(out, to + j * step, held, line + j * cut.unit, lanes)
        elif step == 1:
            _copy(out, to, held, line, count)
        else:
            for j in range(count):
                out[to + j * step] = held[line + j]


@jit
def images(
    out, source, w, b, held, factors, to, side, cut, parts, offsets, weights, planes, strides, items, start, stop
):
    """Items start:stop of fprop or dgrad."""
    size, line = cut.down * cut.across * cut.depth * cut.pitch * cut.unit, len(held) // ROWS
    b[:] = np.float32(0)
    for item in range(start, stop):
        image, group, lanes, r0, r1 = items[item]
        for plane in range(planes[0]):
            at = image * side.image + (group * planes[0] + plane) * side.plane
            _load(b[plane * size :], source, side, cut, at, lanes, r0)
        for number in range(len(parts)):
            first_h, step_h, rows, first_w, step_w, columns, t0, t1 = parts[number]
            down, across = (first_h + r0 * step_h, step_h, min(r1, rows) - r0), (first_w, step_w, columns)
            length = ((down[2] - 1) * cut.pitch + columns) * cut.unit
            plane = 0
            while plane < planes[1] and down[2] > 0:
                many = ROWS if plane + ROWS <= planes[1] else 1
                begin = group * cut.unit * strides[1] + plane * strides[0]
                if many > 1:
                    _scalars(factors, w, begin, strides[0], many, weights, t0, t1)
                    for v in range(0, length, ACROSS * LANES):
                        row_sums(held, factors, b, offsets, (v, t0, t1, line))
                elif cut.unit == 1:
                    _scalars(factors, w, begin, 0, 1, weights, t0, t1)
                    _weigh(held, factors, b, offsets, 0, t0, t1, length, LANES, True)
                else:
                    for v in range(0, lanes, LANES):
                        _vectors(factors, w, begin, strides[1], v, lanes, weights, t0, t1)
                        _weigh(held, factors, b, offsets, v, t0, t1, length, cut.unit, False)
                for row in range(many):
                    at = image * to.image + (group * planes[1] + plane + row) * to.plane
                    _store(out, to, held[row * line :], cut, at, lanes, down, across)
                plane += many


@part
def _scalars(factors, w, begin, stride, rows, weights, t0, t1):
    for t in range(t0, t1):
        for row in range(rows):
            factors[(t - t0) * rows + row] = w[begin + row * stride + weights[t]]


@part
def _vectors(factors, w, begin, stride, first, channels, weights, t0, t1):
    """Of the channels from `first` on; the last one stands for those that are missing."""
    for t in range(t0, t1):
        for i in range(LANES):
            factors[(t - t0) * LANES + i] = w[begin + min(first + i, channels - 1) * stride + weights[t]]


@part
def _weigh(held, factors, b, offsets, at, t0, t1, length, apart, alike):
    """The sums of a plane's vectors, so far apart; alike: whether a tap has one weight for all lanes."""
    while at + (MANY - 1) * apart < length:
        if alike:
            many_alike(held, factors, b, offsets, (at, t0, t1, LANES))
        else:
            many_sums(held, factors, b, offsets, (at, t0, t1, apart))
        at += MANY * apart
    while at + (SOME - 1) * apart < length:
        if alike:
            some_alike(held, factors, b, offsets, (at, t0, t1, LANES))
        else:
            some_sums(held, factors, b, offsets, (at, t0, t1, apart))
        at += SOME * apart
    while at < length:
        if alike:
            one_alike(held, factors, b, offsets, (at, t0, t1, LANES))
        else:
            one_sum(held, factors, b, offsets, (at, t0, t1, apart))
        at += apart


@jit
def filters(w, x, y, b, d, sums, side, of_y, cut, like, offsets, weights, planes, strides, sizes, start, stop):
    """Groups start:stop of wgrad, or planes of them. like: how y is cut into d. sizes: strip, images and groups."""
    size, taps, (strip, images, groups) = cut.down * cut.across * cut.depth * cut.pitch * cut.unit, len(offsets), sizes
    b[:], d[:] = np.float32(0), np.float32(0)  # the rest of b, which zeros of d are multiplied with, too
    for group in range(start, stop):
        lanes = min(cut.unit, groups - group * cut.unit)
        sums[:] = np.float32(0)
        for image in range(images):
            for first in range(0, of_y.height, strip):
                length = ((min(strip, of_y.height - first) - 1) * cut.pitch + of_y.width) * cut.unit
                for plane in range(planes[0]):
                    at = image * side.image + (group * planes[0] + plane) * side.plane
                    _load(b[plane * size :], x, side, cut, at, lanes, first)
                for plane in range(planes[1]):
                    at = image * of_y.image + (group * planes[1] + plane) * of_y.plane
                    _load(d, y, of_y, like, at, lanes, first)
                    for v in range(0, lanes, LANES):
                        apart = max(cut.unit, LANES)
                        _add(sums[plane * taps * LANES + v * taps :], d, b, offsets, v, length, apart)
        for plane in range(planes[1]):
            _end(w, sums[plane * taps * LANES :], group * cut.unit, plane, lanes, cut.unit, weights, strides)


@part
def _end(w, sums, group, plane, lanes, unit, weights, strides):
    """A filter's gradient where it belongs: the sum of a vector of pixels, or one for each channel."""
    begin, taps = group * strides[1] + plane * strides[0], len(weights)
    for t in range(taps):
        if unit == 1:
            w[begin + weights[t]] = total_of(sums, t * LANES)
        else:
            for i in range(lanes):
                own = (i // LANES * taps + t) * LANES + i % LANES
                w[begin + i * strides[1] + weights[t]] = sums[own]


@part
def _add(sums, d, b, offsets, start, stop, apart):
    t = 0
    while t + TAPS <= len(offsets):
        add_taps(sums, d, b, offsets, (t, start, stop, apart))
        t += TAPS
    while t + FEW <= len(offsets):
        add_few_taps(sums, d, b, offsets, (t, start, stop, apart))
        t += FEW
    while t < len(offsets):
        add_tap(sums, d, b, offsets, (t, start, stop, apart))
        t += 1
