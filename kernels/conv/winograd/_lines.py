"""Winograd's transforms along one axis, on lines of numbers; the code for a matrix leaves out its zeros and ones.

The IR is written here, since LLVM does not vectorise loops over lines that may overlap.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from collections.abc import Iterable
from itertools import product
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark import Array
from kernelmark.kernels._host import registers
from kernelmark.kernels._numba import data, llvm
from kernelmark.kernels.conv._winograd import BY_TILE

LANES = registers().nbytes // 4
TAPS = (0,) * 9  # stands for the taps of a filter in `divide` and `join`
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


def _transform(name: str, transposed: bool = False) -> Any:
    """Return an intrinsic that multiplies lines by a matrix of F(m x m, 3 x 3): A^T, G or B^T, or its transpose.

    f(tile, to, off, (to_at, step, off_at, near, far), count): to[a] = sum over i of matrix[a, i] off[i]. Lines
    have `count` elements. m is the length of the tuple `tile`; since its type contains the length, only this m is
    compiled. Line a of the results begins at `to_at + a step`, line i of the inputs at
    `off_at + i % m near + i // m far`. Whole vectors are written, up to LANES - 1 elements beyond `count`.
    """

    def lines(_context: Any, tile: Any, to: Any, off: Any, place: Any, count: Any) -> Any:
        m = len(tile)
        matrix = getattr(BY_TILE[m], name)
        if transposed:
            matrix = matrix.T

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target, source = (data(context, builder, signature.args[i], args[i]) for i in (1, 2))
            to_at, step, off_at, near, far = cgutils.unpack_tuple(builder, args[3], 5)

            def pointer(first: Any, at: Any, offset: Any) -> Any:
                return builder.bitcast(builder.gep(builder.gep(first, [at]), [offset]), _VECTOR.as_pointer())

            def times(value: Any, factor: int) -> Any:
                return builder.mul(value, value.type(factor))

            zero, whole = (args[4].type(value) for value in (0, LANES))
            with cgutils.for_range_slice(builder, zero, args[4], whole, args[4].type) as (j, _):
                inputs = [
                    builder.load(
                        pointer(source, builder.add(off_at, j), builder.add(times(near, i % m), times(far, i // m))),
                        align=4,
                    )
                    for i in range(matrix.shape[1])
                ]
                for a, row in enumerate(matrix):
                    place = pointer(target, builder.add(to_at, j), times(step, a))
                    builder.store(_sum(builder, row, inputs), place, align=4)
            return context.get_dummy_value()

        return types.void(tile, to, off, place, count), generate

    return cast(Any, intrinsic(lines))


def _sum(builder: Any, row: Array, inputs: list[Any]) -> Any:
    """Return the sum of a row's nonzero terms; those without a multiplication come first."""
    terms = [(factor, x) for factor, x in zip(row, inputs, strict=True) if factor]
    total = None
    for factor, x in sorted(terms, key=lambda term: (term[0] != 1, abs(term[0]) != 1)):
        if total is None:
            total = x if factor == 1 else builder.fmul(x, _constant(factor))
        elif abs(factor) == 1:
            total = builder.fadd(total, x) if factor == 1 else builder.fsub(total, x)
        else:
            total = llvm(builder, "fma", x, _constant(factor), total)
    return total


def _constant(value: float) -> Any:
    return ir.Constant(_VECTOR, [float(np.float32(value))] * LANES)


def _transform_both(name: str, transposed: bool = False) -> Any:
    """Return an intrinsic that multiplies lines by a matrix (as in `_transform`) along both axes of a tile.

    f(tile, to, off, (to_at, step, off_at, near), count): to[a, b] = sum over i and k of matrix[a, i] matrix[b, k]
    off[i, k]. Lines are numbered row by row; they are `step` and `near` elements apart in `to` and `off`.
    """

    def lines(_context: Any, tile: Any, to: Any, off: Any, place: Any, count: Any) -> Any:
        matrix = getattr(BY_TILE[len(tile)], name)
        if transposed:
            matrix = matrix.T
        results, taken = matrix.shape

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target, source = (data(context, builder, signature.args[i], args[i]) for i in (1, 2))
            to_at, step, off_at, near = cgutils.unpack_tuple(builder, args[3], 4)
            whole = args[4].type(LANES)
            with cgutils.for_range_slice(builder, whole.type(0), args[4], whole, whole.type) as (j, _):
                offsets = [(off_at, j, builder.mul(near, near.type(i))) for i in range(taken**2)]
                loaded = _loaded(builder, source, offsets)
                columns = [[_sum(builder, row, loaded[k::taken]) for row in matrix] for k in range(taken)]
                for i, (a, row) in enumerate(product(range(results), matrix)):
                    place = _vector(builder, target, to_at, j, builder.mul(step, step.type(i)))
                    builder.store(_sum(builder, row, [column[a] for column in columns]), place, align=4)
            return context.get_dummy_value()

        return types.void(tile, to, off, place, count), generate

    return cast(Any, intrinsic(lines))


