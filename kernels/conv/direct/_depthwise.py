"""Grouped convolution: vectors of places, each the sum of a weight for each tap times what the tap meets.

A vector is of pixels, or with channels last and small groups of channels, whose weights differ. The arguments that
`_planes.py` describes are the same in all functions.
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
    expand_2,
    expand_4,
    expand_8,
    expand_16,
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
def _load(b, size, members, x, side, cut, at, lanes, first):
    """Fill a buffer that was zero at first with the source's rows, from that of the target's row `first` on.

    size, members: of the planes that places of several channels fill, one for each member of a group.
    """
    for phase in range(cut.down * cut.across):
        h_phase, w_phase = phase // cut.across, phase % cut.across
        low = min(cut.pitch, max(0, -((w_phase - cut.left) // cut.across)))
        count = min(cut.pitch, max(low, -((w_phase - cut.left - side.width) // cut.across))) - low
        begin, step = at + (low * cut.across + w_phase - cut.left) * side.column, cut.across * side.column
        for row in range(cut.depth):
            h = (first + row) * cut.down + h_phase - cut.top
            line = ((phase * cut.depth + row) * cut.pitch + low) * cut.unit
            if h < 0 or h >= side.height:
                for member in range(members):
                    for i in range(count * cut.unit):
                        b[line + member * size + i] = np.float32(0)
            elif cut.unit == 1:
                _pick(b, line, x, begin + h * side.row, step, count)
            elif members == 1:
                for j in range(count):
                    _copy(b, line + j * cut.unit, x, begin + h * side.row + j * step, lanes)
            else:
                for j in range(count):
                    _expand(b, line + j * cut.unit, size, members, x, begin + h * side.row + j * step, lanes)


@part
def _load_group(b, size, planes, x, side, cut, image, group, lanes, first):
    if cut.unit > 1:
        _load(b, size, planes, x, side, cut, image * side.image + group * side.plane, lanes, first)
    else:
        for plane in range(planes):
            at = image * side.image + (group * planes + plane) * side.plane
            _load(b[plane * size :], 0, 1, x, side, cut, at, lanes, first)


@part
def _expand(b, at, size, members, x, begin, lanes):
    """A plane for each member of a group."""
    for v in range(0, lanes, LANES):
        if members == 2:
            expand_2(b, at + v, size, x, begin + v)
        elif members == 4:
            expand_4(b, at + v, size, x, begin + v)
        elif members == 8:
            expand_8(b, at + v, size, x, begin + v)
        else:
            expand_16(b, at + v, size, x, begin + v)


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
        _load_group(b, size, planes[0], source, side, cut, image, group, lanes, r0)
        for number in range(len(parts)):
            first_h, step_h, rows, first_w, step_w, columns, t0, t1 = parts[number]
            down, across = (first_h + r0 * step_h, step_h, min(r1, rows) - r0), (first_w, step_w, columns)
            length = ((down[2] - 1) * cut.pitch + columns) * cut.unit
            plane = 0
            while plane < planes[1] and down[2] > 0:
                many = ROWS if plane + ROWS <= planes[1] else 1
                begin = group * strides[1] + plane * strides[0]
                if many > 1:
                    _scalars(factors, w, begin, strides[0], many, weights, t0, t1)
                    for v in range(0, length, ACROSS * LANES):
                        row_sums(held, factors, b, offsets, (v, t0, t1, line))
                elif cut.unit == 1:
                    _scalars(factors, w, begin, 0, 1, weights, t0, t1)
                    _weigh(held, factors, b, offsets, 0, t0, t1, length, LANES, True)
                else:
                    for v in range(0, lanes, LANES):
                        _vectors(factors, w, group * cut.unit + v, planes[0], strides, weights, t0, t1)
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
def _vectors(factors, w, first, members, strides, weights, t0, t1):
    """Of the channels from `first` on."""
    for i in range(LANES):
        begin = (first + i) // members * strides[1] + (first + i) % members * strides[0]
        for t in range(t0, t1):
            factors[(t - t0) * LANES + i] = w[min(begin + weights[t], len(w) - 1)]


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
    """Groups start:stop of wgrad, or places of channels. like: how y is cut into d. sizes: strip, images, channels."""
    size, taps, (strip, images, channels) = (
        cut.down * cut.across * cut.depth * cut.pitch * cut.unit,
        len(offsets),
        sizes,
    )
    b[:], d[:] = np.float32(0), np.float32(0)  # the rest of b, which zeros of d are multiplied with, too
    for group in range(start, stop):
        lanes = min(cut.unit, channels - group * cut.unit)
        sums[:] = np.float32(0)
        for image in range(images):
            for first in range(0, of_y.height, strip):
                length = ((min(strip, of_y.height - first) - 1) * cut.pitch + of_y.width) * cut.unit
                _load_group(b, size, planes[0], x, side, cut, image, group, lanes, first)
                for plane in range(planes[1]):
                    at = image * of_y.image + (group * planes[1] + plane) * of_y.plane
                    _load(d, 0, 1, y, of_y, like, at, lanes, first)
                    for v in range(0, lanes, LANES):
                        apart = max(cut.unit, LANES)
                        _add(sums[plane * taps * LANES + v * taps :], d, b, offsets, v, length, apart)
        for plane in range(planes[1]):
            _end(w, sums[plane * taps * LANES :], group, plane, planes[0], lanes, cut.unit, weights, strides)


@part
def _end(w, sums, group, plane, members, lanes, unit, weights, strides):
    """A filter's gradient where it belongs: the sum of a vector of pixels, or one for each channel."""
    taps = len(weights)
    for t in range(taps):
        if unit == 1:
            w[group * strides[1] + plane * strides[0] + weights[t]] = total_of(sums, t * LANES)
        else:
            for i in range(lanes):
                channel, own = group * unit + i, (i // LANES * taps + t) * LANES + i % LANES
                begin = channel // members * strides[1] + channel % members * strides[0]
                w[begin + weights[t]] = sums[own]


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
