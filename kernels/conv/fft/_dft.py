"""Discrete Fourier transforms of short lengths as straight-line code on vectors, for Numba intrinsics.

A number is a pair of LLVM values, its real and its imaginary part; None stands for 0. A transform is a sequence of
(index, number) in the order of computation, so that numbers need not be held until the end. The forward transform
decimates in time; the backward one, to real numbers, reverses it.
"""

# mypy: allow-untyped-calls

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from kernelmark.kernels._numba import llvm

Number = tuple[Any, Any]


class Vectors:
    """Arithmetic on LLVM vectors that omits operations with 0."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self._builder, self._kind = builder, kind

    def add(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else self._builder.fadd(a, b)

    def minus(self, a: Any) -> Any:
        return None if a is None else self._builder.fneg(a)

    def sub(self, a: Any, b: Any) -> Any:
        return self.minus(b) if a is None else a if b is None else self._builder.fsub(a, b)

    def times(self, factor: float, a: Any, plus: Any = None) -> Any:
        """Return factor a + plus, rounded once."""
        if a is None:
            return plus
        constant = ir.Constant(self._kind, [factor] * self._kind.count)
        return self._builder.fmul(a, constant) if plus is None else llvm(self._builder, "fma", a, constant, plus)


def spectrum(v: Vectors, numbers: Sequence[Callable[[], Number]]) -> Iterator[tuple[int, Number]]:
    """Yield the transform of complex numbers, each of which is requested when it is needed."""
    n = len(numbers)
    if n == 1:
        yield 0, numbers[0]()
        return
    p = _factor(n)
    parts = [dict(spectrum(v, numbers[i::p])) for i in range(p)]
    for k in range(n // p):
        for j, number in enumerate(_combined(v, [part[k] for part in parts], k, n)):
            yield k + j * (n // p), number


def half_spectrum(v: Vectors, numbers: Sequence[Callable[[], Number]]) -> Iterator[tuple[int, Number]]:
    """Yield the first n // 2 + 1 numbers of the transform of real numbers; the others are conjugates."""
    n = len(numbers)
    if n == 1:
        yield 0, numbers[0]()
        return
    p = _factor(n)
    m, indices = n // p, set()
    parts = [dict(half_spectrum(v, numbers[i::p])) for i in range(p)]
    for k in range(m // 2 + 1):
        for j, number in enumerate(_combined(v, [part[k] for part in parts], k, n)):
            at = k + j * m
            at, number = (at, number) if 2 * at <= n else (n - at, _conjugate(v, number))
            if at not in indices:
                indices.add(at)
                yield at, number


def signal(v: Vectors, n: int, half: Callable[[int], Number]) -> Iterator[tuple[int, Any]]:
    """Yield the n real numbers with this half spectrum, scaled by n; half(0) and half(n / 2) are taken as real."""
    if n == 1:
        yield 0, half(0)[0]
        return

    def whole(at: int) -> Number:
        if 2 * at > n:
            return _conjugate(v, half(n - at))
        return (half(at)[0], None) if 2 * at in (0, n) else half(at)

    p = _factor(n)
    m = n // p
    parts: list[list[Number]] = [[] for _ in range(p)]
    for k in range(m // 2 + 1):
        numbers = _turned_back(v, [whole(k + j * m) for j in range(p)])
        for i, number in enumerate(numbers):
            parts[i].append(_turned(v, number, -i * k, n))
    for i, part in enumerate(parts):
        for j, number in signal(v, m, part.__getitem__):
            yield i + j * p, number


def _factor(n: int) -> int:
    return next(p for p in range(2, n + 1) if n % p == 0)


def _conjugate(v: Vectors, number: Number) -> Number:
    return number[0], v.minus(number[1])


def _combined(v: Vectors, parts: list[Number], k: int, n: int) -> list[Number]:
    """Return results k, k + n / p, ... of a length-n DFT; parts[i] is result k of the DFT of numbers i, i + p, ..."""
    if len(parts) > 2 or 4 * k % n == 0:
        return _small(v, [_turned(v, number, i * k, n) for i, number in enumerate(parts)])
    (a, b), (c, d) = parts
    cos, sin = math.cos(2 * math.pi * k / n), math.sin(2 * math.pi * k / n)
    first = v.times(cos, c, v.times(sin, d, a)), v.times(cos, d, v.times(-sin, c, b))
    # The second is 2 (a, b) - first: six operations instead of eight.
    return [first, (v.times(2, a, v.minus(first[0])), v.sub(v.times(2, b), first[1]))]


def _turned(v: Vectors, number: Number, k: int, n: int) -> Number:
    """Return exp(-2 pi i k / n) times the number."""
    a, b = number
    quarters, rest = divmod(4 * k, n)
    if rest == 0:
        return [(a, b), (b, v.minus(a)), (v.minus(a), v.minus(b)), (v.minus(b), a)][quarters % 4]
    cos, sin = math.cos(2 * math.pi * k / n), math.sin(2 * math.pi * k / n)
    return v.times(cos, a, v.times(sin, b)), v.times(cos, b, v.times(-sin, a))


def _small(v: Vectors, numbers: list[Number]) -> list[Number]:
    """Return the DFT of p numbers, with p prime, from the sums and differences of numbers j and p - j."""
    p, first = len(numbers), numbers[0]
    if p == 2:
        pairs = list(zip(*numbers, strict=True))
        return [(v.add(*pairs[0]), v.add(*pairs[1])), (v.sub(*pairs[0]), v.sub(*pairs[1]))]
    pairs = [(numbers[j], numbers[p - j]) for j in range(1, p // 2 + 1)]
    sums = [(v.add(a[0], b[0]), v.add(a[1], b[1])) for a, b in pairs]
    differences = [(v.sub(a[0], b[0]), v.sub(a[1], b[1])) for a, b in pairs]
    outputs = {0: first}
    for total in sums:
        outputs[0] = v.add(outputs[0][0], total[0]), v.add(outputs[0][1], total[1])
    for k in range(1, p // 2 + 1):
        (a, b), (c, d) = first, (None, None)
        for j, (total, difference) in enumerate(zip(sums, differences, strict=True), 1):
            angle = 2 * math.pi * j * k / p
            a, b = v.times(math.cos(angle), total[0], a), v.times(math.cos(angle), total[1], b)
            c, d = v.times(math.sin(angle), difference[0], c), v.times(math.sin(angle), difference[1], d)
        outputs[k], outputs[p - k] = (v.add(a, d), v.sub(b, c)), (v.sub(a, d), v.add(b, c))
    return [outputs[k] for k in range(p)]


def _turned_back(v: Vectors, numbers: list[Number]) -> list[Number]:
    """Return the inverse DFT, not divided by the count: the results of `_small`, all but the first in reverse order."""
    outputs = _small(v, numbers)
    return [outputs[0], *outputs[:0:-1]]
