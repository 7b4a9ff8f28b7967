"""Convolution by the FFT of tiles: transforms, a complex matrix product per frequency, inverse transforms.

Overlap-save: each direction is a circular convolution or correlation of planes, and a window of the result is kept:
fprop correlates x with the filter, dgrad convolves y with it, wgrad correlates x with y, summed over tiles. Spectra are
stored as (frequency, part, plane), where parts are real and imaginary, so that products find a matrix per frequency.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels._ahead import ahead
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._numba import bind
from kernelmark.kernels._tile import LANES
from kernelmark.kernels.conv.fft import _lanes, _planes
from kernelmark.kernels.conv.fft._codelets import CAN_PASS, UNIT, column, row, row_back
from kernelmark.kernels.conv.fft._planes import Order
from kernelmark.kernels.conv.fft._products import SCRATCH, WIDTH, products
from kernelmark.kernels.conv.fft._tiling import Cut, Cuts
from kernelmark.kernels.conv.fft._transforms import transform
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem

#: Axes of a problem's matrices: filters k and channels c, both of a group, and tiles t.
AXES = {"x": "ct", "w": "kc", "y": "kt"}


class Way(NamedTuple):
    """A way to transform `batch` planes at a time: a Numba function, and the addresses that the function uses.

    buffers: each thread's scratch for a batch. facts: facts about the FFT plan that `x.chose` reports.
    """

    run: Callable[..., None]
    addresses: tuple[int, int]
    batch: int
    buffers: list[Any]
    facts: dict[str, str]


class Planes(NamedTuple):
    """An operand's planes: their cut, order, number of batches, and flat spectra."""

    flat: Array
    cut: Cut
    order: Order
    batches: int
    width: int
    spectra: Array
    way: Way


def spectral(problem: ConvProblem, x: ConvOperands, c: Cuts, block: int, way: Any) -> Launch:
    """Return a launch that convolves by tiles, a block of tiles at a time; filters are transformed once.

    way: `by_fftw` or `in_lanes`, the function that returns the implementation of the transforms.
    """
    inputs, output = [name for name in "wxy" if name != problem.output], problem.output
    rows, lanes, steps = axes(problem, c, block)
    planes = {name: _planes_of(problem, x, c, block, name, lanes, way) for name in "xwy"}
    height, width = c.sides
    x.chose(tile=width if height == width else f"{height}x{width}", tiles=block, **planes["w"].way.facts)
    buffers = [x.scratch((SCRATCH,), "f32") for _ in range(x.threads)]

    def multiplied(threads: int, keep: bool = False) -> Launch:
        return _multiplied(planes, buffers[:threads], output, (rows, lanes, steps), keep)

    back = planes[output].way.run, lambda: _transformed(planes[output], 0, 1)
    with ahead(back, (products, lambda: multiplied(1))):
        launches = [_transformed(planes[name], 0, x.threads) for name in inputs]
    for start in range(0, c.x.places, block):
        if start > 0:
            launches += [_transformed(planes[name], start, x.threads) for name in inputs if name != "w"]
        launches += [multiplied(x.threads, output == "w" and start > 0)]
        if output != "w":
            launches += [_transformed(planes[output], start, x.threads)]
    if output == "w":
        launches += [_transformed(planes["w"], 0, x.threads)]
    return in_turn(*launches)


