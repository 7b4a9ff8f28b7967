"""Grouped convolution on vectors of positions: sums over taps of a weight times the element at the tap.

A vector holds pixels; with channels last and small groups, it holds channels, each with its own weight. Small planes of
nchw are transposed, a vector of planes at a time, and then treated as channels last. `_planes.py` describes the
arguments that all functions share. turned: None, or scratch for transposed planes of the source (wgrad: x) and of the
target (wgrad: y), and the `Side` of each as stored. Numba compiles the cases with None and with scratch separately, by
type, and leaves out unused branches.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernelmark.kernels._numba import jit, part
from kernelmark.kernels._tile import LANES
from kernelmark.kernels.conv.direct._moves import load, load_group, store, turn, turn_back
from kernelmark.kernels.conv.direct._vectors import (
    ACROSS,
    FEW,
    MANY,
    ROWS,
    SOME,
    TAPS,
    add_few_taps,
    add_tap,
    add_taps,
    many_alike,
    many_sums,
    one_alike,
    one_sum,
    row_sums,
    some_alike,
    some_sums,
    total_of,
)


@jit
def images(
    out, source, w, b, sums, factors, turned, to, side, cut, parts, offsets, weights, planes, strides, items, span
):
    """Compute items span[0]:span[1] of fprop or dgrad. factors: scratch if cut.unit is 1, else packed weights."""
    size, line = cut.down * cut.across * cut.depth * cut.pitch * cut.unit, len(sums) // ROWS
    b[:] = np.float32(0)
    for item in range(span[0], span[1]):
        image, group, lanes, r0, r1 = items[item]
        if turned is None:
            load_group(b, size, planes[0], source, side, cut, image, group, lanes, r0)
        else:
            turn(turned[0], source, turned[2], image, group, lanes)
            load(b, size, 1, turned[0], side, cut, 0, lanes, r0)
        for number in range(len(parts)):
            first_h, step_h, rows, first_w, step_w, columns, t0, t1 = parts[number]
            down, across = (first_h + r0 * step_h, step_h, min(r1, rows) - r0), (first_w, step_w, columns)
            length = ((down[2] - 1) * cut.pitch + columns) * cut.unit
            plane = 0
            while plane < planes[1] and down[2] > 0:
                many = ROWS if plane + ROWS <= planes[1] else 1
                begin = group * strides[1] + plane * strides[0]
                if cut.unit == 1:
                    _scalars(factors, w, begin, strides[0], many, weights, t0, t1)
                    _sums(sums, factors, b, offsets, many, t0, t1, length, line)
                else:
                    for v in range(0, lanes, LANES):
                        lane_factors = factors[(group * cut.unit + v) * len(weights) + t0 * LANES :]
                        _weigh(sums, lane_factors, b, offsets, v, t0, t1, length, cut.unit, False)
                for row in range(many):
                    at = image * to.image + (group * planes[1] + plane + row) * to.plane
                    store(out if turned is None else turned[1], to, sums[row * line :], cut, at, lanes, down, across)
                plane += many
        if turned is not None:
            turn_back(out, turned[1], turned[3], image, group, lanes)


@part
def _sums(sums, factors, b, offsets, many, t0, t1, length, line):
    """Compute the sums of the pixels of one plane, or of `many` planes at once."""
    if many > 1:
        for v in range(0, length, ACROSS * LANES):
            row_sums(sums, factors, b, offsets, (v, t0, t1, line))
    else:
        _weigh(sums, factors, b, offsets, 0, t0, t1, length, LANES, True)


@part
def _scalars(factors, w, begin, stride, rows, weights, t0, t1):
    for t in range(t0, t1):
        for row in range(rows):
            factors[(t - t0) * rows + row] = w[begin + row * stride + weights[t]]


@jit
def pack(packed, w, members, strides, weights, start, stop):
    """Pack the weights of all taps for vectors start:stop of LANES channels each."""
    taps = len(weights)
    for i in range(start * LANES, stop * LANES):
        begin = i // members * strides[1] + i % members * strides[0]
        place = i // LANES * taps * LANES + i % LANES
        for t in range(taps):
            packed[place + t * LANES] = w[min(begin + weights[t], len(w) - 1)]


@part
def _weigh(sums, factors, b, offsets, at, t0, t1, length, apart, alike):
    """Compute the sums of a plane's vectors, `apart` elements apart. alike: whether a tap has one weight."""
    while at + (MANY - 1) * apart < length:
        if alike:
            many_alike(sums, factors, b, offsets, (at, t0, t1, LANES))
        else:
            many_sums(sums, factors, b, offsets, (at, t0, t1, apart))
        at += MANY * apart
    while at + (SOME - 1) * apart < length:
        if alike:
            some_alike(sums, factors, b, offsets, (at, t0, t1, LANES))
        else:
            some_sums(sums, factors, b, offsets, (at, t0, t1, apart))
        at += SOME * apart
    while at < length:
        if alike:
            one_alike(sums, factors, b, offsets, (at, t0, t1, LANES))
        else:
            one_sum(sums, factors, b, offsets, (at, t0, t1, apart))
        at += apart


@jit
def filters(w, x, y, b, d, sums, turned, side, of_y, cut, like, offsets, weights, planes, strides, sizes, start, stop):
    """Compute groups start:stop of wgrad. like: `Cut` of y's buffer d. sizes: rows of a strip, images, channels."""
    size, taps, (strip, images, channels) = (
        cut.down * cut.across * cut.depth * cut.pitch * cut.unit,
        len(offsets),
        sizes,
    )
    b[:], d[:] = np.float32(0), np.float32(0)  # all of b, since its unused parts are multiplied, too, by zeros of d
    for group in range(start, stop):
        lanes = min(cut.unit, channels - group * cut.unit)
        sums[:] = np.float32(0)
        for image in range(images):
            if turned is not None:
                turn(turned[0], x, turned[2], image, group, lanes)
                turn(turned[1], y, turned[3], image, group, lanes)
            for first in range(0, of_y.height, strip):
                length = ((min(strip, of_y.height - first) - 1) * cut.pitch + of_y.width) * cut.unit
                if turned is None:
                    load_group(b, size, planes[0], x, side, cut, image, group, lanes, first)
                else:
                    load(b, size, 1, turned[0], side, cut, 0, lanes, first)
                for plane in range(planes[1]):
                    at = image * of_y.image + (group * planes[1] + plane) * of_y.plane
                    load(d, 0, 1, y if turned is None else turned[1], of_y, like, at, lanes, first)
                    for v in range(0, lanes, LANES):
                        apart = max(cut.unit, LANES)
                        _add(sums[plane * taps * LANES + v * taps :], d, b, offsets, v, length, apart)
        for plane in range(planes[1]):
            _end(w, sums[plane * taps * LANES :], group, plane, planes[0], lanes, cut.unit, weights, strides)


@part
def _end(w, sums, group, plane, members, lanes, unit, weights, strides):
    """Store a filter's gradient: the sum of a vector of pixels, or one sum for each channel."""
    taps = len(weights)
    for t in range(taps):
        if unit == 1:
            w[group * strides[1] + plane * strides[0] + weights[t]] = total_of(sums, t * LANES)
        else:
            for i in range(lanes):
                channel, place = group * unit + i, (i // LANES * taps + t) * LANES + i % LANES
                begin = channel // members * strides[1] + channel % members * strides[0]
                w[begin + weights[t]] = sums[place]


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
