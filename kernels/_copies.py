"""Copy contiguous elements in whole vectors, for Numba functions.

The IR is written by hand, since LLVM would generate several loops for each copy, which take long to compile.
"""

# mypy: allow-untyped-calls

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._numba import data, prefetch
from kernelmark.kernels._tile import INTEGER, LANES, VECTOR, after, loaded, number, stored, vectors_at


def _ends(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """Return the addresses of to[at] and source[begin] for a copy with the arguments (to, at, source, begin, ...)."""
    return [after(builder, data(context, builder, signature.args[i], args[i]), args[i + 1]) for i in (0, 2)]


def moved(lanes: int) -> Any:
    """Return `f(to, at, source, begin)`: to[at + i] = source[begin + i] for i < `lanes`, copied as vectors."""

    def typed(_context: Any, to: Any, at: Any, source: Any, begin: Any) -> Any:
        return types.void(to, at, source, begin), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), lanes).as_pointer()
        target, origin = (builder.bitcast(end, vector) for end in _ends(context, builder, signature, args))
        builder.store(builder.load(origin, align=4), target, align=4)
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


def _fetch(_context: Any, source: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        prefetch(builder, after(builder, data(context, builder, signature.args[0], args[0]), args[1]), write=False)
        return context.get_dummy_value()

    return types.void(source, at), generate


#: `fetch_line(source, at)`: prefetch the line of element `at` into the nearest cache.
fetch_line = cast(Any, intrinsic(_fetch))


def _padded(_context: Any, to: Any, at: Any, source: Any, begin: Any, count: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, origin = _ends(context, builder, signature, args)
        count, lanes = args[4:]
        whole = builder.and_(count, number(-LANES))
        with cgutils.for_range_slice(builder, number(0), whole, number(LANES), INTEGER) as (i, _):
            (values,) = loaded(builder, vectors_at(builder, after(builder, origin, i), 1))
            stored(builder, [values], vectors_at(builder, after(builder, target, i), 1))
        with builder.if_then(builder.icmp_signed("<", whole, lanes)):
            stored(builder, [VECTOR(None)], vectors_at(builder, after(builder, target, whole), 1))
        with cgutils.for_range_slice(builder, whole, count, number(1), INTEGER) as (i, _):
            builder.store(builder.load(after(builder, origin, i)), after(builder, target, i))
        return context.get_dummy_value()

    return types.void(to, at, source, begin, count, lanes), generate


#: `padded(to, at, source, begin, count, lanes)`: to[at + i] = source[begin + i] for i < count, and 0 for the other
#: i < lanes. `lanes` is `count` rounded up to whole vectors.
padded = cast(Any, intrinsic(_padded))


def _put(_context: Any, to: Any, at: Any, source: Any, begin: Any, count: Any, keep: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, origin = _ends(context, builder, signature, args)
        count, keep = args[4:]
        whole = builder.and_(count, number(-LANES))

        def add(place: Any, address: Any) -> None:
            value = builder.load(address, align=4)
            total = builder.fadd(builder.load(place, align=4), value)
            builder.store(builder.select(keep, total, value), place, align=4)

        with cgutils.for_range_slice(builder, number(0), whole, number(LANES), INTEGER) as (i, _):
            add(*(vectors_at(builder, after(builder, first, i), 1)[0] for first in (target, origin)))
        with cgutils.for_range_slice(builder, whole, count, number(1), INTEGER) as (i, _):
            add(*(after(builder, first, i) for first in (target, origin)))
        return context.get_dummy_value()

    return types.void(to, at, source, begin, count, keep), generate


#: `put_line(to, at, source, begin, count, keep)`: to[at + i] = source[begin + i] for i < count; += if `keep` is set.
put_line = cast(Any, intrinsic(_put))
