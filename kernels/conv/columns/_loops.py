"""Convolution as products with columns: blocks of columns are created, multiplied and discarded while in cache.

Each function processes the items `start:stop` of a plan (`_plan.py`) on one thread, with `columns` and `buffer` as
scratch. If `columns` is None, images are multiplied as stored; if `pixelwise` is not None, channels are last. Numba
compiles each case separately by type and leaves out unused branches, which saves half a second.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernelmark.kernels._numba import clear, jit, part
from kernelmark.kernels._packing import SIDE
from kernelmark.kernels._product import multiply
from kernelmark.kernels.conv.columns._copy import by_pixel, by_tap
from kernelmark.kernels.transpose._blocks import square


@part
def _filters(w, g, group, f0, block):
    """Return the filters from f0 on, at a block of channels and taps, as a matrix (filters x block)."""
    depth = g.c * g.r * g.s
    return w, (group * g.k + f0) * depth + block[0] * g.w_c + block[2] * g.w_tap, depth, 1


@part
def _image(x, g, image, group):
    return image * g.x_n + group * g.c * g.x_c


@part
def _pixels(y, g, image, group, f0, first):
    """Return the outputs of the filters from f0 on, at the pixels from `first` on, as a matrix (filters x pixels)."""
    return y, image * g.y_n + (group * g.k + f0) * g.y_k + first * g.y_pixel, g.y_k, g.y_pixel


@part
def _formed(columns, g, block, count):
    """Return the matrix of columns (block x pixels)."""
    depth = (block[1] - block[0]) * (block[3] - block[2])
    return (columns, 0, 1, depth) if g.channels_last else (columns, 0, count, 1)


@part
def _as_stored(x, g, at, block, first):
    """Return the image itself as the matrix of columns (block x pixels), for 1x1 filters, which need no columns."""
    return x, at + block[0] * g.x_c + first * g.x_w, g.x_c, g.x_w


@part
def _share(first, last, share):
    """Return part number share[0] of the range first:last, which is cut into share[1] parts."""
    length = last - first
    return first + length * share[0] // share[1], first + length * (share[0] + 1) // share[1]


@part
def _form(columns, x, pixelwise, g, at, block, p0, p1, share):
    """Copy a share of a block's columns: a share of its channels, or of the pixels if channels are last."""
    if pixelwise is None:
        c0, c1 = _share(block[0], block[1], share)
        row = (c0 - block[0]) * (block[3] - block[2]) * (p1 - p0)
        by_tap(columns[row:], x, g, at, (c0, c1, block[2], block[3]), p0, p1, False)
    else:
        first, last = _share(p0, p1, share)
        row = (first - p0) * (block[1] - block[0]) * (block[3] - block[2])
        by_pixel(columns[row:], x, g, at, block, first, last, False)


@jit
def forward(product, buffer, x, w, y, columns, pixelwise, g, items, blocks, does, share, start, stop):
    """Compute items start:stop of y, summed over blocks. An item: image, group, filters f0:f1, pixels p0:p1.

    does: the blocks e0:e1 (of channels and taps) to sum; whether to create their columns; whether to multiply the
    columns. share: (i, n) to create only part i of n parts of the columns.
    """
    for item in range(start, stop):
        image, group, f0, f1, p0, p1 = items[item]
        at, result = _image(x, g, image, group), _pixels(y, g, image, group, f0, p0)
        for e in range(does[0], does[1]):
            block = blocks[e, 0], blocks[e, 1], blocks[e, 2], blocks[e, 3]
            depth = (block[1] - block[0]) * (block[3] - block[2])
            if columns is None:
                met = _as_stored(x, g, at, block, p0)
            else:
                if does[2]:
                    _form(columns, x, pixelwise, g, at, block, p0, p1, share)
                met = _formed(columns, g, block, p1 - p0)
            if does[3]:
                multiply(product, buffer, f1 - f0, p1 - p0, depth, _filters(w, g, group, f0, block), met, e > 0, result)


