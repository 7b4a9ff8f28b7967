"""Numba functions that cut planes from images, transform them to spectra batch by batch, and store the results.

A batch of planes and its spectra fit in the cache of one core; FFTW's passes over a large array with wide
strides would be many times slower. From this cache, a row of the batch is copied to each frequency's matrix. The
functions are serial and release the GIL.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernelmark import Array
from kernelmark.kernels._numba import jit
from kernelmark.kernels.conv.fft._tiling import Axis, Cut


def _call(_context: Any, function: Any, plan: Any, source: Any, target: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer] * 3)
        callee, *arguments = args
        builder.call(
            builder.inttoptr(callee, kind.as_pointer()), [builder.inttoptr(address, pointer) for address in arguments]
        )
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp), generate


#: `_execute(function, plan, source, target)`: let FFTW's function execute a plan on other arrays, given addresses.
_execute = cast(Any, intrinsic(_call))


@jit
def transform(fft: tuple[int, int], source: Array, target: Array) -> None:
    """Execute FFTW's transform of contiguous arrays, given the addresses of its execute function and plan."""
    _execute(fft[0], fft[1], source.ctypes.data, target.ctypes.data)


class Order(NamedTuple):
    """The planes to transform, in order: `tiles` tiles from number `first` on, counted over all images or filters.

    images, channels: the numbers of images and channels in all groups. tiles_first: whether neighbouring planes are
    tiles of one channel; otherwise they are channels of one tile.
    """

    first: int
    tiles: int
    images: int
    channels: int
    tiles_first: bool


@jit
def place(cut: Cut, order: Order, plane: int) -> tuple[bool, int, int, int]:
    """Return whether the plane exists, the offset of its image and channel, and the corner of its tile."""
    if order.tiles_first:
        channel, tile = divmod(plane, order.tiles)
    else:
        tile, channel = divmod(plane, order.channels)
    image, tile = divmod(order.first + tile, cut.height.tiles * cut.width.tiles)
    row, column = divmod(tile, cut.width.tiles)
    exists = image < order.images and channel < order.channels
    offset = image * cut.strides[2] + channel * cut.strides[1]
    return exists, offset, row * cut.height.step, column * cut.width.step


@jit
def met(axis: Axis, begin: int) -> tuple[int, int]:
    """Return the range of the tensor's elements in a tile that begins at `begin`; empty if all is padding.

    The range's end is never negative: in a slice, a negative end would count from the tensor's end.
    """
    first = max(0, -(-begin // axis.spacing))
    return first, max(first, min(axis.size, (begin + axis.extent - 1) // axis.spacing + 1))


@jit
def _copy(source: Array, target: Array, scale: np.float32) -> None:
    """Copy scaled elements by indices that LLVM knows not to be negative, so that it vectorises the loop."""
    for i in range(len(source)):
        target[i] = source[i] * scale


@jit
def _fetch(flat: Array, cut: Cut, offset: int, top: int, left: int, target: Array) -> None:
    """Copy a tile's elements into a zeroed array."""
    height, width, by_row, by_column = cut.height, cut.width, cut.strides[3], cut.strides[4]
    top, left = top + height.first, left + width.first
    row_0, row_1 = met(height, top)
    column_0, column_1 = met(width, left)
    for row in range(row_0, row_1):
        source = offset + row * by_row
        i = row * height.spacing - top
        if by_column == 1 and width.spacing == 1:
            part = flat[source + column_0 : source + column_1]
            _copy(part, target[i, column_0 - left : column_1 - left], np.float32(1))
            continue
        for column in range(column_0, column_1):
            j = column * width.spacing - left
            target[i, j] = flat[source + column * by_column]


@jit
def _store(flat: Array, cut: Cut, offset: int, top: int, left: int, source: Array, scale: np.float32) -> None:
    """Store the outputs of a tile that are in the image."""
    height, width, by_row, by_column = cut.height, cut.width, cut.strides[3], cut.strides[4]
    row_0, row_1 = met(height, top)
    column_0, column_1 = met(width, left)
    for row in range(row_0, row_1):
        target = offset + row * by_row
        i = height.lead + row * height.spacing - top
        if by_column == 1 and width.spacing == 1:
            first = width.lead - left
            part = source[i, first + column_0 : first + column_1]
            _copy(part, flat[target + column_0 : target + column_1], scale)
            continue
        for column in range(column_0, column_1):
            j = width.lead + column * width.spacing - left
            flat[target + column * by_column] = source[i, j] * scale


@jit
def forward(fft, flat, cut, order, buffers, spectra, start, stop):  # type: ignore[no-untyped-def]
    """Cut batches start:stop of planes from the tensor, transform them, and store them by frequency.

    fft: addresses of FFTW's execute function and plan. buffers: scratch for a batch of tiles and its spectra
    (frequency, plane). spectra: (frequency, part, plane); parts are real and imaginary.
    """
    block, frequencies = buffers
    batch, sign = len(block), np.float32(-1 if cut.turned else 1)
    for at in range(start * batch, stop * batch, batch):
        for b in range(batch):
            exists, offset, top, left = place(cut, order, at + b)
            block[b] = 0
            if exists:
                _fetch(flat, cut, offset, top, left, block[b])
        transform(fft, block, frequencies)
        for frequency in range(len(frequencies)):
            row, real, imaginary = frequencies[frequency], spectra[frequency, 0], spectra[frequency, 1]
            for b in range(batch):
                real[at + b], imaginary[at + b] = row[b].real, sign * row[b].imag


@jit
def inverse(fft, flat, cut, order, buffers, spectra, start, stop):  # type: ignore[no-untyped-def]
    """Gather batches start:stop of spectra, transform them, and store their outputs, divided by the tile's size."""
    block, frequencies = buffers
    batch, scale = len(block), np.float32(1 / (cut.height.side * cut.width.side))
    for at in range(start * batch, stop * batch, batch):
        for frequency in range(len(frequencies)):
            row, real, imaginary = frequencies[frequency], spectra[frequency, 0], spectra[frequency, 1]
            for b in range(batch):
                row[b] = complex(real[at + b], imaginary[at + b])
        transform(fft, frequencies, block)
        for b in range(batch):
            exists, offset, top, left = place(cut, order, at + b)
            if exists:
                _store(flat, cut, offset, top, left, block[b], scale)
