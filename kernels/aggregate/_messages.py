"""Encode and decode lines of compressed blocks, for Numba functions.

A line is 16 FP32 numbers. In a message it is a word of 16 bits, or 16 bytes, depending on the message's type. Loops
that LLVM vectorises by itself took two to four times as long.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._numba import everywhere
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate._lines import address

#: FP32 numbers in a line.
LANES = LINE_BYTES // 4
#: The number of lines in a block of bytes, and in a block of bits.
COMPARED, SIGNED = FORMATS["int8"].block // LANES, FORMATS["onebit"].block // LANES
_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOATS, _INTS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_I32, LANES)
_MASK, _BYTES = ir.VectorType(ir.IntType(1), LANES), ir.VectorType(_I8, LANES)
_NUMBERS = types.Array(types.float32, 1, "C")


class _Code(NamedTuple):
    """The arguments that Numba passes to an intrinsic's code generator."""

    context: Any
    builder: Any
    signature: Any
    args: Any

    def at(self, number: int, index: Any, kind: Any = _FLOATS) -> Any:
        """Return the address of element `index` of argument `number`, as a pointer to the type `kind`."""
        return address(self.context, self.builder, self.signature.args[number], self.args[number], index, kind)

    def lines(self, number: int, index: Any, count: int, kind: Any = _FLOATS) -> list[Any]:
        """Load `count` lines of argument `number`, from element `index` on."""
        starts = (self.builder.add(index, _I64(LANES * i)) for i in range(count))
        return [self.builder.load(self.at(number, start, kind), align=1) for start in starts]

    def received(self, kind: Any, sent: Any, scales: Any) -> Any:
        """Decode a line of a message; the last two of `self.args` are the numbers of the line and of its block."""
        builder, (line, block) = self.builder, self.args[-2:]

        def loaded(kind: Any, array: Any, index: Any, vector: Any) -> Any:
            return builder.load(address(self.context, builder, kind, array, index, vector), align=1)

        def scale(index: Any) -> Any:
            return everywhere(builder, loaded(_NUMBERS, scales, index, ir.FloatType()), _FLOATS)

        if kind.dtype.bitwidth == _I16.width:
            mask = builder.bitcast(loaded(kind, sent, line, _I16), _MASK)
            first = builder.mul(block, _I64(2))
            return builder.select(mask, scale(first), scale(builder.add(first, _I64(1))))
        multiples = loaded(kind, sent, builder.mul(line, _I64(LANES)), _BYTES)
        return builder.fmul(builder.sitofp(multiples, _FLOATS), scale(block))

    def rounded(self, line: Any) -> Any:
        """Return a line of numbers rounded to nearest, ties to even, as integers."""
        return self.builder.fptosi(self.call(_FLOATS, f"rint.v{LANES}f32", line), _INTS)

    def call(self, returns: Any, name: str, *args: Any, **more: Any) -> Any:
        """Call one of LLVM's functions."""
        kind = ir.FunctionType(returns, [arg.type for arg in args])
        function = cast(Any, cgutils).get_or_insert_function(self.builder.module, kind, f"llvm.{name}")
        return self.builder.call(function, args, **more)

    def total(self, line: Any) -> Any:
        """Return the sum of a line, added in any order."""
        start = ir.Constant(ir.FloatType(), 0.0)
        return self.call(ir.FloatType(), f"vector.reduce.fadd.v{LANES}f32", start, line, fastmath=("reassoc",))

    def tree(self, combine: Callable[[Any, Any], Any], values: list[Any]) -> Any:
        """Combine pairs of values, then pairs of pairs; the number of values is a power of two."""
        while len(values) > 1:
            values = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]