def axes(problem: ConvProblem, c: Cuts, tiles: int) -> tuple[str, ...]:
    """Return which of k, c, t (tiles) are rows, lanes and steps; lanes are the output axis that fills vectors best."""
    sizes = {"k": c.y.channels, "c": c.x.channels, "t": tiles}
    first, second = {"fprop": ("k", "t"), "dgrad": ("c", "t"), "wgrad": ("c", "k")}[problem.direction]
    (steps,) = set(sizes) - {first, second}
    waste = {axis: -(-sizes[axis] // LANES) * LANES / sizes[axis] for axis in (first, second)}
    return (second, first, steps) if waste[first] <= waste[second] else (first, second, steps)


def _planes_of(problem: ConvProblem, x: ConvOperands, c: Cuts, block: int, name: str, lanes: str, way: Any) -> Planes:
    cut: Cut = getattr(c, name)
    images, channels = problem.shapes()[name][:2]
    order = Order(0, images if name == "w" else block, images, channels, lanes == ("k" if name == "w" else "t"))
    count = order.channels * order.tiles
    method: Way = way(x, cut, count, name == problem.output)
    batches = math.ceil(count / method.batch)
    width = -(-batches * method.batch // UNIT) * UNIT
    width += UNIT * (width * 8 % 4096 == 0)  # rows 4 KiB apart would compete for the same lines of a cache
    # Vectors of the last row may reach beyond it.
    spectra = x.scratch((c.frequencies * 2 * width + WIDTH,), "f32")
    return Planes(getattr(x, name).reshape(-1), cut, order, batches, width, spectra, method)


def by_fftw(x: ConvOperands, cut: Cut, count: int, output: bool) -> Way:
    """Return FFTW's transform of planes, in batches of at least a cache line of spectra."""
    batch = _batch(count, x.threads, _fitting(x, cut), UNIT)
    shape = (batch, cut.height.side, cut.width.side)
    plan = transform(*shape, output)
    buffers = [(x.scratch(shape, "f32"), _complex(x, (cut.frequencies, batch))) for _ in range(x.threads)]
    return Way(_planes.inverse if output else _planes.forward, (plan.execute, plan.plan), batch, buffers, plan.facts)


def in_lanes(x: ConvOperands, cut: Cut, count: int, output: bool) -> Way:
    """Return kernelmark's transform of UNIT planes at a time, one per lane, in batches written contiguously."""
    height, width = cut.height.side, cut.width.side
    units = _batch(math.ceil(count / UNIT), x.threads, _fitting(x, cut) // UNIT, 1)
    whole = math.ceil(width / UNIT) * UNIT
    shapes = (units, height, width // 2 + 1, 2, UNIT), (whole * UNIT,), (whole * UNIT,)
    buffers = [tuple(x.scratch(shape, "f32") for shape in shapes) for _ in range(x.threads)]
    if output:
        return Way(_lanes.inverse, (row_back(width), column(height)), units * UNIT, buffers, {})
    past = CAN_PASS and 8 * cut.frequencies * count > x.tile.STREAM << 20
    return Way(_lanes.forward, (row(width), column(height, past)), units * UNIT, buffers, {})


def _fitting(x: ConvOperands, cut: Cut) -> int:
    """Return the number of planes that fit in a batch."""
    return int(x.tile.BATCH << 10) // (4 * cut.points)


def _complex(x: ConvOperands, shape: tuple[int, ...]) -> Array:
    array: Array = x.scratch((*shape, 2), "f32").view(np.complex64)[..., 0]
    return array


def _batch(count: int, threads: int, limit: int, least: int) -> int:
    """Return the largest power of two at which no thread gets over 9/8 of its share; few sizes mean few FFT plans."""
    sizes = [1 << i for i in range(max(least, limit).bit_length())]
    share = count / threads
    return min(sizes, key=lambda size: (max(math.ceil(share / size) * size, 1.125 * share), -size))


def _transformed(planes: Planes, start: int, threads: int) -> Launch:
    """Return the launch that transforms all filters' planes, or the tiles' from `start`, on all threads."""
    way, order, buffers = planes.way, planes.order._replace(first=start), iter(planes.way.buffers)
    spectra = planes.spectra[:-WIDTH].reshape(-1, 2, planes.width)

    def band(first: int, last: int) -> Launch:
        return bind(way.run, way.addresses, planes.flat, planes.cut, order, next(buffers), spectra, first, last)

    return in_bands(planes.batches, threads, band)


def _multiplied(planes: dict[str, Planes], buffers: list[Array], output: str, along: Any, keep: bool) -> Launch:
    """Return the launch of one product per frequency and group, on a thread per buffer. keep: add to the old output."""
    rows, lanes, steps = along
    a, b = ("".join(name for name in "xwy" if set(AXES[name]) == {axis, steps}) for axis in (rows, lanes))
    of = {name: _strides(planes[name], name) for name in "xwy"}
    places = [
        tuple(of[name][axis] for axis in letters)
        for name, letters in ((a, f"fg{rows}{steps}p"), (b, f"fg{steps}p"), (output, f"fg{rows}p"))
    ]
    cuts = {"k": planes["y"].cut.channels, "c": planes["x"].cut.channels, "t": planes["x"].order.tiles}
    sizes = (planes["x"].cut.groups, cuts[rows], cuts[lanes], cuts[steps])
    flat = [planes[name].spectra for name in (a, b, output)]
    operands = (flat[0], places[0], flat[1], places[1], keep, flat[2], places[2])
    each_buffer = iter(buffers)

    def band(first: int, last: int) -> Launch:
        return bind(products, next(each_buffer), sizes, *operands, first, last)

    return in_bands(planes["x"].cut.frequencies, len(buffers), band)


def _strides(planes: Planes, name: str) -> dict[str, int]:
    """Return the strides of an operand's axes, groups (`g`), frequencies (`f`) and parts (`p`) in its spectra."""
    order, cut = planes.order, planes.cut
    channel, tile = (order.tiles, 1) if order.tiles_first else (1, order.channels)
    axes = {"x": {"c": channel, "t": tile}, "y": {"k": channel, "t": tile}, "w": {"c": channel, "k": tile}}[name]
    group = cut.images * tile if name == "w" else cut.channels * channel
    return {**axes, "g": group, "f": 2 * planes.width, "p": planes.width}
