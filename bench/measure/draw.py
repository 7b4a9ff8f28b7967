"""Draw the values of operands from a seed and random bits, so that all draws differ, and view them as arrays."""

import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelmark.bench.plan.dtypes import DTYPES, Array, bits_dtype, numpy_dtype
from kernelmark.bench.plan.operation import UNIFORM, Operand, Problem
from kernelmark.bench.plan.verdict import equal

#: The number of elements of each input that change before every stretch of calls. It is small, since each change brings
#: a line into the cache, or costs a copy to the GPU.
SCATTERED = 8
#: The number of changes that are drawn at once.
AHEAD = 64
#: One element in SPECIAL is special, if the operand has special values: a zero of either sign or an integer up to
#: INTEGERS, with probability 1/4 each, otherwise a magnitude from SMALLEST to the operand's largest.
SPECIAL, SMALLEST, INTEGERS = 256, 1e-3, 16
CHUNK = 2**18
#: Every THIRD-th draw has special values from another range (`Operand.others`). Of the judged draws, it is the last in
#: a timed job, and the second in mode `verify`.
THIRD = 3
#: The largest integer of the distribution `ints`, whose values every storage type represents exactly.
LARGEST_INT = 4

#: New values of some elements, by operand: distinct indices in its buffer, and the values.
Change = Mapping[str, tuple[Array, Array]]


def logical(flat: Any, operand: Operand, order: str = "C") -> Any:
    """Return a view of an operand's flat buffer in its shape; with order `F` each matrix is column-major."""
    shape = operand.shape
    if order == "F":
        return flat.reshape(*shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)
    return flat.reshape(*shape[:-1], operand.ld)[..., : shape[-1]]


def index_of(places: Array, operand: Operand, order: str) -> tuple[Array, ...]:
    """Convert flat indices into an operand's buffer to indices into the view that `logical` returns."""
    if order == "F":
        *batch, column, row = np.unravel_index(places, (*operand.shape[:-2], operand.shape[-1], operand.shape[-2]))
        return (*batch, row, column)
    return np.unravel_index(places, (*operand.shape[:-1], operand.ld))


def poison(flat: Any, dtype: str) -> None:
    """Fill a buffer with the value that marks unwritten elements: a NaN, or the smallest integer."""
    flat.view(bits_dtype(dtype)).fill(DTYPES[dtype].poison)


def padding(flat: Array, operand: Operand) -> list[tuple[Array, int]]:
    """Return views that together cover the padding between an operand's rows, each with the bits that it must hold.

    NaN alternates with the largest number, along rows and columns. A kernel that reads padding gets a wrong result even
    if it drops NaN, and a kernel that computes on padding changes the numbers, although NaN stays NaN.
    """
    if not operand.pad:
        return []
    kind = DTYPES[operand.dtype]
    gaps = flat.view(bits_dtype(operand.dtype)).reshape(-1, operand.ld)[:, operand.shape[-1] :]
    return [(gaps[i::2, j::2], kind.poison if i == j else kind.largest) for i in (0, 1) for j in (0, 1)]


