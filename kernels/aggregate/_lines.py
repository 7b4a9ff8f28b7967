"""Cache lines of numbers at a time, for Numba functions: sums of lines, and blocks of bits and bytes of a line each.

A vector of LLVM's has the 16 FP32 numbers of a line; LLVM cuts it to what the CPU has.
"""

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels._host import LINE_BYTES
from kernels._numba import data, everywhere, past_the_caches

#: FP32 numbers of a line.
LANES = LINE_BYTES // 4
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


def _at(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any) -> Any:
    """The address of an array's element, as that of a vector."""
    first = builder.gep(data(context, builder, kind, array), [index])
    return builder.bitcast(first, vector.as_pointer())


def _of_rows(streaming: bool) -> Any:
    def typed(_context: Any, target: Any, rows: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = signature.args[0]
            element = context.get_data_type(kind.dtype)
            vector = ir.VectorType(element, LINE_BYTES // (kind.dtype.bitwidth // 8))
            total = None
            for i, row in enumerate(cgutils.unpack_tuple(builder, args[1])):  # type: ignore[no-untyped-call]
                line = builder.load(_at(context, builder, signature.args[1][i], row, args[2], vector), align=1)
                total = line if total is None else builder.fadd(total, line)
            store = builder.store(total, _at(context, builder, kind, args[0], args[2], vector), align=1)
            if streaming:
                past_the_caches(builder, store, LINE_BYTES)
            return context.get_dummy_value()

        return types.void(target, rows, index), generate

    return intrinsic(typed)


#: `sum_line(target, rows, index)`: the line of target from that element on is the sum of those of the tuple.
sum_line = cast(Any, _of_rows(streaming=False))
#: The same, stored past the caches; the line of target is one of the cache's.
sum_line_past = cast(Any, _of_rows(streaming=True))


def _line_of(context: Any, builder: Any, signature: Any, args: Any, number: int, index: Any) -> Any:
    """The address of 16 numbers of an argument that is an array."""
    return _at(context, builder, signature.args[number], args[number], index, _VECTOR)


def _signs(_context: Any, x: Any, index: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zeros = ir.Constant(_VECTOR, None)
        line = builder.load(_line_of(context, builder, signature, args, 0, args[1]), align=1)
        mask = builder.fcmp_ordered(">=", line, zeros)
        for first, part in ((0, builder.select(mask, line, zeros)), (LANES, builder.select(mask, zeros, line))):
            place = _line_of(context, builder, signature, args, 2, ir.IntType(64)(first))
            builder.store(builder.fadd(builder.load(place, align=1), part), place, align=1)
        return builder.bitcast(mask, ir.IntType(LANES))

    return types.uint16(x, index, sums), generate


#: `signs(x, index, sums)`: a bit for each of the 16 numbers from that element on, 1 where it is at least 0; those are
#: added to the first 16 of sums, the others to the next.
signs = cast(Any, intrinsic(_signs))


def _ones(_context: Any, bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.zext(builder.ctpop(args[0]), ir.IntType(64))

    return types.int64(types.uint16), generate


#: `ones(bits)`: how many of 16 bits are 1.
ones = cast(Any, intrinsic(_ones))


def _combining(combine: str) -> Any:
    def typed(_context: Any, target: Any, x: Any, index: Any, bits: Any, high: Any, low: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, source = (_line_of(context, builder, signature, args, i, args[2]) for i in (0, 1))
            high, low = (everywhere(builder, value, _VECTOR) for value in args[4:])
            mask = builder.bitcast(args[3], ir.VectorType(ir.IntType(1), LANES))
            chosen = builder.select(mask, high, low)
            builder.store(getattr(builder, combine)(builder.load(source, align=1), chosen), to, align=1)
            return context.get_dummy_value()

        return types.void(target, x, index, types.uint16, types.float32, types.float32), generate

    return intrinsic(typed)


#: `add_chosen(target, x, index, bits, high, low)`: 16 numbers of target are those of x plus what the bits choose.
add_chosen = cast(Any, _combining("fadd"))
#: The same, less what the bits choose.
less_chosen = cast(Any, _combining("fsub"))
