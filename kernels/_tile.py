"""Tiles of sums that stay in vector registers while products are added, for Numba functions.

LLVM would not keep the sums in registers by itself, so the IR is written by hand.
"""

# mypy: allow-untyped-calls

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._host import LINE_BYTES, registers
from kernelmark.kernels._numba import data, everywhere, llvm, prefetch

LANES, LINE = registers().nbytes // 4, LINE_BYTES // 4

_alloca = cast(Any, cgutils).alloca_once
_REAL, INTEGER = ir.FloatType(), ir.IntType(64)
VECTOR = ir.VectorType(_REAL, LANES)
AHEAD = 8  # prefetch distance in rows, into the nearest cache


def number(value: int) -> Any:
    """Return an integer constant for LLVM."""
    return ir.Constant(INTEGER, value)


def after(builder: Any, pointer: Any, *offsets: Any) -> Any:
    """Return an address plus a number of elements."""
    for offset in offsets:
        pointer = builder.gep(pointer, [offset])
    return pointer


def vectors_at(builder: Any, pointer: Any, count: int) -> list[Any]:
    """Return the addresses of `count` contiguous vectors."""
    places = (after(builder, pointer, number(i * LANES)) for i in range(count))
    return [builder.bitcast(place, VECTOR.as_pointer()) for place in places]


def loaded(builder: Any, places: list[Any]) -> list[Any]:
    """Load the vectors at these addresses, which need only be aligned to an element."""
    return [builder.load(place, align=4) for place in places]


def stored(builder: Any, values: list[Any], places: list[Any]) -> None:
    """Store vectors at these addresses."""
    for value, place in zip(values, places, strict=True):
        builder.store(value, place, align=4)


class Sums:
    """A tile of sums in registers: `rows` rows of `vectors` vectors each."""

    def __init__(self, builder: Any, rows: int, vectors: int) -> None:
        self._builder, self._rows, self._vectors = builder, rows, vectors
        self._registers = [_alloca(builder, VECTOR) for _ in range(rows * vectors)]  # LLVM keeps these in registers

    def begin(self, values: list[Any]) -> None:
        for register, value in zip(self._registers, values, strict=True):
            self._builder.store(value, register)

    def add(self, elements: Callable[[int], Any], factors: list[Any]) -> None:
        """Add to each row r the products of the scalar `elements(r)` and the vectors `factors`, shared by all rows."""
        for row in range(self._rows):
            self.add_to(row, everywhere(self._builder, elements(row), VECTOR), factors)

    def add_to(self, row: int, element: Any, factors: list[Any]) -> None:
        """Add to a row the products of the vector `element`, whose lanes are equal, and the vectors `factors`."""
        for i, factor in enumerate(factors):
            register = self._registers[row * self._vectors + i]
            total = llvm(self._builder, "fma", element, factor, self._builder.load(register))
            self._builder.store(total, register)

    def values(self) -> list[Any]:
        return [self._builder.load(register) for register in self._registers]


def products(heights: Sequence[int], widest: int) -> Any:
    """Return a function f that multiplies rows of a with up to `widest` vectors of b per step.

    f((rows, lanes), c, (c_at, c_row), keep, a, (a_at, a_row, a_step), b, (b_at, b_step), count, later), with rows one
    of `heights`: for each row r and lane i, c[c_at + r c_row + i] is the sum over t < count of a[a_at + r a_row + t
    a_step] b[b_at + t b_step + i], plus the old value if `keep` is set. Each step t also prefetches a row of b and a
    line of `later` (a result of `next_lines`) into the nearest cache. f contains code for each size. The branch
    between sizes is LLVM code, because Numba would take long to compile a branch and a call for each size.
    """

    def typed(
        _: Any, tile: Any, c: Any, to: Any, keep: Any, a: Any, of_a: Any, b: Any, of_b: Any, n: Any, later: Any
    ) -> Any:
        return types.void(tile, c, to, keep, a, of_a, b, of_b, n, later), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, a, b = (data(context, builder, signature.args[i], args[i]) for i in (1, 4, 6))
        tile, (c_at, c_row) = (cgutils.unpack_tuple(builder, args[i], 2) for i in (0, 2))
        a_at, a_row, a_step = cgutils.unpack_tuple(builder, args[5], 3)
        (b_at, b_step), (line, line_step) = (cgutils.unpack_tuple(builder, args[i], 2) for i in (7, 9))
        fetched = builder.inttoptr(line, a.type)
        starts = after(builder, c, c_at), after(builder, a, a_at), after(builder, b, b_at), fetched
        for rows, vectors in product(heights, range(1, widest + 1)):
            sizes = zip(tile, (rows, vectors * LANES), strict=True)
            alike = (builder.icmp_signed("==", value, number(size)) for value, size in sizes)
            with builder.if_then(builder.and_(*alike)):
                _multiply(builder, (rows, vectors), starts, (c_row, a_row, a_step, b_step, line_step), args[3], args[8])
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


