"""How convolution by columns is cut into items for threads and blocks for caches; pure arithmetic on shapes."""

from typing import NamedTuple

import numpy as np

from kernelmark import Array, Tile
from kernels._host import NARROW, split
from kernels.conv._shape import Shape


class Plan(NamedTuple):
    """`blocks`: rows of channels c0:c1 and taps t0:t1. `step`: pixels at a time. `items`: what the loops take."""

    items: Array
    blocks: Array
    step: int

    @property
    def columns(self) -> int:
        """Elements of the largest block of columns."""
        return depth(self.blocks) * self.step


def depth(blocks: Array) -> int:
    """Rows of the deepest block."""
    return int(((blocks[:, 1] - blocks[:, 0]) * (blocks[:, 3] - blocks[:, 2])).max())


def forward(g: Shape, plain: bool, threads: int, t: Tile) -> Plan:
    """Items: image, group, filters, pixels."""
    blocks = _blocks(g, plain, g.n * g.groups, 1, t.DEPTH)
    filters, columns = _products(g, g.k, _step(blocks, plain, g.p * g.q, t.AREA), NARROW * threads, threads)
    items = [(n, group, *f, *p) for n in range(g.n) for group in range(g.groups) for f in filters for p in columns]
    return Plan(np.array(items), blocks, max(p1 - p0 for p0, p1 in columns))


def image_gradient(g: Shape, plain: bool, threads: int, t: Tile) -> Plan:
    """Items: image, group, blocks e0:e1, which add to the same channels, pixels."""
    images, whole = g.n * g.groups, [(0, g.p * g.q)]
    if plain:
        parts, whole = _products(g, g.c, g.p * g.q, g.c, threads)  # each of whose rows is copied, too
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
    return Plan(np.array(items), blocks, _step(blocks, plain, g.p * g.q, t.AREA))


def filter_gradient(g: Shape, plain: bool, threads: int, t: Tile) -> Plan:
    """Items: group, filters, one block. Of a product's sides, threads share the longer one, and all read the other."""
    blocks = _blocks(g, plain, g.groups, 1 if plain and g.c < g.k else threads, t.DEPTH)
    filters = split(g.k, g.k, g.groups * len(blocks), threads)
    items = [(group, *f, e) for group in range(g.groups) for f in filters for e in range(len(blocks))]
    return Plan(np.array(items), blocks, _step(blocks, plain, g.p * g.q, t.AREA))


def _products(
    g: Shape, high: int, most: int, enough: int, threads: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Rows and pixels of the products of `high` rows: threads share the pixels if there are `enough`, else the rows.

    Threads that share the rows each pack all of the pixels, and the reverse.
    """
    pixels, images = g.p * g.q, g.n * g.groups
    columns = split(pixels, most, images if pixels >= enough else 4 * threads, threads)
    return split(high, high, images * len(columns), threads), columns


def _blocks(g: Shape, plain: bool, others: int, threads: int, deep: int) -> Array:
    """All channels and taps in ranges of the filter: whole channels, or with channels last whole taps."""
    taps = g.r * g.s
    if g.channels_last and not plain:
        return np.array([(0, g.c, *t) for t in split(taps, max(1, deep // g.c), others, threads)])
    most = g.c if plain else max(1, deep // taps)
    return np.array([(*c, 0, taps) for c in split(g.c, most, others, threads)])


def _step(blocks: Array, plain: bool, pixels: int, area: int) -> int:
    """Pixels at a time, in equal parts."""
    most = pixels if plain else min(pixels, max(16, area // depth(blocks)))
    return -(-pixels // -(-pixels // most))
