"""The inner loop of direct convolution: a tile of sums in vector registers.

A tile has rows x WIDTH sums: each step multiplies an element of each row, located by tables of offsets, with WIDTH
contiguous elements. If a panel has no more lanes than a vector, a tile is half as wide and twice as high, with separate
code for evenly spaced rows, such as rows of neighbouring pixels.
"""

# mypy: allow-untyped-calls

from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any, cast

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._host import registers
from kernelmark.kernels._numba import data
from kernelmark.kernels._tile import INTEGER, LANES, Sums, after, loaded, number, stored, vectors_at

VECTORS = 2
WIDTH = LANES * VECTORS
ROWS = 6 if registers().nbytes == 32 else 8  # with AVX2 there are 16 registers, otherwise 32


def _products(count: int, wide: int) -> Any:
    def typed(_context: Any, sums: Any, b: Any, rows: Any, steps: Any, v: Any, place: Any) -> Any:
        return types.void(sums, b, rows, steps, v, place), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = zip(signature.args[:5], args[:5], strict=True)
        to, elements, row_at, step_at, vectors = (data(context, builder, *array) for array in arrays)
        at, base, row, panel, first, last = cgutils.unpack_tuple(builder, args[5], 6)
        offsets = [builder.load(after(builder, row_at, row, number(r))) for r in range(count)]
        begins = [after(builder, elements, base, offset) for offset in offsets]
        lines = (after(builder, to, at, number(r * WIDTH)) for r in range(count))
        places = [place for line in lines for place in vectors_at(builder, line, wide)]
        sums = Sums(builder, count, wide)
        sums.begin(loaded(builder, places))

        def add(elements_at: Callable[[Any], list[Any]]) -> None:
            with cgutils.for_range_slice(builder, first, last, number(1), INTEGER) as (t, _):
                addresses = elements_at(builder.load(after(builder, step_at, t)))
                line = after(builder, vectors, panel, builder.mul(t, number(WIDTH)))
                sums.add(lambda r: builder.load(addresses[r]), loaded(builder, vectors_at(builder, line, wide)))

        def anywhere(step: Any) -> list[Any]:
            return [after(builder, begin, step) for begin in begins]

        if wide > 1:
            add(anywhere)
        else:
            with builder.if_else(_is_even(builder, offsets)) as (even, uneven):
                with even:
                    add(_evenly(builder, begins[0], builder.sub(offsets[1], offsets[0]), count))
                with uneven:
                    add(anywhere)
        stored(builder, sums.values(), places)
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


def _evenly(builder: Any, begin: Any, apart: Any, count: int) -> Callable[[Any], list[Any]]:
    """Return a function that derives the addresses of a step's elements, in evenly spaced rows, from two addresses.

    A CPU has too few registers for the addresses of all rows of a high tile.
    """
    half = -(-count // 2)
    distances = [builder.mul(apart, number(r)) for r in range(half)]

    def elements_at(step: Any) -> list[Any]:
        low = after(builder, begin, step)
        high = after(builder, low, builder.mul(apart, number(half)))
        return [after(builder, low if r < half else high, distances[r % half]) for r in range(count)]

    return elements_at


def _is_even(builder: Any, offsets: list[Any]) -> Any:
    apart, *others = (builder.sub(second, first) for first, second in pairwise(offsets))
    return reduce(builder.and_, (builder.icmp_signed("==", other, apart) for other in others))


#: `add_products(sums, b, rows, steps, v, (at, base, row, panel, first, last))`: for r in ROWS and i in WIDTH,
#: sums[at + r WIDTH + i] += sum over t in first:last of b[base + rows[row + r] + steps[t]] v[panel + t WIDTH + i].
add_products = _products(ROWS, VECTORS)
#: The same with one row fewer, which suits images of 7 x 7 and 14 x 14.
add_fewer_products = _products(ROWS - 1, VECTORS)
#: The same with twice as many rows, for i in LANES.
add_narrow_products, add_fewer_narrow_products = (_products(2 * rows, 1) for rows in (ROWS, ROWS - 1))


def tile_rows(length: int, even: int | None) -> int:
    """Return ROWS or ROWS - 1: whichever leaves fewer rows of tiles empty or, in a tie, cuts a run into whole tiles.

    even: for tiles of twice as many rows, the number of evenly spaced rows in a run; None if runs do not matter.
    """
    return min((ROWS, ROWS - 1), key=lambda rows: (-(-length // rows) * rows, bool(even and even % (2 * rows))))
