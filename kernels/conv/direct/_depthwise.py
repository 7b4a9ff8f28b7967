"""Grouped convolution: vectors of places, each the sum of a weight for each tap times what the tap meets.

A vector is of pixels, or in depthwise convolution with channels last of channels; the weights of a tap are as many,
alike for pixels. The arguments that `_planes.py` describes are the same in all functions.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from typing import Any, cast

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels._host import registers
from kernels._numba import data, jit, llvm
from kernels._tile import INTEGER, LANES, VECTOR, Sums, after, loaded, number, stored, vectors_at

MANY, SOME = 8, 4  # vectors of sums at a time
ROWS, ACROSS = 4, 2 if registers().nbytes == 32 else 4  # planes of the target at a time, and vectors of each
TAPS, FEW = 9, 3  # of a filter's gradient at a time
SLACK = LANES * MANY  # elements that may be read beyond a buffer


def _addresses(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """Where the first four arguments begin, which are arrays."""
    return [data(context, builder, kind, array) for kind, array in zip(signature.args[:4], args[:4], strict=True)]


def _weighted(count: int) -> Any:
    def typed(_context: Any, held: Any, weights: Any, b: Any, offsets: Any, place: Any) -> Any:
        return types.void(held, weights, b, offsets, place), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, factors, source, offsets = _addresses(context, builder, signature, args)
        at, first, last = cgutils.unpack_tuple(builder, args[4], 3)
        totals = [cast(Any, cgutils).alloca_once(builder, VECTOR) for _ in range(count)]  # which LLVM makes registers
        for total in totals:
            builder.store(VECTOR(None), total)
        with cgutils.for_range_slice(builder, first, last, number(1), INTEGER) as (t, _):
            line = after(builder, factors, builder.mul(builder.sub(t, first), number(LANES)))
            (weight,) = loaded(builder, vectors_at(builder, line, 1))
            begin = after(builder, source, at, builder.load(after(builder, offsets, t)))
            for total, met in zip(totals, loaded(builder, vectors_at(builder, begin, count)), strict=True):
                builder.store(llvm(builder, "fma", weight, met, builder.load(total)), total)
        stored(builder, [builder.load(total) for total in totals], vectors_at(builder, after(builder, to, at), count))
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


#: `f(held, weights, b, offsets, (at, first, last))`: vectors of held from `at` on are the sums over the taps
#: first:last of their weights, which begin with those of `first`, and of b from at + offsets[tap] on.
_many, _some, _one = (_weighted(count) for count in (MANY, SOME, 1))


def _block(_context: Any, held: Any, weights: Any, b: Any, offsets: Any, place: Any) -> Any:
    """ROWS x ACROSS vectors of sums; the weights of a tap are a number for each row, and rows lie `line` apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, factors, source, offsets = _addresses(context, builder, signature, args)
        at, first, last, line = cgutils.unpack_tuple(builder, args[4], 4)
        sums = Sums(builder, ROWS, ACROSS)
        sums.begin([VECTOR(None)] * (ROWS * ACROSS))
        with cgutils.for_range_slice(builder, first, last, number(1), INTEGER) as (t, _):
            own = after(builder, factors, builder.mul(builder.sub(t, first), number(ROWS)))
            begin = after(builder, source, at, builder.load(after(builder, offsets, t)))
            met = loaded(builder, vectors_at(builder, begin, ACROSS))
            sums.add(lambda row: builder.load(after(builder, own, number(row))), met)
        rows = (after(builder, to, at, builder.mul(line, number(row))) for row in range(ROWS))
        stored(builder, sums.values(), [place for row in rows for place in vectors_at(builder, row, ACROSS)])
        return context.get_dummy_value()

    return types.void(held, weights, b, offsets, place), generate


_rows = cast(Any, intrinsic(_block))


