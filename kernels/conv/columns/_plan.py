"""Cut convolution by columns into items for threads and blocks for caches; pure arithmetic on shapes."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernelmark import Array, Tile
from kernelmark.kernels._host import LINE_BYTES, NARROW, is_read_in_place, split
from kernelmark.kernels.conv._shape import Shape

LINE = LINE_BYTES // 4  # elements
FEW = 8  # channels per thread below which an uneven division costs time
MANY = 256  # the fewest pixels that threads share, if there are enough rows to share instead
TALL = 128  # rows per thread from which on packing is a small part of the time
CACHED = 1024  # pixels, with contiguous channels, that a second-level cache holds while they are multiplied
LONG, SMALL = 512, 2**17  # threads sum parts of the pixels if each has LONG and the gradient has at most SMALL elements


class Plan(NamedTuple):
    """A convolution by im2col, divided into `items` for threads (see `_loops.py`) and `blocks` that fit in caches.

    blocks: channels c0:c1 and taps t0:t1 of each. step: the pixels to multiply at a time. sharers: how many consecutive
    items need the same columns (the number of threads, or 1). parts: how many partial results are to be added (the
    number of threads, or 1 if the items are final results).
    """

    items: Array
    blocks: Array
    step: int
    sharers: int = 1
    parts: int = 1

    @property
    def columns(self) -> int:
        """Return the number of elements in the largest block of columns."""
        return depth(self.blocks) * self.step


def depth(blocks: Array) -> int:
    """Return the number of channels times taps in the largest block."""
    return int(((blocks[:, 1] - blocks[:, 0]) * (blocks[:, 3] - blocks[:, 2])).max())


def _flat(g: Shape) -> Shape:
    """Return the shape with all images as a single image if channels are last, since pixels are contiguous then."""
    return g._replace(n=1, p=g.n * g.p) if g.channels_last else g


def forward(g: Shape, plain: bool, threads: int, t: Tile) -> Plan:
    """Return the plan of fprop. An item has filters and pixels of one group and one image (nhwc: of all images)."""
    g = _flat(g)
    blocks = _blocks(g, plain, g.n * g.groups, 1, t.DEPTH)
    most = _step(g, blocks, plain, t.AREA)
    filters, columns = _products(g, g.k, most, _enough(g, plain, g.k, NARROW * threads, threads), threads)
    items = [(n, group, *f, *p) for n in range(g.n) for group in range(g.groups) for p in columns for f in filters]
    sharers = threads if len(filters) == threads and not plain else 1
    return Plan(np.array(items), blocks, max(p1 - p0 for p0, p1 in columns), sharers)


def image_gradient(g: Shape, plain: bool, threads: int, t: Tile) -> Plan:
    """Return the plan of dgrad. An item has an image, a group, blocks e0:e1 of the same channels, and pixels.

    Pointwise convolution with channels last treats all images as one image.
    """
    g = _flat(g) if plain else g
    images, whole = g.n * g.groups, [(0, g.p * g.q)]
    if plain:
        enough = _enough(g, plain, g.c, g.c, threads)  # `least` is the number of rows, since each row is copied, too
        parts, whole = _products(g, g.c, g.p * g.q, enough, threads)
        rows, each = [(*c, 0, 1) for c in parts], 1
    elif g.channels_last:
        parts = split(g.c, g.c, images, threads if g.c >= NARROW * threads else 1)
        most = max(1, t.DEPTH // g.c) if len(parts) == 1 else 1
        taps = split(g.r * g.s, most, 4, 1)
        rows, each = [(*c, *tap) for c in parts for tap in taps], len(taps)
    else:
        rows, each = _blocks(g, plain, images, threads, t.DEPTH).tolist(), 1
    blocks = np.array(rows)
    starts = range(0, len(rows), each)
    items = [
        (n, group, e, e + each, *p) for n in range(g.n) for group in range(g.groups) for e in starts for p in whole
    ]
    return Plan(np.array(items), blocks, _step(g, blocks, plain, t.AREA))


def filter_gradient(g: Shape, plain: bool, threads: int, t: Tile) -> Plan:
    """Return the plan of wgrad. An item has a group, filters, blocks e0:e1, and pixels.

    Threads divide the longer axis of the product, and each thread reads the whole other operand. If there are many
    pixels, threads divide the pixels instead. With channels last, the pixels of all images form one sequence.
    """
    g = _flat(g)
    pixels = g.p * g.q
    if plain and g.channels_last and g.groups == 1 and g.c * g.k <= SMALL and pixels >= LONG * threads > LONG:
        blocks, parts = np.array([(0, g.c, 0, 1)]), split(pixels, pixels, 1, threads)
        table = np.array([(0, 0, g.k, 0, 1, *part) for part in parts])
        return Plan(table, blocks, _step(g, blocks, plain, t.AREA), parts=len(parts))
    uneven = g.groups == 1 and not g.channels_last and g.c % threads != 0 and g.c < FEW * threads
    if uneven and g.r * g.s >= LINE:  # with fewer taps, parts would be smaller than a vector
        return _even_filter_gradient(g, threads, t)
    blocks = _blocks(g, plain, g.groups, 1 if plain and g.c < g.k else threads, t.DEPTH)
    filters = split(g.k, g.k, g.groups * len(blocks), threads)
    each = range(len(blocks))
    items = [(group, *f, e, e + 1, 0, pixels) for group in range(g.groups) for f in filters for e in each]
    return Plan(np.array(items), blocks, _step(g, blocks, plain, t.AREA))


def _even_filter_gradient(g: Shape, threads: int, t: Tile) -> Plan:
    """Return the plan that divides the taps of a few channels evenly among threads, which may share a channel."""
    taps, blocks, items = g.r * g.s, list[tuple[int, int, int, int]](), []
    edges = [g.c * taps * i // threads for i in range(threads + 1)]
    for start, stop in pairwise(edges):
        before = len(blocks)
        for c in range(start // taps, -(-stop // taps)):
            blocks.append((c, c + 1, max(0, start - c * taps), min(taps, stop - c * taps)))
        items.append((0, 0, g.k, before, len(blocks), 0, g.p * g.q))
    table = np.array(blocks)
    return Plan(np.array(items), table, _step(g, table, False, t.AREA))


def _enough(g: Shape, plain: bool, high: int, least: int, threads: int) -> int:
    """Return the number of pixels (`least` or more) from which on threads divide the pixels, not the `high` rows.

    If threads divide pixels, they write parts of the same rows of an image, and fetch lines that another thread has
    written. If they divide rows, each packs all pixels that are not read in place, and fetches columns that others have
    created.
    """
    if g.channels_last or high < NARROW * threads:
        return least
    in_place = is_read_in_place(g.c + g.k - high, g.p * g.q)
    return g.p * g.q + 1 if plain and (in_place or high >= TALL * threads) else max(least, MANY)


def _products(
    g: Shape, high: int, most: int, enough: int, threads: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the ranges of rows and of pixels of the products: threads divide pixels if there are `enough`, else rows.

    Threads that divide the rows each pack all pixels. Threads that divide the pixels each pack all rows, and write to
    separate cache lines if the rows of an image are whole lines.
    """
    pixels, images, unit = g.p * g.q, g.n * g.groups, 1 if g.channels_last else LINE
    count, longest = -(-pixels // unit), max(1, (most if most < pixels else pixels + unit - 1) // unit)
    lines = split(count, longest, images if pixels >= enough else 4 * threads, threads)
    columns = [(unit * first, min(unit * last, pixels)) for first, last in lines]
    return split(high, high, images * len(columns), threads), columns


def _blocks(g: Shape, plain: bool, others: int, threads: int, deep: int) -> Array:
    """Return the blocks of channels and taps: whole channels, or with channels last whole taps."""
    taps = g.r * g.s
    if g.channels_last and not plain:
        return np.array([(0, g.c, *t) for t in split(taps, max(1, deep // g.c), others, threads)])
    most = g.c if plain else max(1, deep // taps)
    return np.array([(*c, 0, taps) for c in split(g.c, most, others, threads)])


def _step(g: Shape, blocks: Array, plain: bool, area: int) -> int:
    """Return the number of pixels to process at a time, which cuts the pixels into about equal parts."""
    pixels = g.p * g.q
    if plain:
        most = min(pixels, CACHED) if g.channels_last else pixels
    else:
        most = min(pixels, max(16, area // depth(blocks)))
    return -(-pixels // -(-pixels // most))
