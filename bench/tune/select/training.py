"""Training data of a selector: features, families, and the cost of each kernel.

A selector uses the inputs of a problem, and expressions of them in the common syntax of Python and C. A tree compares
each expression with a threshold, so a logarithm would change no choice, and neither would a division by the size of a
cache, since a selector is for one device. Without these, expressions are exact in both languages. A formula uses the
logarithms of a few expressions.
"""

import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.suites import suite_names
from kernelmark.bench.tune.select.rows import Times
from kernelmark.bench.tune.select.tree import costs_of


def inputs_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the names of an operation's inputs."""
    return kind.features.inputs or kind.sizes


def words_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the axes whose values are names, such as layout, direction or place, except those that kernels declare.

    The distribution of operands is left out too, since a caller does not know it.
    """
    fixed = {"dtype", "distribution", *kind.assumed}
    return tuple(
        name for name, axis in kind.axes().items() if typing.get_origin(axis) is typing.Literal and name not in fixed
    )


def others_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the axes that no expression contains, whose values all problems of a model must share."""
    contained = {*inputs_of(kind), *kind.sizes, *words_of(kind), *kind.features.held}
    return tuple(name for name in kind.axes() if name not in contained)


def expressions(kind: type[Problem], words: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the expressions of an operation; in `direction == 2`, 2 is the index of the direction in `words`."""
    known = kind.features.expressions or inputs_of(kind)
    return (*known, *(f"{name} == {i}" for name, values in words.items() for i in range(len(values))))


def slopes_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the expressions whose logarithms a formula uses for an operation."""
    return kind.features.slopes or inputs_of(kind)


def numbers(problem: Problem, words: Mapping[str, Sequence[str]]) -> list[float]:
    """Return the inputs of a problem, and the index of each of its words, or -1 for an unlisted word."""
    found = [float(getattr(problem, name)) for name in inputs_of(type(problem))]
    for name, values in words.items():
        value = getattr(problem, name)
        found.append(float(values.index(value)) if value in values else -1.0)
    return found


def evaluated(names: Sequence[str], known: Sequence[str], rows: Array) -> Array:
    """Return a column with the values of each expression, for rows of inputs in the order `names`.

    known: the expressions that operations declare; no other text is evaluated.
    """
    scope: dict[str, Any] = {"__builtins__": {}, **dict(zip(names, rows.T, strict=True))}
    return np.column_stack([np.asarray(eval(text, scope), dtype=np.float64) for text in known])


#: With fewer problems or families than these, shares on held-out families mean little.
LEAST_PROBLEMS, LEAST_FAMILIES = 60, 20


class FeatureSpace(NamedTuple):
    """The features of the problems of one operation.

    inputs: the names of its numbers; words: the values of each axis with at least two names; fixed: the values that all
    problems share; texts: the expressions that a tree can compare; slopes: a formula's expressions.
    """

    inputs: tuple[str, ...]
    words: dict[str, list[str]]
    fixed: dict[str, Any]
    texts: tuple[str, ...]
    slopes: tuple[str, ...]

    def numbers(self, problems: Sequence[Problem]) -> Array:
        """Return an array (problems x columns): the inputs, then the index of the word on each axis."""
        return np.array([numbers(problem, self.words) for problem in problems])

    def features(self, known: Array) -> Array:
        return evaluated((*self.inputs, *self.words), self.texts, known)

    def apart(self, one: Array, others: Array) -> Array:
        """Return the distance of each problem in `others` from `one`, in octaves; infinite if a word differs."""
        count = len(self.inputs)
        octaves = np.log2(others[:, :count]) - np.log2(one[:count])
        is_like = (others[:, count:] == one[count:]).all(axis=1)
        distances: Array = np.where(is_like, np.hypot.reduce(octaves, axis=1), np.inf)

        return distances


def space_of(problems: Sequence[Problem]) -> FeatureSpace:
    """Return the feature space of problems of one operation. Raises UsageError if any other axis differs."""
    kind = type(problems[0])
    fixed = {name: getattr(problems[0], name) for name in others_of(kind)}
    for name, value in fixed.items():
        if other := next((p for p in problems if getattr(p, name) != value), None):
            found = f"{value} and {getattr(other, name)} ({other.id})"
            raise UsageError(
                f"{name}: is {found}, expected one value for all problems, since no selector uses it; "
                "choose problems with --problem"
            )
    words = {name: sorted({getattr(p, name) for p in problems}) for name in words_of(kind)}
    fixed |= {name: values[0] for name, values in words.items() if len(values) == 1}
    words = {name: values for name, values in words.items() if len(values) > 1}
    return FeatureSpace(inputs_of(kind), words, fixed, expressions(kind, words), slopes_of(kind))


class Data(NamedTuple):
    """Times with the features of their problems.

    known: (problems x inputs); features: (problems x expressions); costs: (problems x kernels); families: of each
    problem.
    """

    times: Times
    space: FeatureSpace
    known: Array
    features: Array
    costs: Array
    families: Array


def data_of(times: Times, space: FeatureSpace) -> Data:
    """Return the data of a table of times, in a feature space that contains all its problems."""
    known = space.numbers(times.problems)
    families = families_of(times.problems)
    return Data(times, space, known, space.features(known), costs_of(times.means), families)


def families_of(problems: Sequence[Problem]) -> Array:
    """Return the number of each problem's family, whose sizes round to the same powers of two.

    All layouts, directions and places of a shape are in one family, so that they are held out together.
    """
    names: dict[tuple[int, ...], int] = {}
    families = []
    for problem in problems:
        family = tuple(round(math.log2(getattr(problem, name))) for name in problem.sizes)
        families.append(names.setdefault(family, len(names)))
    return np.array(families)


def require_enough(where: str, data: Data) -> None:
    """Raise UsageError for too few problems or families, and if no kernel takes every problem."""
    problems, families = len(data.families), len(set(data.families.tolist()))
    for what, found, least in (
        ("problems", problems, LEAST_PROBLEMS),
        ("families of shapes", families, LEAST_FAMILIES),
    ):
        if found < least:
            op = data.times.setting.op
            suite = f"`kernelmark run train-{op}`" if f"train-{op}" in suite_names() else "a larger suite"
            raise UsageError(f"{where}: has {found} {what}, expected at least {least} to learn from; {suite} has more")
    if not everywhere(data.times.means).any():
        raise UsageError(
            f"{where}: no kernel has a time on each of its {problems} problems, expected one to fall back on; "
            "--problem chooses problems that one takes"
        )
    if len(data.times.kernels) < 2:
        raise UsageError(f"{where}: has times of only {data.times.kernels[0]}; a choice needs two kernels")


def everywhere(means: Array) -> Array:
    """Return for each kernel whether it has a time on every problem."""
    complete: Array = np.asarray(~np.isnan(means).any(axis=0))
    return complete


def single(means: Array, costs: Array) -> Array:
    """Return the kernels sorted by cost over all problems; kernels that take every problem come first."""
    mean: Array = costs.mean(axis=0)
    return np.lexsort((mean, ~everywhere(means)))
