"""Matrix products on one thread, for Numba functions that create an operand and multiply it while it is cached.

Panels of b are a few vectors wide. As many as fit the L2 cache are packed at a time; if rows of b are near each other,
its panels are read in place instead. Tiles of c stay in registers while rows of a, read in place or packed, are
multiplied with one panel after the other.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from kernelmark import Array, Launch
from kernelmark.kernels._ahead import ahead
from kernelmark.kernels._host import ALONE
from kernelmark.kernels._numba import c_function, data, jit, move, part
from kernelmark.kernels._order import DEPTH, PANELS, SHALLOW, order
from kernelmark.kernels._packing import GAP, ROWS, VECTORS, WIDTH, gather, pack, put, widths
from kernelmark.kernels._tile import LANES, LINE, dots, next_lines, products

#: The number of tiles of rows of a that are copied at a time.
TILES = 8

#: Offsets in the scratch, which holds panels of b (at 0), columns of b, rows of a, and a tile of c.
_COLUMNS = (PANELS + 1) * WIDTH * DEPTH
_A = _COLUMNS + ALONE * DEPTH
_TILE = _A + TILES * (ROWS * DEPTH + GAP)
#: Elements of scratch that `multiply` needs.
SCRATCH = _TILE + ROWS * WIDTH

_tile = products((ROWS, ROWS - 1), VECTORS)
_row_dots = dots(ROWS)


def _multiply(buffer, m, n, k, keep, a, a_size, a_row, a_step, b, b_size, b_step, b_column, c, c_size, c_row, c_column):
    """Compiled by `_address`; see `multiply`."""
    buffer = carray(buffer, (SCRATCH,))
    a, b, c = carray(a, (a_size,)), carray(b, (b_size,)), carray(c, (c_size,))
    first, second, result = (a, 0, a_row, a_step), (b, 0, b_step, b_column), (c, 0, c_row, c_column)
    turned, (rows, tail, lying, near) = order(m, n, k, (a_row, a_step), (b_step, b_column), (c_row, c_column))
    if turned:
        m, n, result = n, m, (c, 0, c_column, c_row)
        first, second = (b, 0, b_column, b_step), (a, 0, a_step, a_row)
    most = SHALLOW if lying else DEPTH
    stop = 0
    while stop < n - tail:
        start, stop = stop, stop + PANELS * WIDTH
        if lying or stop + WIDTH > n - tail:  # a remainder of less than a panel would read all of a again
            stop = n - tail
        for begin in range(0, k, most):
            deep = min(k - begin, most)
            at, copied = begin * second[2], _first_copied(near, start, stop)
            if copied < stop:
                pack(buffer, second, at, deep, copied, stop)
            factors, how = (second, at, copied), (lying, lying and begin + deep < k, keep or begin > 0)
            _tiles(buffer, rows, m, begin, deep, first, factors, start, stop, how, result)
    for begin in range(0, k if tail else 0, DEPTH):
        _dots(buffer, m, begin, min(k - begin, DEPTH), first, second, n - tail, n, keep or begin > 0, result)


@lru_cache
def _address() -> int:
    """Return the address of the compiled product, which would otherwise be compiled again into each caller."""
    floats, matrix = types.CPointer(types.float32), (types.int64,) * 3
    signature = types.void(
        floats, *(types.int64,) * 3, types.boolean, floats, *matrix, floats, *matrix, floats, *matrix
    )
    return int(c_function(signature)(_multiply).address)


def multiplying(setup: Callable[[Array], Launch]) -> Launch:
    """Return the launch `setup(product)`. `product` will hold the address of compiled code, which `multiply` calls.

    While `setup` runs, a child process compiles the matrix product.
    """
    product = np.zeros(1, np.int64)
    with ahead((_multiply, _address)):
        launch = setup(product)
    product[0] = _address()
    return launch


def _call(_context: Any, product: Any, buffer: Any, sizes: Any, keep: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = [data(context, builder, signature.args[1], args[1]), *cgutils.unpack_tuple(builder, args[2], 3)]
        values.append(builder.zext(args[3], ir.IntType(8)))
        for kind, matrix in zip(signature.args[4:], args[4:], strict=True):
            array, at, row, column = cgutils.unpack_tuple(builder, matrix, 4)
            made = context.make_array(kind[0])(context, builder, array)
            values += [builder.gep(made.data, [at]), builder.sub(made.nitems, at), row, column]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(product, buffer, sizes, keep, a, b, c), generate


_called = cast(Any, intrinsic(_call))


@jit
def multiply(product, buffer, m, n, k, a, b, keep, c):
    """Compute C = A B, or with `keep` C += A B, for A (m x k), B (k x n) and C.

    Each matrix is given as (flat array, offset, row stride, column stride); one of the strides is 1. product: the
    argument that `multiplying` passes. buffer: SCRATCH elements.
    """
    _called(product[0], buffer, (m, n, k), keep, a, b, c)


@part
def _first_copied(in_place, first, last):
    """Return the first column that is copied: whole panels before it are read in place, a partial panel never is."""
    while in_place and first < last:
        real, lanes = widths(first, last)
        if real < lanes:
            break
        first += lanes
    return first


@part
def _tiles(buffer, rows, m, begin, deep, a, b, first, last, how, c):
    """Multiply all rows of a with the panels. The last tile begins earlier if it would reach beyond c.

    b: the matrix as stored, the offset of the panels' first row, and the first column that is in `buffer`. how: whether
    a and b are read in place, whether lines of the next steps are prefetched, and whether sums are added to c.
    """
    lying, more, keep = how
    of_a = more * -(-m // LINE), a[1] + (begin + deep) * a[3], LINE, a[3]
    of_b = more * -(-(last - first) // LINE), b[1] + deep * b[0][2] + first, LINE, b[0][2]
    panels, line = -(-(last - first) // WIDTH), 0
    share = -(-rows // panels)
    for i in range(0, m, rows):
        r = max(0, min(i, m - rows))
        count, source, place = min(rows, m - r), a[0], (a[1] + r * a[2] + begin * a[3], a[2], a[3])
        if (a[3] != 1 and not lying) or m < rows:
            tile = i // rows % TILES
            if tile == 0:
                some = i, min(m, i + TILES * rows), rows, m
                gather(buffer[_A:_TILE], source, (a[1] + begin * a[3], a[2], a[3]), some, deep)
            source, place = buffer, (_A + tile * (ROWS * deep + GAP), 1, ROWS)
        to = c[0], c[1] + r * c[2], c[2], c[3]
        if a[3] == 1 and a[2] == deep:  # rows have no gaps, and each panel's tile prefetches a part of the next rows
            of_a, line = (panels, a[1] + (r + rows) * deep + begin, share * deep, share), 0
        later = a[0], of_b, of_a
        line = _across(buffer, rows, i - r, count, source, place, b, deep, first, last, keep, to, later, line)


@part
def _across(buffer, rows, skipped, count, a, a_place, b, deep, first, last, keep, c, later, line):
    """Compute a row of tiles of c, and store only its rows skipped:count.

    later, line: arguments of `next_lines`. Returns `line` for the next tile.
    """
    panel, j = 0, first
    while j < last:
        real, lanes = widths(j, last)
        whole = c[3] == 1 and not skipped and count == rows and real == lanes
        to, place = (c[0], (c[1] + j, c[2])) if whole else (buffer, (_TILE, lanes))
        in_buffer = j >= b[2]
        factors, row = (buffer, (panel, lanes)) if in_buffer else (b[0][0], (b[1] + j, b[0][2]))
        ahead = next_lines(later[0], b[0][0], line, later[1], later[2])
        _tile((rows, lanes), to, place, keep and whole, a, a_place, factors, row, deep, ahead)
        if not whole:
            put(buffer[_TILE:], lanes, real, skipped, count, c[0], c[1] + j * c[3], c[2], c[3], keep)
        panel, j, line = panel + deep * lanes if in_buffer else 0, j + lanes, line + 1
    return line


@part
def _dots(buffer, m, begin, deep, a, b, first, last, keep, c):
    """Compute columns first:last of c one by one; products that do not fill a vector are added one by one."""
    whole = deep // LANES * LANES
    for j in range(first, last):
        to, at = _COLUMNS + (j - first) * DEPTH, b[1] + begin * b[2] + j * b[3]
        if b[2] == 1:
            move(buffer, to, b[0], at, deep)
        else:
            for t in range(deep):
                buffer[to + t] = b[0][at + t * b[2]]
    for i in range(0, m, ROWS):
        r = min(i, m - ROWS)
        at = a[1] + r * a[2] + begin
        for j in range(first, last):
            column = _COLUMNS + (j - first) * DEPTH
            sums = buffer[_TILE : _TILE + ROWS]
            _row_dots(sums, a[0], at, a[2], buffer, column, whole)
            for q in range(i - r, ROWS):
                total = sums[q]
                for t in range(whole, deep):
                    total += a[0][at + q * a[2] + t] * buffer[column + t]
                place = c[1] + (r + q) * c[2] + j * c[3]
                c[0][place] = c[0][place] + total if keep else total
