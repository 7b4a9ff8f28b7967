"""Winograd's transforms along one axis, on lines of numbers: code for each matrix, its zeros and ones left out.

LLVM does not vectorise loops over lines that it cannot prove not to overlap, so their code is given here.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark import Array
from kernels._host import registers
from kernels._numba import data, jit, llvm
from kernels.conv._winograd import F2, F4

LANES = registers().nbytes // 4
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


def _transform(matrix: Array, m: int) -> Any:
    """An intrinsic that takes lines through `matrix`: to[a] = sum over i of matrix[a, i] off[i], `count` elements each.

    Line a of the results begins at `to_at + a step`, line i of the inputs at `off_at + i % m near + i // m far`. Whole
    vectors are written, up to LANES - 1 elements beyond `count`.
    """

    def lines(_context: Any, to: Any, off: Any, place: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target, source = (data(context, builder, signature.args[i], args[i]) for i in (0, 1))
            to_at, step, off_at, near, far = cgutils.unpack_tuple(builder, args[2], 5)

            def pointer(first: Any, at: Any, offset: Any) -> Any:
                return builder.bitcast(builder.gep(builder.gep(first, [at]), [offset]), _VECTOR.as_pointer())

            def times(value: Any, factor: int) -> Any:
                return builder.mul(value, value.type(factor))

            zero, whole = (args[3].type(value) for value in (0, LANES))
            with cgutils.for_range_slice(builder, zero, args[3], whole, args[3].type) as (j, _):
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

        return types.void(to, off, place, count), generate

    return cast(Any, intrinsic(lines))


def _sum(builder: Any, row: Array, inputs: list[Any]) -> Any:
    """The terms of a row that are not 0, those that need no multiplication first."""
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


_INPUT_2, _FILTER_2, _OUTPUT_2 = (_transform(matrix, 2) for matrix in (F2.bt, F2.g, F2.at))
_INPUT_4, _FILTER_4, _OUTPUT_4 = (_transform(matrix, 4) for matrix in (F4.bt, F4.g, F4.at))
_OUTPUT_BACK_2, _FILTER_BACK_2 = (_transform(matrix, 2) for matrix in (F2.at.T, F2.g.T))
_OUTPUT_BACK_4, _FILTER_BACK_4 = (_transform(matrix, 4) for matrix in (F4.at.T, F4.g.T))


@jit
def inputs(m, to, off, place, count):
    """B^T."""
    if m == 2:
        _INPUT_2(to, off, place, count)
    else:
        _INPUT_4(to, off, place, count)


@jit
def filters(m, to, off, place, count):
    """G."""
    if m == 2:
        _FILTER_2(to, off, place, count)
    else:
        _FILTER_4(to, off, place, count)


@jit
def outputs(m, to, off, place, count):
    """A^T."""
    if m == 2:
        _OUTPUT_2(to, off, place, count)
    else:
        _OUTPUT_4(to, off, place, count)


@jit
def outputs_back(m, to, off, place, count):
    """A: from the gradient of outputs to that of products."""
    if m == 2:
        _OUTPUT_BACK_2(to, off, place, count)
    else:
        _OUTPUT_BACK_4(to, off, place, count)


@jit
def filters_back(m, to, off, place, count):
    """G^T: from the gradient of transformed filters to that of filters."""
    if m == 2:
        _FILTER_BACK_2(to, off, place, count)
    else:
        _FILTER_BACK_4(to, off, place, count)


def _divide(phases: int) -> Any:
    """Every phases-th of a line's elements side by side; called as f(to, at, length, line)."""

    def typed(_context: Any, to: Any, at: Any, length: Any, line: Any) -> Any:
        return types.void(to, at, length, line), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, line = (data(context, builder, signature.args[i], args[i]) for i in (0, 3))
        at, length = args[1:3]
        zero, whole = (length.type(value) for value in (0, LANES))

        def vector(first: Any, *offsets: Any) -> Any:
            for offset in offsets:
                first = builder.gep(first, [offset])
            return builder.bitcast(first, _VECTOR.as_pointer())

        with cgutils.for_range_slice(builder, zero, length, whole, length.type) as (j, _):
            begin = builder.mul(j, length.type(phases))
            parts = [builder.load(vector(line, begin, length.type(i * LANES)), align=4) for i in range(phases)]
            for phase, part in enumerate(_separated(builder, parts)):
                builder.store(part, vector(target, at, j, builder.mul(length, length.type(phase))), align=4)
        return context.get_dummy_value()

    return cast(Any, intrinsic(typed))


def _separated(builder: Any, vectors: list[Any]) -> list[Any]:
    """The i-th of n vectors: the elements i, i + n, i + 2 n and so on of all, for n a power of two."""
    if len(vectors) == 1:
        return vectors
    indices = ir.VectorType(ir.IntType(32), LANES)
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    halves = []
    for first in (0, 1):
        mask = ir.Constant(indices, list(range(first, 2 * LANES, 2)))
        halves.append(_separated(builder, [builder.shuffle_vector(low, high, mask) for low, high in pairs]))
    return [part for both in zip(*halves, strict=True) for part in both]


_DIVIDE_2, _DIVIDE_4 = _divide(2), _divide(4)


@jit
def divide(phases, to, at, length, line):
    """The elements of a line in two or four parts, each `length` long, which is whole vectors."""
    if phases == 2:
        _DIVIDE_2(to, at, length, line)
    else:
        _DIVIDE_4(to, at, length, line)
