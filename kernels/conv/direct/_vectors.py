"""Vectors of grouped convolution's sums in registers, and moves of vectors, for Numba functions.

LLVM would not keep the sums in registers by itself, so the IR is written here.
"""

# mypy: allow-untyped-calls

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._copies import moved
from kernelmark.kernels._host import registers
from kernelmark.kernels._numba import data, everywhere, llvm
from kernelmark.kernels._tile import INTEGER, LANES, VECTOR, Sums, after, loaded, number, stored, total, vectors_at

MANY, SOME = 8, 4  # vectors of sums at a time
ROWS, ACROSS = 4, 2 if registers().nbytes == 32 else 4  # planes of the target at a time, and vectors of each
TAPS, FEW = 9, 3  # taps of a filter's gradient at a time
SLACK = LANES * MANY  # elements that may be read beyond a buffer


def _addresses(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """Return the addresses of the first four arguments, which are arrays."""
    return [data(context, builder, kind, array) for kind, array in zip(signature.args[:4], args[:4], strict=True)]


def _weighted(count: int, alike: bool) -> Any:
    def typed(_context: Any, sums: Any, weights: Any, b: Any, offsets: Any, place: Any) -> Any:
        return types.void(sums, weights, b, offsets, place), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, factors, source, offsets = _addresses(context, builder, signature, args)
        at, first, last, apart = cgutils.unpack_tuple(builder, args[4], 4)
        skipped = [builder.mul(apart, number(i)) for i in range(count)]
        totals = [cast(Any, cgutils).alloca_once(builder, VECTOR) for _ in range(count)]  # kept in registers by LLVM
        for register in totals:
            builder.store(VECTOR(None), register)
        with cgutils.for_range_slice(builder, first, last, number(1), INTEGER) as (t, _):
            weight = _weight(builder, factors, builder.sub(t, first), alike)
            begin = after(builder, source, at, builder.load(after(builder, offsets, t)))
            places = [vectors_at(builder, after(builder, begin, skip), 1)[0] for skip in skipped]
            for register, met in zip(totals, loaded(builder, places), strict=True):
                builder.store(llvm(builder, "fma", weight, met, builder.load(register)), register)
        places = [vectors_at(builder, after(builder, to, at, skip), 1)[0] for skip in skipped]
        stored(builder, [builder.load(register) for register in totals], places)
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


def _weight(builder: Any, factors: Any, tap: Any, alike: bool) -> Any:
    """Return a tap's weights, as a vector or as one weight for all lanes."""
    if alike:
        return everywhere(builder, builder.load(after(builder, factors, tap)), VECTOR)
    (weight,) = loaded(builder, vectors_at(builder, after(builder, factors, builder.mul(tap, number(LANES))), 1))
    return weight


#: `f(sums, weights, b, offsets, (at, first, last, apart))`: set vectors of sums, from `at` on in steps of `apart`,
#: to the sum over taps first:last of weight times b from at + offsets[tap] on. `weights` begins at tap `first`.
many_sums, some_sums, one_sum = (_weighted(count, False) for count in (MANY, SOME, 1))
many_alike, some_alike, one_alike = (_weighted(count, True) for count in (MANY, SOME, 1))


def _block(_context: Any, sums: Any, weights: Any, b: Any, offsets: Any, place: Any) -> Any:
    """Compute ROWS x ACROSS vectors of sums; a tap has one weight a row. place: offset, range of taps, row stride."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, factors, source, offsets = _addresses(context, builder, signature, args)
        at, first, last, line = cgutils.unpack_tuple(builder, args[4], 4)
        sums = Sums(builder, ROWS, ACROSS)
        sums.begin([VECTOR(None)] * (ROWS * ACROSS))
        with cgutils.for_range_slice(builder, first, last, number(1), INTEGER) as (t, _):
            step_factors = after(builder, factors, builder.mul(builder.sub(t, first), number(ROWS)))
            begin = after(builder, source, at, builder.load(after(builder, offsets, t)))
            met = loaded(builder, vectors_at(builder, begin, ACROSS))
            sums.add(lambda row: builder.load(after(builder, step_factors, number(row))), met)
        rows = (after(builder, to, at, builder.mul(line, number(row))) for row in range(ROWS))
        stored(builder, sums.values(), [place for row in rows for place in vectors_at(builder, row, ACROSS)])
        return context.get_dummy_value()

    return types.void(sums, weights, b, offsets, place), generate


row_sums = cast(Any, intrinsic(_block))


def _added(count: int) -> Any:
    def typed(_context: Any, sums: Any, d: Any, b: Any, offsets: Any, place: Any) -> Any:
        return types.void(sums, d, b, offsets, place), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, gradient, source, offsets = _addresses(context, builder, signature, args)
        first, start, length, apart = cgutils.unpack_tuple(builder, args[4], 4)
        begins = [after(builder, source, builder.load(after(builder, offsets, first, number(t)))) for t in range(count)]
        places = vectors_at(builder, after(builder, to, builder.mul(first, number(LANES))), count)
        totals = [cast(Any, cgutils).alloca_once(builder, VECTOR) for _ in range(count)]
        for register, value in zip(totals, loaded(builder, places), strict=True):
            builder.store(value, register)
        with cgutils.for_range_slice(builder, start, length, apart, INTEGER) as (at, _):
            (factor,) = loaded(builder, vectors_at(builder, after(builder, gradient, at), 1))
            for register, begin in zip(totals, begins, strict=True):
                (met,) = loaded(builder, vectors_at(builder, after(builder, begin, at), 1))
                builder.store(llvm(builder, "fma", factor, met, builder.load(register)), register)
        stored(builder, [builder.load(register) for register in totals], places)
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


#: `f(sums, d, b, offsets, (first, start, stop, apart))`: for each of `count` taps from `first` on, add to its vector of
#: sums the products of d's vectors, `apart` elements apart, with b's vectors from offsets[tap] on.
add_taps, add_few_taps, add_tap = (_added(count) for count in (TAPS, FEW, 1))


def _sum(_context: Any, sums: Any, at: Any) -> Any:
    """Return the sum of a vector's elements."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = after(builder, data(context, builder, signature.args[0], args[0]), args[1])
        return total(builder, loaded(builder, vectors_at(builder, place, 1))[0])

    return types.float32(sums, at), generate


total_of = cast(Any, intrinsic(_sum))
#: `f(to, at, source, begin)`: copy a vector.
move, move_8, move_4 = (moved(lanes) for lanes in (LANES, 8, 4))


def _halved(lanes: int) -> Any:
    def typed(_context: Any, to: Any, at: Any, source: Any, begin: Any) -> Any:
        return types.void(to, at, source, begin), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector, half = ir.VectorType(ir.FloatType(), lanes).as_pointer(), lanes // 2
        origin = after(builder, data(context, builder, signature.args[2], args[2]), args[3])
        places = [builder.bitcast(after(builder, origin, number(i)), vector) for i in (0, lanes - 1)]
        low, high = loaded(builder, places)
        picked = [2 * i for i in range(half)] + [lanes + 2 * i + 1 for i in range(half)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), picked)
        target = after(builder, data(context, builder, signature.args[0], args[0]), args[1])
        stored(builder, [builder.shuffle_vector(low, high, mask)], [builder.bitcast(target, vector)])
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


#: `f(to, at, source, begin)`: copy every second element, as a vector; nothing is read beyond the last of them.
halve, halve_8, halve_4 = (_halved(lanes) for lanes in (LANES, 8, 4))


def _expanded(group: int) -> Any:
    def typed(_context: Any, to: Any, at: Any, size: Any, source: Any, begin: Any) -> Any:
        return types.void(to, at, size, source, begin), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = after(builder, data(context, builder, signature.args[0], args[0]), args[1])
        origin = after(builder, data(context, builder, signature.args[3], args[3]), args[4])
        (vector,) = loaded(builder, vectors_at(builder, origin, 1))
        for member in range(group):
            picked = [min(lane // group * group + member, LANES - 1) for lane in range(LANES)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), picked)
            line = after(builder, place, builder.mul(args[2], number(member)))
            stored(builder, [builder.shuffle_vector(vector, vector, mask)], vectors_at(builder, line, 1))
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


#: `f(to, at, size, source, begin)`: for each member of groups of 2, 4, ... lanes, write a vector in which the member is
#: repeated over its group; these vectors are `size` elements apart.
expand_2, expand_4, expand_8, expand_16 = (_expanded(group) for group in (2, 4, 8, 16))
