"""Transforms of a tile's rows and columns, UNIT tiles at a time, one per vector lane, compiled for each length.

Numbers are stored as UNIT real parts, then UNIT imaginary parts. Compiled functions are called by address, so that the
loops over tiles (`_lanes`) are not compiled again for another length.
"""

# mypy: allow-untyped-calls, allow-untyped-defs

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._numba import c_function, data, everywhere, past_the_caches
from kernelmark.kernels._tile import INTEGER, LANES, VECTOR, number
from kernelmark.kernels.conv.fft._dft import Vectors, half_spectrum, signal, spectrum
from kernelmark.kernels.transpose._blocks import transposed, width

#: Tiles at a time: the elements of a cache line, which is one vector or several.
UNIT = width(4)
_POINTER = VECTOR.as_pointer()


class _Place:
    """Numbers at an address. stride: bytes from one number to the next. part: bytes from real to imaginary part."""

    def __init__(self, builder: Any, begin: Any, stride: Any, part: Any) -> None:
        self._builder, self._begin, self._stride, self._part = builder, begin, stride, part

    def _pointer(self, at: int, part: int) -> Any:
        builder = self._builder
        address = builder.add(self._begin, builder.mul(self._stride, number(at)))
        return builder.inttoptr(builder.add(address, self._part) if part else address, _POINTER)

    def load(self, at: int, parts: int = 2) -> Any:
        return tuple(self._builder.load(self._pointer(at, i), align=4) if i < parts else None for i in range(2))

    def store(self, at: int, *values: Any, past: bool = False) -> None:
        for part, value in enumerate(values):
            vector = ir.Constant(VECTOR, None) if value is None else value
            stored = self._builder.store(vector, self._pointer(at, part), align=4)
            if past:
                past_the_caches(self._builder, stored, LINE_BYTES)


def _codelet(generated: Callable[..., None], count: int) -> Any:
    """Return an intrinsic f(n, numbers) that runs the code for length n, a constant, on each vector of UNIT tiles."""

    def typed(_context: Any, n: Any, numbers: Any) -> Any:
        if not isinstance(n, types.IntegerLiteral):
            return None

        def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            values = cgutils.unpack_tuple(builder, args[1], count)
            with cgutils.for_range_slice(builder, number(0), number(4 * UNIT), number(4 * LANES), INTEGER) as (at, _):
                generated(builder, n.literal_value, at, values)
            return context.get_dummy_value()

        return types.void(n, numbers), generate

    return cast(Any, intrinsic(prefer_literal=True)(typed))


def _generate_column(builder: Any, n: int, lane: Any, values: Any, past: bool = False) -> None:
    to, to_step, to_part, off, step, part, sign = values
    target = _Place(builder, builder.add(to, lane), to_step, to_part)
    source = _Place(builder, builder.add(off, lane), step, part)
    factor = everywhere(builder, builder.sitofp(sign, ir.FloatType()), VECTOR)
    numbers = [lambda at=at: source.load(at) for at in range(n)]
    for at, (real, imaginary) in spectrum(Vectors(builder, VECTOR), numbers):
        target.store(at, real, builder.fmul(imaginary, factor), past=past)


def _generate_row(builder: Any, n: int, lane: Any, values: Any) -> None:
    unit = number(4 * UNIT)
    target = _Place(builder, builder.add(values[0], lane), number(8 * UNIT), unit)
    source = _Place(builder, builder.add(values[1], lane), unit, unit)
    numbers = [lambda at=at: source.load(at, 1) for at in range(n)]
    for at, value in half_spectrum(Vectors(builder, VECTOR), numbers):
        target.store(at, *value)


def _generate_row_back(builder: Any, n: int, lane: Any, values: Any) -> None:
    unit = number(4 * UNIT)
    target = _Place(builder, builder.add(values[0], lane), unit, unit)
    source = _Place(builder, builder.add(values[1], lane), number(8 * UNIT), unit)
    halves: dict[int, Any] = {}

    def half(at: int) -> Any:
        if at not in halves:
            halves[at] = source.load(at)
        return halves[at]

    for at, value in signal(Vectors(builder, VECTOR), n, half):
        target.store(at, value)


_column, _row, _row_back = _codelet(_generate_column, 7), _codelet(_generate_row, 2), _codelet(_generate_row_back, 2)
_column_past = _codelet(partial(_generate_column, past=True), 7)
#: Whether stores can bypass the caches, which needs vectors as long as a cache line.
CAN_PASS = LANES == UNIT


@lru_cache
def column(n: int, past: bool = False) -> int:
    """Return the address of f(to, to_step, to_part, off, step, part, sign), which transforms n complex numbers.

    off: the source. sign: the factor of imaginary parts. past: use streaming stores, to whole cache lines.
    """

    def run(to, to_step, to_part, off, step, part, sign):
        _column(n, (to, to_step, to_part, off, step, part, sign))

    def run_past(to, to_step, to_part, off, step, part, sign):
        _column_past(n, (to, to_step, to_part, off, step, part, sign))

    return _address(run_past if past else run, 7)


@lru_cache
def row(n: int) -> int:
    """Return the address of f(to, off), which transforms n real numbers to n // 2 + 1 complex ones, all contiguous."""

    def run(to, off):
        _row(n, (to, off))

    return _address(run, 2)


@lru_cache
def row_back(n: int) -> int:
    """Return the address of f(to, off), which transforms n // 2 + 1 complex numbers to n real ones, scaled by n."""

    def run(to, off):
        _row_back(n, (to, off))

    return _address(run, 2)


def _address(run: Callable[..., None], count: int) -> int:
    return int(c_function(types.void(*(types.int64,) * count))(run).address)


def _call(_context: Any, address: Any, numbers: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[1], len(numbers))
        kind = ir.FunctionType(ir.VoidType(), [INTEGER] * len(values))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(types.int64, types.UniTuple(types.int64, len(numbers))), generate


#: `call(address, numbers)`: call the compiled function at an address.
call = cast(Any, intrinsic(_call))


def _turn(_context: Any, to: Any, step: Any, addresses: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), UNIT)
        first, skipped = data(context, builder, addresses, args[2]), builder.mul(args[3], number(4))
        rows = []
        for i in range(UNIT):
            address = builder.add(builder.load(builder.gep(first, [number(i)])), skipped)
            rows.append(builder.load(builder.inttoptr(address, vector.as_pointer()), align=4))
        for i, value in enumerate(transposed(builder, rows)):
            place = builder.add(args[0], builder.mul(args[1], number(4 * i)))
            builder.store(value, builder.inttoptr(place, vector.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, addresses, types.int64), generate


#: `turned(to, step, addresses, at)`: to[j step + i] is element at + j of the row at addresses[i], for i, j < UNIT.
turned = cast(Any, intrinsic(_turn))
