"""Convolution by the FFT of tiles: transforms, a complex matrix product a frequency, and the way back.

Overlap-save in every direction, all of them circular convolutions of planes whose window is kept: fprop of x with the
filter backwards, dgrad of y with the filter, wgrad of x with y backwards, summed over tiles. Spectra lie as
(frequency, plane), so that BLAS finds its matrices where FFTW leaves them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Array, Launch
from kernels._host import alone, in_turn
from kernels._numba import bind
from kernels._team import in_bands
from kernels.conv.fft._planes import Order, forward, inverse
from kernels.conv.fft._tiling import Cut, Cuts
from kernels.conv.fft._transforms import Transform, transform
from kernels.conv.problem import ConvOperands, ConvProblem

LINE = 8  # complex numbers of a cache line of 64 bytes; a batch of tiles too large for it is no smaller
#: Bytes of products that wait to be added to a filter's gradient.
_PRODUCT_BYTES = 256 << 10


class Planes(NamedTuple):
    """An operand's planes, where they are cut, in how many batches, and in which order.

    blocks, held: a batch of tiles and one of spectra for each thread. spectra: of all planes, (frequency, plane).
    """

    flat: Array
    cut: Cut
    order: Order
    batches: int
    blocks: list[Array]
    held: list[Array]
    spectra: Array
    plan: Transform


def spectral(problem: ConvProblem, x: ConvOperands, c: Cuts, block: int) -> Launch:
    """A launch that convolves by tiles, a block of them at a time; the filters' spectra are formed once."""
    inputs, output = [name for name in "wxy" if name != problem.output], problem.output
    planes = {name: _planes(problem, x, c, block, name) for name in "xwy"}
    height, width = c.sides
    x.chose(tile=width if height == width else f"{height}x{width}", tiles=block, **planes["w"].plan.facts)
    starts = range(0, c.x.places, block)
    matrices = _matrices(problem, planes)
    multiplied = _products(*matrices, x.threads)
    added = _added(*matrices, x) if output == "w" and len(starts) > 1 else multiplied
    steps: list[Launch] = []
    for start in starts:
        wanted = [name for name in inputs if name != "w" or start == 0]
        steps += [_transformed(forward, planes[name], start, x.threads) for name in wanted]
        steps += [added if start else multiplied]
        if output != "w":
            steps += [_transformed(inverse, planes[output], start, x.threads)]
    if output == "w":
        steps += [_transformed(inverse, planes["w"], 0, x.threads)]
    return alone(in_turn(*steps))


def _transformed(run: Any, planes: Planes, start: int, threads: int) -> Launch:
    """The planes of the block of tiles that begins at `start`, or of all filters, by all threads."""
    buffers = iter(zip(planes.blocks, planes.held, strict=True))
    fft, order = (planes.plan.execute, planes.plan.plan), planes.order._replace(first=start)

    def band(first: int, last: int) -> Launch:
        block, held = next(buffers)
        return bind(run, fft, planes.flat, planes.cut, order, block, held, planes.spectra, first, last)

    return in_bands(planes.batches, threads, band)


def _planes(problem: ConvProblem, x: ConvOperands, c: Cuts, block: int, name: str) -> Planes:
    cut: Cut = getattr(c, name)
    images, channels = problem.shapes()[name][:2]
    order = Order(0, images if name == "w" else block, images, channels, problem.layout == "nchw" and name != "w")
    count = order.channels * order.tiles
    batch = _batch(count, x.threads, (x.tile.BATCH << 10) // (4 * cut.points))
    batches = math.ceil(count / batch)
    width = batches * batch
    width += LINE * (width * 8 % 4096 == 0)  # rows 4 KiB apart would compete for the same lines of a cache
    shape = (batch, *c.sides)
    blocks = [x.scratch(shape, "f32") for _ in range(x.threads)]
    held = [_complex(x, (c.frequencies, batch)) for _ in range(x.threads)]
    spectra, plan = _complex(x, (c.frequencies, width)), transform(*shape, name == problem.output)
    return Planes(getattr(x, name).reshape(-1), cut, order, batches, blocks, held, spectra, plan)


def _complex(x: ConvOperands, shape: tuple[int, ...]) -> Array:
    array: Array = x.scratch((*shape, 2), "f32").view(np.complex64)[..., 0]
    return array


def _batch(count: int, threads: int, limit: int) -> int:
    """A power of two, so that there are few plans: the largest that gives no thread an eighth more than its share."""
    sizes = [1 << i for i in range(max(LINE, limit).bit_length())]
    share = count / threads
    return min(sizes, key=lambda size: (max(math.ceil(share / size) * size, 1.125 * share), -size))


def _products(a: Array, b: Array, out: Array, threads: int) -> Launch:
    """A matrix product for each frequency and group, by all threads."""

    def band(first: int, last: int) -> Launch:
        return lambda: np.matmul(a[first:last], b[first:last], out=out[first:last])

    return in_bands(len(out), threads, band)


def _added(a: Array, b: Array, out: Array, x: ConvOperands) -> Launch:
    """The products added to what is there, a few frequencies at a time."""
    size = max(1, _PRODUCT_BYTES // out[0].nbytes)

    def band(first: int, last: int) -> Launch:
        product = _complex(x, (size, *out.shape[1:]))
        parts = [slice(start, min(start + size, last)) for start in range(first, last, size)]

        def add() -> None:
            for part in parts:
                held = product[: part.stop - part.start]
                np.matmul(a[part], b[part], out=held)
                np.add(out[part], held, out=out[part])

        return add

    return in_bands(len(out), x.threads, band)


def _matrices(problem: ConvProblem, planes: dict[str, Planes]) -> tuple[Array, Array, Array]:
    """The two factors at each frequency and group, and the output, which lies in rows."""
    x, w, y = (_by_group(planes[name], name) for name in "xwy")
    a, b, out = {
        "fprop": (w, x, y),
        "dgrad": (_transposed(w), y, x),
        "wgrad": (y, _transposed(x), w),
    }[problem.direction]
    if problem.direction != "wgrad" and problem.layout == "nhwc":
        return _transposed(b), _transposed(a), _transposed(out)
    return a, b, out


def _by_group(planes: Planes, name: str) -> Array:
    """(frequency, group, channel, tile), of a filter (frequency, group, filter, channel)."""
    groups, order = planes.cut.groups, planes.order
    held = planes.spectra[:, : order.channels * order.tiles]
    if name == "w":
        return held.reshape(len(held), groups, -1, order.channels)
    if order.tiles_first:
        return held.reshape(len(held), groups, -1, order.tiles)
    return held.reshape(len(held), order.tiles, groups, -1).transpose(0, 2, 3, 1)


def _transposed(matrices: Array) -> Array:
    return matrices.swapaxes(-1, -2)
