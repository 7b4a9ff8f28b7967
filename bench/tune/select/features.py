"""What a selector looks at: the inputs of a problem, and expressions of them that read alike in Python and in C.

A tree compares each expression with a threshold, so a logarithm would change no choice, and neither would a division by
the size of a cache: a selector is of one device. Without them the expressions are exact in both languages. A formula
takes the logarithms of a few of them.
"""

import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.operation import Problem


def inputs_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the names of an operation's inputs."""
    return kind.features.inputs or kind.sizes


def words_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the axes whose values are names: layout, direction, place; those that kernels declare are held fixed."""
    fixed = {"dtype", *kind.assumed}
    return tuple(
        name for name, axis in kind.axes().items() if typing.get_origin(axis) is typing.Literal and name not in fixed
    )


def others_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the axes that no expression holds, so that all problems of a model have one value of them."""
    held = {*inputs_of(kind), *kind.sizes, *words_of(kind), *kind.features.held}
    return tuple(name for name in kind.axes() if name not in held)


def expressions(kind: type[Problem], words: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the expressions of an operation; `direction == 2` is whether the word is the third of those listed."""
    known = kind.features.expressions or inputs_of(kind)
    return (*known, *(f"{name} == {i}" for name, values in words.items() for i in range(len(values))))


def slopes_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the expressions whose logarithms a formula has for an operation."""
    return kind.features.slopes or inputs_of(kind)


def numbers(problem: Problem, words: Mapping[str, Sequence[str]]) -> list[float]:
    """Return the inputs of a problem, and the number of each of its words; -1 for a word that is not listed."""
    found = [float(getattr(problem, name)) for name in inputs_of(type(problem))]
    for name, values in words.items():
        value = getattr(problem, name)
        found.append(float(values.index(value)) if value in values else -1.0)
    return found


def evaluated(names: Sequence[str], known: Sequence[str], rows: Array) -> Array:
    """Return the value of each expression, a column each, for rows of inputs in the order `names`.

    known: declared by an operation; no text of a file is ever evaluated.
    """
    scope: dict[str, Any] = {"__builtins__": {}, **dict(zip(names, rows.T, strict=True))}
    return np.column_stack([np.asarray(eval(text, scope), dtype=np.float64) for text in known])
