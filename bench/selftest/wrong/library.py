"""Functions that turn right results into wrong ones, and the trial that reports which wrong results are caught."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import NATIVE, Array, bits_dtype, numpy_dtype, split_dtype
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.selftest.finding import Finding, Tick

Inputs = dict[str, Array]
#: Returns the exact result of a problem, in the shape of the output, for its inputs.
Exact = Callable[[Any, Inputs], Array]
#: Changes an exact result in place before it is stored, or returns another result.
Spoil = Callable[[Array, Inputs, np.random.Generator], Array | None]

#: The name of each check of a verdict, by words that its reason contains.
CHECKS = {
    "rms error": "rms",
    "no product reaches it": "zeros",
    "checksum": "checksum",
    "sampled": "sample",
    "first and last": "edges",
}
ALL = slice(None)
#: The number of draws on which each wrong result is judged.
SEEDS = 20


class Wrong(NamedTuple):
    """A kind of wrong result. expected: the share of seeds on which a check must catch it; None if no check can."""

    name: str
    problem: str
    spoil: Spoil
    numerics: str = ""
    expected: float | None = 0.99


class Family(NamedTuple):
    """The wrong results of an operation, and the function that computes its right results.

    numerics: the arithmetic of the right results, if it differs from a kernel's default.
    """

    exact: Exact
    members: tuple[Wrong, ...]
    numerics: str = ""


def trial(families: tuple[Family, ...], tick: Tick, seeds: int = SEEDS) -> Iterator[Finding]:
    """Check every wrong result on every seed. Wrong results of one problem share its operands and its exact result."""
    for family in families:
        for name in dict.fromkeys(wrong.problem for wrong in family.members):
            members = [wrong for wrong in family.members if wrong.problem == name]
            seen: dict[Wrong, Counter[str]] = {wrong: Counter() for wrong in members}
            for seed in range(seeds):
                for wrong, caught_by in _judged(family, members, seed):
                    seen[wrong][caught_by] += 1
                tick()
            for wrong in members:
                yield _finding(wrong, seen[wrong], seeds)


def count(families: tuple[Family, ...], seeds: int = SEEDS) -> int:
    """Return the number of times that `trial` calls its `tick`."""
    return seeds * sum(len({wrong.problem for wrong in family.members}) for family in families)


def _judged(family: Family, members: list[Wrong], seed: int) -> Iterator[tuple[Wrong, str]]:
    """Yield each member and the check that catches it, or "". Raises RuntimeError if a right result is judged wrong."""
    problem = discover().problem(members[0].problem)
    draw = Draw(problem, seed)
    draw.redraw()
    inputs = draw.views("C")
    reference = problem.reference(inputs, np.random.default_rng([seed, 1]))
    right = family.exact(problem, inputs)
    for wrong in members:
        numerics = wrong.numerics or _native(problem)
        rng = np.random.default_rng([seed, 2])
        spoiled = right.copy()
        replaced = wrong.spoil(spoiled, inputs, rng)
        outputs = _stored(problem, spoiled if replaced is None else replaced)
        yield wrong, _check(problem.check(outputs, reference, numerics).reason)
    if reason := problem.check(_stored(problem, right), reference, family.numerics or _native(problem)).reason:
        raise RuntimeError(f"{problem.id}: the check rejects the exact result, rounded once, on seed {seed}: {reason}")


def _native(problem: Problem) -> str:
    """Return the numerics of a kernel that declares none."""
    if problem.flop == 0 or problem.op == "fma":
        return "exact"
    return NATIVE[split_dtype(problem.dtype)[0]]


def _stored(problem: Problem, values: Array) -> dict[str, Array]:
    """Return the outputs, rounded to their storage types, from the values of all outputs in order.

    NaN becomes the value of an unwritten element.
    """
    outputs, left = {}, values.reshape(-1)
    for out in (operand for operand in problem.operands() if operand.role != "in"):
        with np.errstate(invalid="ignore", over="ignore"):
            stored = cast(Array, left[: math.prod(out.shape)].astype(numpy_dtype(out.dtype)))
        outputs[out.name], left = stored.reshape(out.shape), left[math.prod(out.shape) :]
    return outputs


def _check(reason: str | None) -> str:
    return next((check for words, check in CHECKS.items() if words in reason), "elements") if reason else ""


def _finding(wrong: Wrong, seen: Counter[str], seeds: int) -> Finding:
    caught = seeds - seen.pop("", 0)
    by = ", ".join(f"{name} {times}" for name, times in seen.most_common())
    figure = f"{caught} of {seeds}" + (f" ({by})" if by else "")
    check = f"wrong: {wrong.name}; {wrong.problem}" + (f" as {wrong.numerics}" if wrong.numerics else "")
    if wrong.expected is None:
        return Finding(check, figure, "cannot be seen", None)
    return Finding(check, figure, f"{100 * wrong.expected:g} %", caught >= wrong.expected * seeds)


def float64(inputs: Inputs, *names: str) -> tuple[Array, ...]:
    """Return these inputs in float64."""
    return tuple(inputs[name].astype(np.float64) for name in names)


def nearest(bits: int, whole: Callable[[Array], Array] = np.round) -> Callable[[Array], Array]:
    """Return a function that rounds to the nearest number of `bits` bits."""

    def rounded(values: Array) -> Array:
        mantissa, exponent = np.frexp(values.astype(np.float64))
        numbers: Array = np.ldexp(whole(np.ldexp(mantissa, bits)), exponent - bits)
        return numbers

    return rounded


def truncated(bits: int) -> Callable[[Array], Array]:
    """Return a function that truncates numbers to `bits` bits, as tensor cores do with TF32."""
    return nearest(bits, np.trunc)


def flip_bit(dtype: str) -> Spoil:
    """Return a function that flips the last bit of one element, drawn at random, of a result of this storage type."""

    def spoil(values: Array, _inputs: Inputs, rng: "np.random.Generator") -> Array:
        stored = values.astype(numpy_dtype(dtype))
        stored.reshape(-1).view(bits_dtype(dtype))[int(rng.integers(stored.size))] ^= 1
        return stored

    return spoil


def swap(axis: int) -> Spoil:
    """Return a function that exchanges two slices along an axis, drawn at random."""

    def spoil(values: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
        i, j = rng.choice(values.shape[axis], 2, replace=False)
        moved = np.moveaxis(values, axis, 0)
        moved[[i, j]] = moved[[j, i]]

    return spoil


def repeat(axis: int) -> Spoil:
    """Return a function that overwrites a slice along an axis, drawn at random, with the slice before it."""

    def spoil(values: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
        moved, i = np.moveaxis(values, axis, 0), int(rng.integers(1, values.shape[axis]))
        moved[i] = moved[i - 1]

    return spoil


def flip_tile(size: int) -> Spoil:
    """Return a function that transposes a square tile, drawn at random, in place."""

    def spoil(values: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
        i, j = (size * int(rng.integers(n // size)) for n in values.shape)
        values[i : i + size, j : j + size] = values[i : i + size, j : j + size].T.copy()

    return spoil


def put(value: float, *where: int | slice | None) -> Spoil:
    """Return a function that overwrites elements with a value; where: None is an index drawn at random."""
    return _at(where, lambda _: np.array(value))


def add(value: float, *where: int | slice | None) -> Spoil:
    """Return a function that adds a value to elements; where: None is an index drawn at random."""
    return _at(where, lambda values: values + value)


def scale(factor: float, *where: int | slice | None) -> Spoil:
    """Return a function that multiplies elements by a factor; where: None is an index drawn at random."""
    return _at(where, lambda values: values * factor)


def _at(where: tuple[int | slice | None, ...], change: Callable[[Array], Array]) -> Spoil:
    def spoil(values: Array, _inputs: Inputs, rng: "np.random.Generator") -> None:
        place = tuple(int(rng.integers(n)) if at is None else at for n, at in zip(values.shape, where, strict=False))
        values[place] = change(values[place])

    return spoil