def _multiply(builder: Any, tile: tuple[int, int], starts: Any, strides: Any, keep: Any, count: Any) -> None:
    """Generate the code of `products` for one tile of rows and vectors."""
    (rows, vectors), (c, a, b, fetched), (c_row, a_row, a_step, b_step, line_step) = tile, starts, strides
    lines = (after(builder, c, builder.mul(c_row, number(row))) for row in range(rows))
    places = [place for line in lines for place in vectors_at(builder, line, vectors)]
    begins = [after(builder, a, builder.mul(a_row, number(row))) for row in range(rows)]
    sums = Sums(builder, rows, vectors)
    with builder.if_else(keep) as (old, fresh):
        with old:
            sums.begin(loaded(builder, places))
        with fresh:
            sums.begin([ir.Constant(VECTOR, None)] * len(places))
    with cgutils.for_range_slice(builder, number(0), count, number(1), INTEGER) as (t, _):
        step, line = builder.mul(t, a_step), after(builder, b, builder.mul(t, b_step))
        factors = loaded(builder, vectors_at(builder, line, vectors))
        sums.add(lambda row: builder.load(after(builder, begins[row], step)), factors)
        if vectors > 1:  # a tile one vector wide waits for its loads anyway
            later = after(builder, line, builder.mul(b_step, number(AHEAD)))
            for first in range(0, vectors * LANES, LINE):
                prefetch(builder, after(builder, later, number(first)), write=False)
            prefetch(builder, after(builder, fetched, builder.mul(t, line_step)), write=False)
    stored(builder, sums.values(), places)


def dots(rows: int) -> Any:
    """Return a function f that multiplies `rows` rows of a with one column of b, both contiguous along the sum.

    f(c, a, a_at, a_row, b, b_at, count): c[r] is the sum over t < count of a[a_at + r a_row + t] b[b_at + t]; count is
    a multiple of LANES.
    """

    def typed(_: Any, c: Any, a: Any, a_at: Any, a_row: Any, b: Any, b_at: Any, count: Any) -> Any:
        return types.void(c, a, a_at, a_row, b, b_at, count), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, a, b = (data(context, builder, signature.args[i], args[i]) for i in (0, 1, 4))
        a_at, a_row, (b_at, count) = args[2], args[3], args[5:]
        begins = [after(builder, a, a_at, builder.mul(a_row, number(row))) for row in range(rows)]
        registers = [_alloca(builder, VECTOR) for _ in range(rows)]
        for register in registers:
            builder.store(ir.Constant(VECTOR, None), register)
        with cgutils.for_range_slice(builder, number(0), count, number(LANES), INTEGER) as (t, _):
            (column,) = loaded(builder, vectors_at(builder, after(builder, b, b_at, t), 1))
            for begin, register in zip(begins, registers, strict=True):
                (line,) = loaded(builder, vectors_at(builder, after(builder, begin, t), 1))
                builder.store(llvm(builder, "fma", line, column, builder.load(register)), register)
        for row, register in enumerate(registers):
            builder.store(total(builder, builder.load(register)), after(builder, c, number(row)))
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


def total(builder: Any, vector: Any) -> Any:
    """Return the sum of a vector's elements; its halves are added until one element is left."""
    side = LANES
    while side > 1:
        side //= 2
        kind = ir.VectorType(ir.IntType(32), side)
        masks = (ir.Constant(kind, list(range(first, first + side))) for first in (0, side))
        vector = builder.fadd(*(builder.shuffle_vector(vector, vector, mask) for mask in masks))
    return builder.extract_element(vector, ir.IntType(32)(0))


def _next_lines(_context: Any, a: Any, b: Any, line: Any, of_b: Any, of_a: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b = (data(context, builder, signature.args[i], args[i]) for i in (0, 1))
        of_b, of_a = (cgutils.unpack_tuple(builder, arg, 4) for arg in args[3:])
        chosen = builder.ptrtoint(a, INTEGER), number(0)
        for array, first, (count, at, apart, step) in ((a, builder.sub(args[2], of_b[0]), of_a), (b, args[2], of_b)):
            place = builder.ptrtoint(after(builder, array, at, builder.mul(first, apart)), INTEGER)
            is_one = builder.icmp_signed("<", first, count)
            chosen = tuple(builder.select(is_one, *pair) for pair in zip((place, step), chosen, strict=True))
        return context.make_tuple(builder, signature.return_type, chosen)

    return types.UniTuple(types.int64, 2)(a, b, line, of_b, of_a), generate


#: `next_lines(a, b, line, of_b, of_a)`: the address from which tile `line` prefetches lines, and the lines' distance in
#: elements. of_b, of_a: (count, at, apart, step). The first of_b.count tiles prefetch lines from b[at + line apart] on,
#: `step` elements apart; the next of_a.count tiles do so in a, with `line` from 0 again; all others, a's first line.
next_lines = cast(Any, intrinsic(_next_lines))
