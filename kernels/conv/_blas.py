"""SGEMM called from inside Numba functions, so that one thread of ours forms an operand and multiplies it while hot.

It is the BLAS under SciPy, by its Fortran entry. Each thread calls it for itself; `alone` of `kernels/_host.py`
keeps it from starting others.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from functools import lru_cache
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from kernels._numba import data, jit

_alloca = cast(Any, cgutils).alloca_once_value


@lru_cache
def address() -> int:
    """Where the BLAS under SciPy has its sgemm."""
    return int(get_cython_function_address("scipy.linalg.cython_blas", "sgemm"))


def _call_sgemm(_context: Any, sgemm: Any, flags: Any, sizes: Any, a: Any, b: Any, beta: Any, c: Any) -> Any:
    """Fortran's sgemm at an address.

    flags: whether a and b are transposed. sizes: m, n, k. a, b, c: an array of one dimension, the offset of the matrix
    in it, its leading dimension.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function, switches, extents, first, second, factor, result = args
        integer, real, letter = ir.IntType(32), ir.FloatType(), ir.IntType(8)

        def passed(value: Any) -> Any:
            return builder.bitcast(_alloca(builder, value), letter.as_pointer())

        def number(value: Any) -> Any:
            return passed(builder.trunc(value, integer))

        def matrix(kind: Any, triple: Any) -> list[Any]:
            array, at, leading = cgutils.unpack_tuple(builder, triple, 3)
            first = builder.gep(data(context, builder, kind[0], array), [at])
            return [builder.bitcast(first, letter.as_pointer()), number(leading)]

        transposed = [
            passed(builder.select(flag, ir.Constant(letter, ord("T")), ir.Constant(letter, ord("N"))))
            for flag in cgutils.unpack_tuple(builder, switches, 2)
        ]
        operands = [matrix(kind, triple) for kind, triple in zip(signature.args[3:5], (first, second), strict=True)]
        arguments = [
            *transposed,
            *(number(size) for size in cgutils.unpack_tuple(builder, extents, 3)),
            passed(ir.Constant(real, 1.0)),
            *operands[0],
            *operands[1],
            passed(factor),
            *matrix(signature.args[6], result),
        ]
        kind = ir.FunctionType(ir.VoidType(), [letter.as_pointer()] * len(arguments))
        builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)
        return context.get_dummy_value()

    return types.void(sgemm, flags, sizes, a, b, beta, c), generate


_sgemm = cast(Any, intrinsic(_call_sgemm))


@jit
def _stored(x, rows, columns):
    """Whether a matrix lies in rows, and its leading dimension, which BLAS wants no smaller than a row or column."""
    if x[3] == 1:
        return True, max(x[2], columns)
    return False, max(x[3], rows)


@jit
def multiply(sgemm, m, n, k, a, b, beta, c):
    """C = A B + beta C for A (m x k), B (k x n) and C, each given as (flat array, offset, row stride, column stride).

    One of a matrix's strides is 1.
    """
    if not _stored(c, m, n)[0]:  # then as C^T = B^T A^T
        m, n, a, b, c = n, m, (b[0], b[1], b[3], b[2]), (a[0], a[1], a[3], a[2]), (c[0], c[1], c[3], c[2])
    in_rows_a, ld_a = _stored(a, m, k)
    in_rows_b, ld_b = _stored(b, k, n)
    # Fortran reads rows as columns, hence all three transposed once more.
    operands = (b[0], b[1], ld_b), (a[0], a[1], ld_a)
    _sgemm(
        sgemm,
        (not in_rows_b, not in_rows_a),
        (n, m, k),
        operands[0],
        operands[1],
        np.float32(beta),
        (c[0], c[1], _stored(c, m, n)[1]),
    )
