"""Convolution by the FFT of tiles: transforms, a complex matrix product a frequency, and the way back.

Overlap-save in every direction, all of them circular convolutions of planes whose window is kept: fprop of x with the
filter backwards, dgrad of y with the filter, wgrad of x with y backwards, summed over tiles. Spectra lie as
(frequency, plane), so that BLAS finds its matrices where FFTW leaves them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Array, Launch
from kernels._numba import bind
from kernels._threads import in_bands
from kernels.conv._blas import alone
from kernels.conv.fft._cuts import Cut, cut
from kernels.conv.fft._planes import forward, inverse
from kernels.conv.fft._tiling import Tiling
from kernels.conv.fft._transforms import Transform, transform
from kernels.conv.problem import ConvOperands, ConvProblem

#: Bytes of a batch of tiles: with its spectra it stays in a second-level cache.
BATCH_BYTES = 128 << 10
LINE = 8  # complex numbers of a cache line of 64 bytes; a batch of tiles too large for it is no smaller
#: Bytes of products that wait to be added to a filter's gradient.
_PRODUCT_BYTES = 256 << 10


class Planes(NamedTuple):
    """An operand's planes, where they are cut, and in how many batches.

    blocks, held: a batch of tiles and one of spectra for each thread. spectra: of all planes, (frequency, plane).
    """

    flat: Array
    cut: Cut
    batches: int
    blocks: list[Array]
    held: list[Array]
    spectra: Array
    plan: Transform


def spectral(problem: ConvProblem, x: ConvOperands, tiling: Tiling) -> Launch:
    """A launch that convolves by tiles, a block of them at a time; the filters' spectra are formed once."""
    inputs = {"fprop": "wx", "dgrad": "wy", "wgrad": "xy"}[problem.direction]
    planes = {name: _planes(problem, x, tiling, name, name not in inputs) for name in "xwy"}
    x.chose(tile=tiling.name, tiles=tiling.block, **planes["w"].plan.facts)
    (output,) = set("xwy") - set(inputs)
    starts = range(0, tiling.tiles, tiling.block)
    multiplied = _products(problem, tiling, planes, x.threads)
    added = _added(problem, tiling, planes, x) if output == "w" and len(starts) > 1 else multiplied
    steps: list[Launch] = []
    for index, start in enumerate(starts):
        wanted = [name for name in inputs if name != "w" or index == 0]
        steps += [_transformed(forward, planes[name], name, start, problem, tiling, x.threads) for name in wanted]
        steps += [added if index else multiplied]
        if output != "w" or start == starts[-1]:
            steps += [_transformed(inverse, planes[output], output, start, problem, tiling, x.threads)]

    def launch() -> None:
        for step in steps:
            step()

    return alone(launch, x.threads)


def _transformed(
    run: Any, planes: Planes, name: str, start: int, problem: ConvProblem, tiling: Tiling, threads: int
) -> Launch:
    """The planes of a block of tiles, or of all filters, by all threads."""
    tiles = (0, problem.k) if name == "w" else (start, tiling.block)
    buffers = iter(zip(planes.blocks, planes.held, strict=True))
    plan = planes.plan

    def band(first: int, last: int) -> Launch:
        block, held = next(buffers)
        args = ((plan.execute, plan.plan), planes.flat, planes.cut, tiles, block, held, planes.spectra, first, last)
        return bind(run, *args)

    return in_bands(planes.batches, threads, band)


def _planes(problem: ConvProblem, x: ConvOperands, tiling: Tiling, name: str, output: bool) -> Planes:
    array, where = getattr(x, name), cut(problem, tiling, name, output)
    count = where.channels * (problem.k if name == "w" else tiling.block)
    batch = _batch(count, x.threads, BATCH_BYTES // (4 * tiling.points))
    batches = math.ceil(count / batch)
    width = batches * batch
    width += LINE * (width * 8 % 4096 == 0)  # rows 4 KiB apart would compete for the same lines of a cache
    shape = (batch, tiling.height.side, tiling.width.side)
    blocks = [x.scratch(shape, "f32") for _ in range(x.threads)]
    held = [_complex(x, (tiling.frequencies, batch)) for _ in range(x.threads)]
    spectra = _complex(x, (tiling.frequencies, width))
    return Planes(array.reshape(-1), where, batches, blocks, held, spectra, transform(*shape, output))


def _complex(x: ConvOperands, shape: tuple[int, ...]) -> Array:
    array: Array = x.scratch((*shape, 2), "f32").view(np.complex64)[..., 0]
    return array


def _batch(count: int, threads: int, limit: int) -> int:
    """A power of two, so that there are few plans: the largest that gives no thread an eighth more than its share."""
    sizes = [1 << i for i in range(max(LINE, limit).bit_length())]
    share = count / threads
    return min(sizes, key=lambda size: (max(math.ceil(share / size) * size, 1.125 * share), -size))


def _products(problem: ConvProblem, tiling: Tiling, planes: dict[str, Planes], threads: int) -> Launch:
    """A matrix product for each frequency and group, by all threads."""
    a, b, out = _matrices(problem, tiling, planes)

    def band(first: int, last: int) -> Launch:
        return lambda: np.matmul(a[first:last], b[first:last], out=out[first:last])

    return in_bands(tiling.frequencies, threads, band)


def _added(problem: ConvProblem, tiling: Tiling, planes: dict[str, Planes], x: ConvOperands) -> Launch:
    """The same, added to what is there, a few frequencies at a time."""
    a, b, out = _matrices(problem, tiling, planes)
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

    return in_bands(tiling.frequencies, x.threads, band)


def _matrices(problem: ConvProblem, tiling: Tiling, planes: dict[str, Planes]) -> tuple[Array, Array, Array]:
    """Of each frequency and group: what is multiplied, and the output, which lies in rows."""
    x, w, y = (_by_group(planes[name], name, problem, tiling) for name in "xwy")
    a, b, out = {
        "fprop": (w, x, y),
        "dgrad": (_transposed(w), y, x),
        "wgrad": (y, _transposed(x), w),
    }[problem.direction]
    if problem.direction != "wgrad" and problem.layout == "nhwc":
        return _transposed(b), _transposed(a), _transposed(out)
    return a, b, out


def _by_group(planes: Planes, name: str, problem: ConvProblem, tiling: Tiling) -> Array:
    """(frequency, group, channel, tile), of a filter (frequency, group, filter, channel)."""
    groups, channels, frequencies = problem.groups, planes.cut.channels, tiling.frequencies
    if name == "w":
        return planes.spectra[:, : problem.k * channels].reshape(frequencies, groups, -1, channels)
    held = planes.spectra[:, : channels * tiling.block]
    if planes.cut.tiles_first:
        return held.reshape(frequencies, groups, -1, tiling.block)
    return held.reshape(frequencies, tiling.block, groups, -1).transpose(0, 2, 3, 1)


def _transposed(matrices: Array) -> Array:
    return matrices.swapaxes(-1, -2)