inputs, outputs = (_transform(name) for name in ("bt", "at"))
#: Transforms the gradient of outputs into the gradient of products.
outputs_back = _transform("at", transposed=True)
filters = _transform_both("g")
#: Transforms the gradient of transformed filters into the gradient of filters.
filters_back = _transform_both("g", transposed=True)


def _divide(_context: Any, tile: Any, to: Any, at: Any, length: Any, line: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, line = (data(context, builder, signature.args[i], args[i]) for i in (1, 4))
        at, length, n = args[2], args[3], len(tile)
        with cgutils.for_range_slice(builder, length.type(0), length, length.type(LANES), length.type) as (j, _):
            parts = _loaded(builder, line, [(builder.mul(j, length.type(n)), length.type(i * LANES)) for i in range(n)])
            for i, part in enumerate(_divided(builder, parts)):
                place = _vector(builder, target, at, j, builder.mul(length, length.type(i)))
                builder.store(part, place, align=4)
        return context.get_dummy_value()

    return types.void(tile, to, at, length, line), generate


#: `divide(tile, to, at, length, line)`: gather every m-th element of a line, in m parts of whole vectors.
divide = cast(Any, intrinsic(_divide))


def _join(_context: Any, tile: Any, to: Any, at: Any, off: Any, place: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (data(context, builder, signature.args[i], args[i]) for i in (1, 3))
        begin, step = cgutils.unpack_tuple(builder, args[4], 2)
        at, count, n = args[2], args[5], len(tile)
        with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES), count.type) as (j, _):
            offsets = [(begin, j, builder.mul(step, count.type(i))) for i in range(n)]
            lines = _loaded(builder, source, offsets)
            for i, part in enumerate(_joined(builder, lines)):
                place = _vector(builder, target, at, builder.mul(j, count.type(n)), count.type(i * LANES))
                builder.store(part, place, align=4)
        return context.get_dummy_value()

    return types.void(tile, to, at, off, place, count), generate


#: `join(tile, to, at, off, (begin, step), count)`: interleave m lines of `count` elements: the first of each, then the
#: second, and so on. Line i begins at off[begin + i step]. Whole vectors are read and written.
join = cast(Any, intrinsic(_join))


def _vector(builder: Any, first: Any, *offsets: Any) -> Any:
    for offset in offsets:
        first = builder.gep(first, [offset])
    return builder.bitcast(first, _VECTOR.as_pointer())


def _loaded(builder: Any, first: Any, places: list[Any]) -> list[Any]:
    return [builder.load(_vector(builder, first, *offsets), align=4) for offsets in places]


def _divided(builder: Any, vectors: list[Any]) -> list[Any]:
    """Return n vectors: number i has every n-th element of the n given vectors, from element i on.

    The elements are split by one factor of n after another, which takes fewer instructions.
    """
    n = len(vectors)
    by = _factor(n)
    if by == n:
        return [_picked(builder, vectors, range(i, n * LANES, n)) for i in range(n)]
    parts = [_divided(builder, vectors[i : i + by]) for i in range(0, n, by)]
    groups = [_divided(builder, [part[i] for part in parts]) for i in range(by)]
    return [groups[i % by][i // by] for i in range(n)]


def _joined(builder: Any, lines: list[Any]) -> list[Any]:
    """Invert `_divided`: return the first elements of n vectors, then the second, and so on."""
    n = len(lines)
    by = _factor(n)
    if by == n:
        places = [k % n * LANES + k // n for k in range(n * LANES)]
        return [_picked(builder, lines, places[i : i + LANES]) for i in range(0, n * LANES, LANES)]
    groups = [_joined(builder, lines[i::by]) for i in range(by)]
    return [part for parts in zip(*groups, strict=True) for part in _joined(builder, list(parts))]


def _factor(n: int) -> int:
    """Return the least factor of n above 1."""
    return next(i for i in range(2, n + 1) if n % i == 0)


def _picked(builder: Any, vectors: list[Any], places: Iterable[int]) -> Any:
    """Return a vector of the elements at these places in the concatenated vectors, which are merged one by one."""
    merged, wanted = vectors[0], [divmod(place, LANES) for place in places]
    for number, vector in enumerate(vectors[1:], 1):
        lanes = (at if number == 1 and of == 0 else i for i, (of, at) in enumerate(wanted))
        mask = [LANES + at if of == number else old for old, (of, at) in zip(lanes, wanted, strict=True)]
        merged = builder.shuffle_vector(merged, vector, ir.Constant(ir.VectorType(ir.IntType(32), LANES), mask))
    return merged