class Draw:
    """The values of the inputs, on the host. Every draw replaces them; padding stays as `padding` describes it."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._key: tuple[int, ...] = (seed, zlib.crc32(problem.id.encode()))
        self._redraws = 0
        #: The generator of the present draw, which `Problem.reference` and `Problem.checksums` use, too.
        self.rng = self._changes = self._generator(0)
        self._specs = [operand for operand in problem.operands() if operand.role != "out"]
        self._scatter: dict[str, Iterator[tuple[Array, Array]]] = {}
        #: Replaced whenever values change, so that holders of copies can detect a change.
        self.state = object()
        self.flat: dict[str, Array] = {}
        for operand in self._specs:
            self.flat[operand.name] = np.empty(operand.elements, numpy_dtype(operand.dtype))
            poison(self.flat[operand.name], operand.dtype)
            for gap, bits in padding(self.flat[operand.name], operand):
                gap.fill(bits)

    def _generator(self, number: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64([*self._key, number]))

    def mix(self, entropy: int) -> None:
        """Mix these bits into all later draws, so that code that ran earlier cannot predict the values."""
        self._key = (*self._key, entropy)
        self._changes = self._generator(0)
        self._scatter.clear()

    def redraw(self, distribution: str = UNIFORM) -> None:
        """Draw new values in place. The n-th draw is the same however often `change` was called before.

        distribution: the distribution of values in timed calls; a draw that is not uniform does not count towards n.
        """
        self.state = object()
        self._redraws += distribution == UNIFORM
        self.rng = self._generator(self._redraws)
        for operand in self._specs:
            flat = self.flat[operand.name]
            specials = operand.others if operand.others and self._redraws % THIRD == 0 else operand.specials
            rows, step = flat, CHUNK
            if operand.pad:
                rows, step = flat.reshape(-1, operand.ld)[:, : operand.shape[-1]], max(1, CHUNK // operand.ld)
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                part[...] = drawn(self.rng, part.shape, operand, specials, distribution)

    def change(self) -> Change:
        """Draw new values for a few elements of each input or inout, for one set of operands.

        These values are always uniform. If they were zeros again, for instance, a result kept from an earlier call
        would still be right.
        """
        return {operand.name: self.scattered(operand) for operand in self._specs}

    @contextmanager
    def holding(self, change: Change) -> Iterator[None]:
        """Apply this change to the drawn values while the context lasts."""
        previous = {name: (places, self.flat[name][places]) for name, (places, _) in change.items()}
        self._put(change)
        try:
            yield
        finally:
            self._put(previous)

    def _put(self, change: Change) -> None:
        self.state = object()
        for name, (places, values) in change.items():
            self.flat[name][places] = values

    def scattered(self, operand: Operand) -> tuple[Array, Array]:
        """Return freshly drawn places in an operand's buffer that are not padding, and values for them."""
        if operand.name not in self._scatter:
            self._scatter[operand.name] = _scattered(self._changes, operand)
        return next(self._scatter[operand.name])

    def is_held(self, array: Array, name: str) -> bool:
        """Return whether an array on the host has exactly the bits that were drawn for an operand."""
        drawn = self.flat[name]
        bits = f"u{drawn.itemsize}"
        return equal(array.view(bits), drawn.view(bits))

    def views(self, order: str) -> dict[str, Array]:
        """Return the inputs as arrays in their shapes."""
        return {operand.name: logical(self.flat[operand.name], operand, order) for operand in self._specs}


def drawn(
    rng: "np.random.Generator",
    shape: tuple[int, ...],
    operand: Operand,
    specials: float | None = None,
    distribution: str = UNIFORM,
) -> Array:
    """Draw uniform floats in [-1, 1] that use all bits of their type, with some special values, or random integers.

    specials: the largest special value; by default the operand's. Other distributions have no special values: `normal`
    has variance 1, `zeros` is 0 everywhere, and `ints` has integers from -LARGEST_INT to LARGEST_INT.
    """
    kind, count = numpy_dtype(operand.dtype), math.prod(shape)
    if distribution == "normal":
        return rng.standard_normal(shape, "f8" if operand.dtype == "f64" else "f4").astype(kind, copy=False)
    if distribution == "zeros":
        return np.zeros(shape, kind)
    if distribution == "ints":
        return rng.integers(-LARGEST_INT, LARGEST_INT, shape, "i1", endpoint=True).astype(kind)
    size = kind.itemsize if kind.kind == "i" else max(4, kind.itemsize)
    bits = np.asarray(rng.bit_generator.random_raw(-(-count * size // 8)))
    integers: Array = np.ndarray(count, f"i{size}", bits)
    if kind.kind == "i":
        return integers.reshape(shape)
    values: Array = integers.astype(f"f{size}")
    values *= 2.0 ** (1 - 8 * size)
    largest = operand.specials if specials is None else specials
    if largest:
        special = rng.binomial(count, 1 / SPECIAL)
        values[rng.integers(count, size=special)] = _special(rng, special, largest)
    return values.astype(kind, copy=False).reshape(shape)


def _special(rng: "np.random.Generator", count: int, largest: float) -> Array:
    magnitudes = np.exp(rng.uniform(math.log(SMALLEST), math.log(largest), count))
    integers = rng.integers(1, min(INTEGERS, int(largest)), count, endpoint=True)
    values: Array = np.choose(rng.integers(4, size=count), (np.zeros(count), integers, magnitudes, magnitudes))
    return np.copysign(values, rng.uniform(-1, 1, count))


def _scattered(rng: "np.random.Generator", operand: Operand) -> Iterator[tuple[Array, Array]]:
    """Yield arrays of indices and values. Many are drawn at once, since one draw takes longer than a short call.

    This is not a method of Draw, since a suspended generator with a reference to its Draw would form a reference cycle,
    and keep the values in memory until Python collects cycles.
    """
    elements = math.prod(operand.shape)
    count = min(SCATTERED, elements)
    ends = np.arange(count + 1) * elements // count  # one index in each part of the buffer, so that all differ
    while True:
        places = ends[:-1] + (rng.random((AHEAD, count)) * np.diff(ends)).astype(np.intp)
        if operand.pad:
            places += places // operand.shape[-1] * operand.pad
        yield from zip(places, drawn(rng, places.shape, operand), strict=True)