@jit
def turned(to, w, g, start, stop):
    """Transpose blocks start:stop of SIDE filters into `to`: a matrix (channels and taps x filters) for each group."""
    depth, blocks = g.c * g.r * g.s, (g.k + SIDE - 1) // SIDE
    for item in range(start, stop):
        group, first = item // blocks, item % blocks * SIDE
        off, at = (group * g.k + first) * depth, group * g.k * depth + first
        whole = depth // SIDE * SIDE if first + SIDE <= g.k else 0
        for t in range(0, whole, SIDE):
            square(to, at + t * g.k, g.k, w, off + t, depth)
        for t in range(whole, depth):
            for i in range(min(SIDE, g.k - first)):
                to[at + t * g.k + i] = w[off + i * depth + t]


@jit
def image_gradient(product, buffer, x, w, y, columns, pixelwise, g, items, blocks, step, lying, start, stop):
    """Compute items start:stop of x's gradient. An item: image, group, blocks e0:e1, pixels p0:p1.

    An item's blocks have the same channels. step: the pixels to multiply at a time. lying: whether w is as stored, not
    transposed by `turned`.
    """
    for item in range(start, stop):
        image, group, e0, e1, p0, p1 = items[item]
        at = _image(x, g, image, group)
        if columns is not None:
            _clear(x, g, at, blocks[e0, 0], blocks[e0, 1])
        for first in range(p0, p1, step):
            last = min(p1, first + step)
            gradient = _pixels(y, g, image, group, 0, first)
            for e in range(e0, e1):
                block = blocks[e, 0], blocks[e, 1], blocks[e, 2], blocks[e, 3]
                depth = (block[1] - block[0]) * (block[3] - block[2])
                every, row = g.c * g.r * g.s, block[0] * g.w_c + block[2] * g.w_tap
                off, strides = group * g.k * every + row * (1 if lying else g.k), (1, every) if lying else (g.k, 1)
                transposed = w, off, strides[0], strides[1]
                if columns is None:
                    result = _as_stored(x, g, at, block, first)
                else:
                    result = _formed(columns, g, block, last - first)
                multiply(product, buffer, depth, last - first, g.k, transposed, gradient, False, result)
                if columns is not None:
                    if pixelwise is None:
                        by_tap(columns, x, g, at, block, first, last, True)
                    else:
                        by_pixel(columns, x, g, at, block, first, last, True)


@part
def _clear(x, g, at, c0, c1):
    if g.channels_last:
        for place in range(g.h * g.w):
            clear(x, at + place * g.x_w + c0, c1 - c0)
    else:
        clear(x, at + c0 * g.x_c, (c1 - c0) * g.x_c)


@jit
def filter_gradient(product, buffer, x, w, y, columns, pixelwise, g, items, blocks, step, start, stop):
    """Compute items start:stop of w's gradient. An item: group, filters f0:f1, blocks e0:e1, pixels p0:p1 per image.

    step: the number of pixels to multiply at a time. With channels last, p0:p1 are pixels of all images together.
    """
    for item in range(start, stop):
        group, f0, f1, e0, e1, p0, p1 = items[item]
        for e in range(e0, e1):
            block = blocks[e, 0], blocks[e, 1], blocks[e, 2], blocks[e, 3]
            depth = (block[1] - block[0]) * (block[3] - block[2])
            result = _filters(w, g, group, f0, block)
            for image in range(1 if g.channels_last else g.n):
                at = _image(x, g, image, group)
                for first in range(p0, p1, step):
                    last = min(p1, first + step)
                    if columns is None:
                        met = _as_stored(x, g, at, block, first)
                    else:
                        _form(columns, x, pixelwise, g, at, block, first, last, (0, 1))
                        met = _formed(columns, g, block, last - first)
                    gradient, across = _pixels(y, g, image, group, f0, first), (met[0], met[1], met[3], met[2])
                    added = image + first > p0
                    multiply(product, buffer, f1 - f0, depth, last - first, gradient, across, added, result)


@jit
def add(w, parts, start, stop):
    """Add the elements start:stop of all parts to the same elements of w."""
    for number in range(len(parts)):
        for i in range(start, stop):
            w[i] += parts[number, i]
