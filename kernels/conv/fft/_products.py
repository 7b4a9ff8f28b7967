"""Products of complex matrices, one per frequency, with separate real and imaginary parts, on one thread.

Tiles of sums stay in vector registers. B's rows are contiguous, and a panel of B is copied, so that it is read from the
L1 cache; A is read in place, with each element broadcast to all lanes.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._host import registers
from kernelmark.kernels._numba import data, everywhere, jit, part
from kernelmark.kernels._tile import INTEGER, LANES, VECTOR, Sums, after, loaded, number, stored, vectors_at

#: Steps of a sum at a time: a panel takes 32 KiB with 512-bit registers, and less with narrower registers.
DEPTH = 128
WIDTH = 2 * LANES
#: Rows of a tile that is two vectors wide (ROWS) or one (TALL): with AVX2 there are 16 registers, otherwise 32.
ROWS = 2 if registers().nbytes == 32 else registers().accumulators // 4
TALL = registers().accumulators // 2
#: Elements of scratch that `products` needs: a panel of B, and a partial tile of C.
SCRATCH = 2 * DEPTH * WIDTH + 2 * TALL * LANES


def _complex_products(rows: int, vectors: int) -> Any:
    """Return a function that multiplies `rows` rows of A with a panel of B.

    f(c, (c_at, c_row, c_part), keep, a, (a_at, a_row, a_step, a_part), b, count): the tuples are an offset and strides.
    """

    def typed(_context: Any, c: Any, to: Any, keep: Any, a: Any, off: Any, b: Any, count: Any) -> Any:
        return types.void(c, to, keep, a, off, b, count), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, a, b = (data(context, builder, signature.args[i], args[i]) for i in (0, 3, 5))
        c_at, c_row, c_part = cgutils.unpack_tuple(builder, args[1], 3)
        a_at, a_row, a_step, a_part = cgutils.unpack_tuple(builder, args[4], 4)
        along = [builder.mul(c_row, number(row)) for row in range(rows)]
        real = [place for row in along for place in vectors_at(builder, after(builder, c, c_at, row), vectors)]
        second = after(builder, c, c_at, c_part)
        imaginary = [place for row in along for place in vectors_at(builder, after(builder, second, row), vectors)]
        begins = [after(builder, a, a_at, builder.mul(a_row, number(row))) for row in range(rows)]
        parts = [(Sums(builder, rows, vectors), real), (Sums(builder, rows, vectors), imaginary)]
        with builder.if_else(args[2]) as (old, fresh):
            with old:
                for sums, places in parts:
                    sums.begin(loaded(builder, places))
            with fresh:
                for sums, places in parts:
                    sums.begin([ir.Constant(VECTOR, None)] * len(places))
        with cgutils.for_range_slice(builder, number(0), args[6], number(1), INTEGER) as (t, _):
            line = after(builder, b, builder.mul(t, number(2 * vectors * LANES)))
            factors = loaded(builder, vectors_at(builder, line, 2 * vectors))
            re, im = factors[:vectors], factors[vectors:]
            minus = [builder.fneg(value) for value in im]
            step = builder.mul(t, a_step)
            for row, begin in enumerate(begins):
                for at, pairs in ((step, (re, im)), (builder.add(step, a_part), (minus, re))):
                    element = everywhere(builder, builder.load(after(builder, begin, at)), VECTOR)
                    for (sums, _), pair in zip(parts, pairs, strict=True):
                        sums.add_to(row, element, pair)
        for sums, places in parts:
            stored(builder, sums.values(), places)
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


def _packed(vectors: int) -> Any:
    """Return f(to, b, (b_at, b_step, b_part), count), which copies rows of a panel: real, then imaginary vectors."""

    def typed(_context: Any, to: Any, b: Any, off: Any, count: Any) -> Any:
        return types.void(to, b, off, count), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, b = (data(context, builder, signature.args[i], args[i]) for i in (0, 1))
        b_at, b_step, b_part = cgutils.unpack_tuple(builder, args[2], 3)
        with cgutils.for_range_slice(builder, number(0), args[3], number(1), INTEGER) as (t, _):
            line = after(builder, b, b_at, builder.mul(t, b_step))
            places = vectors_at(builder, line, vectors) + vectors_at(builder, after(builder, line, b_part), vectors)
            target = after(builder, to, builder.mul(t, number(2 * vectors * LANES)))
            stored(builder, loaded(builder, places), vectors_at(builder, target, 2 * vectors))
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


_pack1, _pack2 = _packed(1), _packed(2)
_wide, _wide_half, _wide_one = (_complex_products(rows, 2) for rows in (ROWS, ROWS // 2, 1))
_tall, _tall_half, _tall_one = (_complex_products(rows, 1) for rows in (TALL, TALL // 4, 1))


@jit
def products(buffer, sizes, a, a_place, b, b_place, keep, c, c_place, start, stop):
    """Compute C = A B (C += A B if `keep`) for frequencies start:stop and all groups.

    sizes: the numbers of groups, rows, lanes (columns), and steps of the sum. a_place: the strides of frequency, group,
    row, step and part; b_place has no stride of rows, c_place none of steps. Lanes are contiguous. B's vectors may
    extend beyond its lanes.
    """
    groups, rows, lanes, steps = sizes
    for item in range(start * groups, stop * groups):
        frequency, group = divmod(item, groups)
        a_at, b_at = frequency * a_place[0] + group * a_place[1], frequency * b_place[0] + group * b_place[1]
        c_at = frequency * c_place[0] + group * c_place[1]
        for j in range(0, lanes, WIDTH):
            wide = min(WIDTH, lanes - j)
            for begin in range(0, steps, DEPTH):
                deep = min(DEPTH, steps - begin)
                source = b_at + begin * b_place[2] + j, b_place[2], b_place[3]
                if wide > LANES:
                    _pack2(buffer, b, source, deep)
                else:
                    _pack1(buffer, b, source, deep)
                off = a_at + begin * a_place[3], a_place[2], a_place[3], a_place[4]
                _panel(buffer, rows, wide, deep, keep or begin > 0, a, off, c, (c_at + j, c_place[2], c_place[3]))


@part
def _panel(buffer, rows, wide, deep, keep, a, a_place, c, c_place):
    """Multiply all rows of A with a panel of B that is `wide` lanes wide."""
    two = wide > LANES
    whole = wide == (WIDTH if two else LANES)
    r = 0
    while r < rows:
        most, fewer = (ROWS, ROWS // 2) if two else (TALL, TALL // 4)
        count = most if rows - r >= most else fewer if rows - r >= fewer else 1
        off = a_place[0] + r * a_place[1], a_place[1], a_place[2], a_place[3]
        at = c_place[0] + r * c_place[1]
        if whole:
            _tile(count, two, c, (at, c_place[1], c_place[2]), keep, a, off, buffer, deep)
        else:
            lanes = WIDTH if two else LANES
            to = buffer[2 * DEPTH * WIDTH :]
            _tile(count, two, to, (0, lanes, count * lanes), False, a, off, buffer, deep)
            for i in range(2 * count):
                row, off_row = at + i % count * c_place[1] + i // count * c_place[2], i * lanes
                for lane in range(wide):
                    c[row + lane] = c[row + lane] + to[off_row + lane] if keep else to[off_row + lane]
        r += count


@part
def _tile(count, two, c, c_place, keep, a, a_place, b, deep):
    """Compute a tile by the function for its size."""
    if two:
        if count == ROWS:
            _wide(c, c_place, keep, a, a_place, b, deep)
        elif count == ROWS // 2:
            _wide_half(c, c_place, keep, a, a_place, b, deep)
        else:
            _wide_one(c, c_place, keep, a, a_place, b, deep)
    elif count == TALL:
        _tall(c, c_place, keep, a, a_place, b, deep)
    elif count == TALL // 4:
        _tall_half(c, c_place, keep, a, a_place, b, deep)
    else:
        _tall_one(c, c_place, keep, a, a_place, b, deep)
