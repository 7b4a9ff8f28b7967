"""Transpose a V x V block in vector registers, for Numba functions; LLVM lowers it to the CPU's instructions."""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernelmark.kernels._host import LINE_BYTES, registers
from kernelmark.kernels._numba import data, past_the_caches, prefetch

#: Bytes of a row that are prefetched together, while as many bytes before them are transposed and stored.
AHEAD = 4 * LINE_BYTES


def width(itemsize: int) -> int:
    """Return the side of a block: the elements of a cache line, but at most 16, since each row takes a register."""
    return min(16, LINE_BYTES // itemsize)


def square_side(itemsize: int) -> int:
    """Return the side of a square: the elements of a register, but at most the side of a block."""
    return min(width(itemsize), registers().nbytes // itemsize)


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of a V x V block as vectors, given its rows as vectors."""
    for _ in range(len(rows).bit_length() - 1):
        rows = _interleave(builder, rows)
    return rows


def _interleave(builder: Any, rows: list[Any]) -> list[Any]:
    """Interleave the elements of row i and row i + V/2; log2(V) such rounds transpose the block."""
    side, i32 = len(rows), ir.IntType(32)
    half, shuffled = side // 2, []
    for low, high in zip(rows[:half], rows[half:], strict=True):
        for start in (0, half):
            picks = [start + k // 2 + (k % 2) * side for k in range(side)]
            mask = ir.Constant(ir.VectorType(i32, side), [i32(pick) for pick in picks])
            shuffled.append(builder.shuffle_vector(low, high, mask))
    return shuffled


def _joined(builder: Any, parts: list[Any]) -> Any:
    """Return one vector that joins the vectors in order."""
    while len(parts) > 1:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * parts[0].type.count), [*range(2 * parts[0].type.count)])
        parts = [builder.shuffle_vector(*pair, mask) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _block(sized: Callable[[int], int] = width, streamed: int = 0) -> Any:
    def typed(_context: Any, target: Any, d: Any, ldd: Any, source: Any, s: Any, lds: Any) -> Any:
        return types.void(target, types.int64, types.int64, source, types.int64, types.int64), _generate

    def _generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, d, ldd, source, s, lds = args
        itemsize = signature.args[0].dtype.bitwidth // 8
        side, line = sized(itemsize), LINE_BYTES // itemsize
        lanes = min(side, registers().nbytes // itemsize)
        vector, whole = ir.VectorType(ir.IntType(8 * itemsize), lanes), line // lanes if streamed else 1

        def pointer(kind: Any, array: Any, start: Any, stride: Any, i: int, j: int = 0) -> Any:
            at = builder.add(builder.add(start, ir.IntType(64)(j)), builder.mul(stride, ir.IntType(64)(i)))
            return builder.bitcast(builder.gep(data(context, builder, kind, array), [at]), vector.as_pointer())

        for column in range(0, side, lanes):  # more than one pass if rows are longer than a register
            squares, begin = [], builder.add(s, s.type(column))
            for first in range(0, streamed * line or side, lanes):
                places = [pointer(signature.args[3], source, begin, lds, first + i) for i in range(lanes)]
                squares.append(transposed(builder, [builder.load(place, align=itemsize) for place in places]))
            for i, parts in enumerate(zip(*squares, strict=True)):
                for k in range(0, len(parts), whole):
                    row = _joined(builder, list(parts[k : k + whole]))
                    place = pointer(signature.args[0], target, d, ldd, column + i, k * lanes)
                    store = builder.store(row, builder.bitcast(place, row.type.as_pointer()), align=itemsize)
                    if streamed:
                        past_the_caches(builder, store, LINE_BYTES)
        return context.get_dummy_value()

    return intrinsic(typed)


#: `block(target, d, ldd, source, s, lds)`: target[d + j * ldd + i] = source[s + i * lds + j] for i, j < V.
block = cast(Any, _block())
#: The same for i, j < `square_side`.
square = cast(Any, _block(square_side))
#: As `block`, but i runs over the elements of one or two cache lines. Whole lines of the target are stored past the
#: caches, two neighbours at once, so the target must be aligned to a cache line.
block_streaming, blocks_streaming = (cast(Any, _block(streamed=lines)) for lines in (1, 2))


def _fetch(_context: Any, source: Any, s: Any, lds: Any) -> Any:
    signature = types.void(source, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, s, lds = args
        itemsize = signature.args[0].dtype.bitwidth // 8
        first = builder.gep(data(context, builder, signature.args[0], source), [s])
        for i in range(2 * LINE_BYTES * width(itemsize) // AHEAD):
            row = builder.gep(first, [builder.mul(lds, lds.type(i))])
            for k in range(0, AHEAD // itemsize, LINE_BYTES // itemsize):
                prefetch(builder, builder.gep(row, [lds.type(k)]), write=False)
        return context.get_dummy_value()

    return signature, generate


#: `fetch(source, s, lds)`: prefetch AHEAD bytes of each row in a group of rows, the first at source[s]. Neighbouring
#: blocks within AHEAD bytes need the same rows; each block's call prefetches a part of these.
fetch = cast(Any, intrinsic(_fetch))


def _row(_context: Any, target: Any, d: Any, source: Any, s: Any, stride: Any) -> Any:
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, d, source, s, stride = args
        first, begin = (
            builder.gep(data(context, builder, kind, array), [at])
            for kind, array, at in ((signature.args[0], target, d), (signature.args[2], source, s))
        )
        itemsize = signature.args[0].dtype.bitwidth // 8
        vector = ir.VectorType(ir.IntType(8 * itemsize), square_side(itemsize))
        values = ir.Constant(vector, ir.Undefined)
        for i in range(vector.count):
            place = builder.gep(begin, [builder.mul(stride, stride.type(i))])
            element = builder.load(builder.bitcast(place, vector.element.as_pointer()), align=itemsize)
            values = builder.insert_element(values, element, ir.IntType(32)(i))
        builder.store(values, builder.bitcast(first, vector.as_pointer()), align=itemsize)
        return context.get_dummy_value()

    return signature, generate


#: `row(target, d, source, s, stride)`: target[d + i] = source[s + i * stride] for i < `square_side`.
row = cast(Any, intrinsic(_row))