def _added(count: int) -> Any:
    def typed(_context: Any, sums: Any, d: Any, b: Any, offsets: Any, place: Any) -> Any:
        return types.void(sums, d, b, offsets, place), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, gradient, source, offsets = _addresses(context, builder, signature, args)
        first, length = cgutils.unpack_tuple(builder, args[4], 2)
        begins = [after(builder, source, builder.load(after(builder, offsets, first, number(t)))) for t in range(count)]
        places = vectors_at(builder, after(builder, to, builder.mul(first, number(LANES))), count)
        totals = [cast(Any, cgutils).alloca_once(builder, VECTOR) for _ in range(count)]
        for total, value in zip(totals, loaded(builder, places), strict=True):
            builder.store(value, total)
        with cgutils.for_range_slice(builder, number(0), length, number(LANES), INTEGER) as (at, _):
            (factor,) = loaded(builder, vectors_at(builder, after(builder, gradient, at), 1))
            for total, begin in zip(totals, begins, strict=True):
                (met,) = loaded(builder, vectors_at(builder, after(builder, begin, at), 1))
                builder.store(llvm(builder, "fma", factor, met, builder.load(total)), total)
        stored(builder, [builder.load(total) for total in totals], places)
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


#: `f(sums, d, b, offsets, (first, length))`: for as many taps from `first` on, add the products of d's vectors and of
#: those of b from offsets[tap] on to a vector of sums.
_taps, _few_taps, _tap = (_added(count) for count in (TAPS, FEW, 1))


def _moved(_context: Any, to: Any, at: Any, source: Any, begin: Any) -> Any:
    """A vector from one place to another."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, origin = (
            after(builder, data(context, builder, signature.args[i], args[i]), args[i + 1]) for i in (0, 2)
        )
        stored(builder, loaded(builder, vectors_at(builder, origin, 1)), vectors_at(builder, target, 1))
        return context.get_dummy_value()

    return types.void(to, at, source, begin), generate


_move = cast(Any, intrinsic(_moved))


@jit
def _load(b, x, side, cut, at, lanes, first):
    """Fill the buffer with the source's rows from that of the target's row `first` on, and zeros around them."""
    for phase in range(cut.down * cut.across):
        h_phase, w_phase = phase // cut.across, phase % cut.across
        low = min(cut.pitch, max(0, -((w_phase - cut.left) // cut.across)))
        high = min(cut.pitch, max(low, -((w_phase - cut.left - side.width) // cut.across)))
        begin = at + (low * cut.across + w_phase - cut.left) * side.column
        for row in range(cut.depth):
            h = (first + row) * cut.down + h_phase - cut.top
            line = (phase * cut.depth + row) * cut.pitch * cut.unit
            if h < 0 or h >= side.height or low == high:
                b[line : line + cut.pitch * cut.unit] = np.float32(0)
                continue
            b[line : line + low * cut.unit] = np.float32(0)
            _load_row(b, line + low * cut.unit, x, begin + h * side.row, high - low, cut, side.column, lanes)
            b[line + high * cut.unit : line + cut.pitch * cut.unit] = np.float32(0)


@jit
def _load_row(b, line, x, begin, count, cut, column, lanes):
    step = cut.across * column
    if cut.unit == 1:
        if step == 1:
            for j in range(count):
                b[line + j] = x[begin + j]
        else:
            for j in range(count):
                b[line + j] = x[begin + j * step]
    elif lanes == LANES:
        for j in range(count):
            _move(b, line + j * LANES, x, begin + j * step)
    else:
        for j in range(count):
            for i in range(LANES):
                b[line + j * LANES + i] = x[begin + j * step + i] if i < lanes else np.float32(0)


@jit
def _store(out, side, held, cut, at, lanes, rows, columns):
    """Put a strip's sums where they belong; rows: first, step and number; columns: the same."""
    step = columns[1] * side.column
    for i in range(rows[2]):
        line, to = i * cut.pitch * cut.unit, at + (rows[0] + i * rows[1]) * side.row + columns[0] * side.column
        if cut.unit == 1:
            if step == 1:
                for j in range(columns[2]):
                    out[to + j] = held[line + j]
            else:
                for j in range(columns[2]):
                    out[to + j * step] = held[line + j]
        elif lanes == LANES:
            for j in range(columns[2]):
                _move(out, to + j * step, held, line + j * LANES)
        else:
            for j in range(columns[2]):
                for i_lane in range(lanes):
                    out[to + j * step + i_lane] = held[line + j * LANES + i_lane]


