"""Numba functions between images and spectra: planes cut out of images, transformed a batch at a time, and put back.

A batch of planes and its spectra are small enough for a cache of a thread's own; FFTW's passes over a large array with
wide strides would be many times slower. From there a row of the batch goes to each frequency's matrix. Serial; they
release the GIL.
"""

from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernelmark import Array
from kernels._numba import jit
from kernels.conv.fft._cuts import Cut


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


#: `_execute(function, plan, source, target)`, all of them addresses: FFTW's execution of a plan on other arrays.
_execute = cast(Any, intrinsic(_call))


@jit
def transform(fft: tuple[int, int], source: Array, target: Array) -> None:
    """FFTW's transform of contiguous arrays by the addresses of its execution and plan."""
    _execute(fft[0], fft[1], source.ctypes.data, target.ctypes.data)


@jit
def _place(cut: Cut, plane: int, first: int, count: int) -> tuple[bool, int, int, int]:
    """Of a plane among those of `count` tiles from the `first` on: whether it exists, its offset, its tile's corner."""
    if cut.tiles_first:
        channel, tile = divmod(plane, count)
    else:
        tile, channel = divmod(plane, cut.channels)
    image, tile = divmod(first + tile, cut.tiles)
    row, column = divmod(tile, cut.across)
    exists = image < cut.images and channel < cut.channels
    return exists, image * cut.stride_n + channel * cut.stride_c, row * cut.step_h, column * cut.step_w


@jit
def _met(begin: int, extent: int, spacing: int, size: int) -> tuple[int, int]:
    """Elements of an axis of `size` that lie in `extent` places from `begin` on, `spacing` apart."""
    return max(0, -(-begin // spacing)), min(size, (begin + extent - 1) // spacing + 1)


@jit
def _copy(source: Array, target: Array, scale: np.float32) -> None:
    """From 0 on, so that no index looks as if it might count from the end, and LLVM makes vectors of it."""
    for i in range(len(source)):
        target[i] = source[i] * scale


@jit
def _fetch(flat: Array, cut: Cut, offset: int, top: int, left: int, target: Array) -> None:
    """A tile's elements, into zeros."""
    top, left = top + cut.origin_h, left + cut.origin_w
    row_0, row_1 = _met(top, cut.extent_h, cut.spacing_h, cut.rows)
    column_0, column_1 = _met(left, cut.extent_w, cut.spacing_w, cut.columns)
    for row in range(row_0, row_1):
        source = offset + row * cut.stride_h
        i = row * cut.spacing_h - top
        if cut.flip:
            i = cut.extent_h - 1 - i
        if cut.stride_w == 1 and cut.spacing_w == 1 and not cut.flip and column_0 < column_1:
            part = flat[source + column_0 : source + column_1]
            _copy(part, target[i, column_0 - left : column_1 - left], np.float32(1))
            continue
        for column in range(column_0, column_1):
            j = column * cut.spacing_w - left
            target[i, cut.extent_w - 1 - j if cut.flip else j] = flat[source + column * cut.stride_w]


@jit
def _store(flat: Array, cut: Cut, offset: int, top: int, left: int, source: Array, scale: np.float32) -> None:
    """The window of a tile, as far as it is the image's."""
    row_0, row_1 = _met(top, cut.extent_h, cut.spacing_h, cut.rows)
    column_0, column_1 = _met(left, cut.extent_w, cut.spacing_w, cut.columns)
    for row in range(row_0, row_1):
        target = offset + row * cut.stride_h
        i = cut.window_h + row * cut.spacing_h - top
        if cut.stride_w == 1 and cut.spacing_w == 1 and column_0 < column_1:
            first = cut.window_w - left
            part = source[i, first + column_0 : first + column_1]
            _copy(part, flat[target + column_0 : target + column_1], scale)
            continue
        for column in range(column_0, column_1):
            j = cut.window_w + column * cut.spacing_w - left
            flat[target + column * cut.stride_w] = source[i, j] * scale


@jit
def forward(fft, flat, cut, tiles, block, held, spectra, start, stop):  # type: ignore[no-untyped-def]
    """Batches start:stop of the planes of `tiles` = (first, count): cut to `block`, transformed to `held`, spread.

    fft: addresses of FFTW's execution and plan. held: a batch's spectra (frequency, plane).
    """
    batch = len(block)
    for at in range(start * batch, stop * batch, batch):
        for b in range(batch):
            exists, offset, top, left = _place(cut, at + b, tiles[0], tiles[1])
            block[b] = 0
            if exists:
                _fetch(flat, cut, offset, top, left, block[b])
        transform(fft, block, held)
        for frequency in range(len(held)):
            spectra[frequency, at : at + batch] = held[frequency]


@jit
def inverse(fft, flat, cut, tiles, block, held, spectra, start, stop):  # type: ignore[no-untyped-def]
    """The same backwards: batches start:stop gathered, transformed, and their windows stored, over the tile's size."""
    batch = len(block)
    scale = np.float32(1 / (block.shape[1] * block.shape[2]))
    for at in range(start * batch, stop * batch, batch):
        for frequency in range(len(held)):
            held[frequency] = spectra[frequency, at : at + batch]
        transform(fft, held, block)
        for b in range(batch):
            exists, offset, top, left = _place(cut, at + b, tiles[0], tiles[1])
            if exists:
                _store(flat, cut, offset, top, left, block[b], scale)
