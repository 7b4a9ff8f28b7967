"""The inner loop of direct convolution: a tile of sums that stays in vector registers.

Sums of ROWS x WIDTH: each step multiplies an element of each row, which tables of offsets find, with WIDTH
elements that lie side by side. LLVM would not keep the sums in registers by itself, so its code is given here.
"""

# mypy: allow-untyped-calls

from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels._host import registers
from kernels._numba import data, everywhere, llvm

LANES, VECTORS = registers().nbytes // 4, 2
WIDTH = LANES * VECTORS
ROWS = 6 if LANES == 8 else 8  # with AVX2 there are 16 registers, otherwise 32

_alloca = cast(Any, cgutils).alloca_once
_REAL, _INTEGER = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_REAL, LANES)


def _add_products(_context: Any, sums: Any, b: Any, rows: Any, steps: Any, v: Any, place: Any) -> Any:
    signature = types.void(sums, b, rows, steps, v, place)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = zip(signature.args[:5], args[:5], strict=True)
        to, elements, row_at, step_at, vectors = (data(context, builder, *array) for array in arrays)
        at, base, row, panel, first, last = cgutils.unpack_tuple(builder, args[5], 6)

        def after(pointer: Any, *offsets: Any) -> Any:
            for offset in offsets:
                pointer = builder.gep(pointer, [offset])
            return pointer

        def number(value: int) -> Any:
            return ir.Constant(_INTEGER, value)

        begins = [after(elements, base, builder.load(after(row_at, row, number(r)))) for r in range(ROWS)]
        places = [
            builder.bitcast(after(to, at, number(i * LANES)), _VECTOR.as_pointer()) for i in range(ROWS * VECTORS)
        ]
        held = [_alloca(builder, _VECTOR) for _ in places]  # which LLVM makes registers
        for register, memory in zip(held, places, strict=True):
            builder.store(builder.load(memory, align=4), register)
        with cgutils.for_range_slice(builder, first, last, number(1), _INTEGER) as (t, _):
            step = builder.load(after(step_at, t))
            line = after(vectors, panel, builder.mul(t, number(WIDTH)))
            factors = [
                builder.load(builder.bitcast(after(line, number(i * LANES)), _VECTOR.as_pointer()), align=4)
                for i in range(VECTORS)
            ]
            for r in range(ROWS):
                element = everywhere(builder, builder.load(after(begins[r], step)), _VECTOR)
                for i in range(VECTORS):
                    register = held[r * VECTORS + i]
                    builder.store(llvm(builder, "fma", element, factors[i], builder.load(register)), register)
        for register, memory in zip(held, places, strict=True):
            builder.store(builder.load(register), memory, align=4)
        return context.get_dummy_value()

    return signature, generate


#: `add_products(sums, b, rows, steps, v, (at, base, row, panel, first, last))`: for r in ROWS and i in WIDTH,
#: sums[at + r WIDTH + i] += sum over t in first:last of b[base + rows[row + r] + steps[t]] v[panel + t WIDTH + i].
add_products = cast(Any, intrinsic(_add_products))