@jit
def images(
    out, source, w, b, held, factors, to, side, cut, parts, offsets, weights, planes, strides, items, start, stop
):
    """Items start:stop of fprop or dgrad."""
    size, line = cut.down * cut.across * cut.depth * cut.pitch * cut.unit, len(held) // ROWS
    for item in range(start, stop):
        image, group, lanes, r0, r1 = items[item]
        for plane in range(planes[0]):
            at = image * side.image + (group * planes[0] + plane) * side.plane
            _load(b[plane * size :], source, side, cut, at, lanes, r0)
        for part in range(len(parts)):
            first_h, step_h, rows, first_w, step_w, columns, t0, t1 = parts[part]
            down, across = (first_h + r0 * step_h, step_h, min(r1, rows) - r0), (first_w, step_w, columns)
            length = ((down[2] - 1) * cut.pitch + columns) * cut.unit
            plane = 0
            while plane < planes[1] and down[2] > 0:
                many = ROWS if plane + ROWS <= planes[1] else 1
                begin = group * cut.unit * strides[1] + plane * strides[0]
                if many > 1:
                    _scalars(factors, w, begin, strides[0], weights, t0, t1)
                    for v in range(0, length, ACROSS * LANES):
                        _rows(held, factors, b, offsets, (v, t0, t1, line))
                else:
                    _vectors(factors, w, begin, strides[1], lanes, weights, t0, t1)
                    _weigh(held, factors, b, offsets, t0, t1, length)
                for row in range(many):
                    at = image * to.image + (group * planes[1] + plane + row) * to.plane
                    _store(out, to, held[row * line :], cut, at, lanes, down, across)
                plane += many


@jit
def _scalars(factors, w, begin, stride, weights, t0, t1):
    for t in range(t0, t1):
        for row in range(ROWS):
            factors[(t - t0) * ROWS + row] = w[begin + row * stride + weights[t]]


@jit
def _vectors(factors, w, begin, stride, lanes, weights, t0, t1):
    """Of a vector's channels, or all alike for one channel."""
    for t in range(t0, t1):
        for i in range(LANES):
            factors[(t - t0) * LANES + i] = w[begin + min(i, lanes - 1) * stride + weights[t]]


@jit
def _weigh(held, factors, b, offsets, t0, t1, length):
    at = 0
    while at + (MANY - 1) * LANES < length:
        _many(held, factors, b, offsets, (at, t0, t1))
        at += MANY * LANES
    while at + (SOME - 1) * LANES < length:
        _some(held, factors, b, offsets, (at, t0, t1))
        at += SOME * LANES
    while at < length:
        _one(held, factors, b, offsets, (at, t0, t1))
        at += LANES


@jit
def filters(w, x, y, b, d, sums, side, of_y, cut, like, offsets, weights, planes, strides, sizes, start, stop):
    """Groups start:stop of wgrad, or planes of them. like: how y is cut into d. sizes: strip, images and groups."""
    size, taps, (strip, images, groups) = cut.down * cut.across * cut.depth * cut.pitch * cut.unit, len(offsets), sizes
    b[planes[0] * size :] = np.float32(0)  # what zeros of d are multiplied with must be numbers
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
                    d[length : length + LANES] = np.float32(0)
                    _add(sums[plane * taps * LANES :], d, b, offsets, length)
        for plane in range(planes[1]):
            _end(w, sums[plane * taps * LANES :], group * cut.unit, plane, lanes, cut.unit, weights, strides)


@jit
def _end(w, sums, group, plane, lanes, unit, weights, strides):
    """A filter's gradient where it belongs: the sum of a vector of pixels, or one for each channel."""
    begin = group * strides[1] + plane * strides[0]
    for t in range(len(weights)):
        if unit == 1:
            w[begin + weights[t]] = sums[t * LANES : (t + 1) * LANES].sum()
        else:
            for i in range(lanes):
                w[begin + i * strides[1] + weights[t]] = sums[t * LANES + i]


@jit
def _add(sums, d, b, offsets, length):
    t = 0
    while t + TAPS <= len(offsets):
        _taps(sums, d, b, offsets, (t, length))
        t += TAPS
    while t + FEW <= len(offsets):
        _few_taps(sums, d, b, offsets, (t, length))
        t += FEW
    while t < len(offsets):
        _tap(sums, d, b, offsets, (t, length))
        t += 1