def _combining(combine: str) -> Any:
    def typed(
        _context: Any, target: Any, to: Any, x: Any, index: Any, sent: Any, scales: Any, line: Any, block: Any
    ) -> Any:
        def generate(*given: Any) -> Any:
            code = _Code(*given)
            (total,) = code.lines(2, code.args[3], 1)
            messages, numbers = (cgutils.unpack_tuple(code.builder, code.args[i]) for i in (4, 5))  # type: ignore[no-untyped-call]
            for message, its_scales, kind in zip(messages, numbers, code.signature.args[4], strict=True):
                total = getattr(code.builder, combine)(total, code.received(kind, message, its_scales))
            code.builder.store(total, code.at(0, code.args[1]), align=1)
            return code.context.get_dummy_value()

        i = types.int64
        return types.void(target, i, x, i, sent, scales, i, i), generate

    return intrinsic(typed)


#: `add_line(target, to, x, index, sent, scales, line, block)`: store in target, from element `to` on, the line of x
#: from element `index` on plus line `line` of each message, which is in block `block`.
add_line = cast(Any, _combining("fadd"))
#: The same, minus the line of each message.
less_line = cast(Any, _combining("fsub"))


def _largest(_context: Any, x: Any) -> Any:
    def generate(*given: Any) -> Any:
        code, builder = _Code(*given), given[1]
        magnitude = ir.Constant(_INTS, [0x7FFFFFFF] * LANES)  # magnitudes are ordered like their bits
        lines = [builder.and_(line, magnitude) for line in code.lines(0, _I64(0), COMPARED, _INTS)]
        larger = code.tree(lambda a, b: builder.select(builder.icmp_unsigned(">", a, b), a, b), lines)
        return builder.bitcast(code.call(_I32, f"vector.reduce.umax.v{LANES}i32", larger), ir.FloatType())

    return types.float32(x), generate


#: `largest(x)`: the largest magnitude of the first 16 lines.
largest = cast(Any, intrinsic(_largest))


def _to_bytes(_context: Any, sent: Any, x: Any, first: Any, index: Any, times: Any) -> Any:
    def generate(*given: Any) -> Any:
        code, builder = _Code(*given), given[1]
        _, _, first, index, times = code.args
        (line,) = code.lines(1, index, 1)
        multiples = code.rounded(builder.fmul(line, everywhere(builder, times, _FLOATS)))
        builder.store(builder.trunc(multiples, _BYTES), code.at(0, builder.add(first, index), _BYTES), align=1)
        return code.context.get_dummy_value()

    return types.void(sent, x, types.int64, types.int64, types.float32), generate


#: `to_bytes(sent, x, first, index, times)`: multiply the line of x from element `index` on by `times`, round it, and
#: write it to the message at `first` + `index`.
to_bytes = cast(Any, intrinsic(_to_bytes))


def _signs(_context: Any, sent: Any, x: Any, line: Any, sums: Any) -> Any:
    def generate(*given: Any) -> Any:
        code, builder = _Code(*given), given[1]
        lines, zeros = code.lines(1, _I64(0), SIGNED), ir.Constant(_FLOATS, None)
        masks = [builder.fcmp_ordered(">=", line, zeros) for line in lines]
        words = [builder.bitcast(mask, _I16) for mask in masks]
        for i, word in enumerate(words):
            builder.store(word, code.at(0, builder.add(code.args[2], _I64(i)), _I16), align=1)
        pairs = list(zip(masks, lines, strict=True))
        parts = (
            [builder.select(mask, line, zeros) for mask, line in pairs],
            [builder.select(mask, zeros, line) for mask, line in pairs],
        )
        for i, part in enumerate(parts):
            builder.store(code.total(code.tree(builder.fadd, part)), code.at(3, _I64(i), ir.FloatType()))
        return code.tree(builder.add, [builder.zext(builder.ctpop(word), _I64) for word in words])

    return types.int64(sent, x, types.int64, sums), generate


#: `signs(sent, x, line, sums)`: write the signs of the numbers in 32 lines of x as bits, 1 for at least 0, to the words
#: of a message from `line` on. sums: receives the sum of the numbers >= 0 and that of the others. Returns the number of
#: ones.
signs = cast(Any, intrinsic(_signs))
