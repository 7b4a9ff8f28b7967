"""A [[sweep]] table of a suite: its problems, and the checks when it is read."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError, unknown
from kernelmark.bench.plan.operation import SWEEP_KEYS, Problem
from kernelmark.bench.plan.registry import Registry

#: Sweeps of at most this many problems are expanded when they are read, so that an invalid one is found before a run.
CHECKED_AT_ONCE = 1000
#: The maximum number of problems in a sweep; planning this many takes gigabytes, and measuring them a month.
MOST_PROBLEMS = 10_000_000
#: The largest integer that the store can hold.
_LARGEST = 2**63 - 1
#: The parts of a network. A part's seconds per batch are the sum of time x count over its layers.
PARTS = ("forward", "backward")


class Entry(msgspec.Struct, frozen=True):
    """A problem of a suite, and the kernels to run on it.

    count: how often the problem occurs in a network. part: `forward` or `backward` for a network's layers. network: the
    network's name, if a suite has several. kernels: globs, as in `--kernels`. max_time: the sweep's seconds per case.
    """

    problem: Problem
    count: int = 1
    kernels: tuple[str, ...] = ()
    part: str = ""
    network: str = ""
    max_time: float | None = None


class Sweep(msgspec.Struct, frozen=True):
    """A [[sweep]] table: values for every axis; axes that vary together are given as rows of values ("tied").

    along: axes along which reports look for a change of the fastest kernel: those with several numbers, and the tied
    axis that the suite names as `along`. together: the axes in which problems of a comparison group differ; these
    problems are measured in turn. max_time: seconds per case, instead of the suite's.
    """

    problem_class: type[Problem]
    where: str
    axes: Mapping[str, Sequence[Any]]
    tied: tuple[str, ...] = ()
    points: Sequence[Sequence[Any]] = ((),)
    counts: Sequence[int] | int = 1
    kernels: tuple[str, ...] = ()
    part: str = ""
    network: str = ""
    along: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    max_time: float | None = None

    @property
    def size(self) -> int:
        """Return the number of problems without creating any."""
        return math.prod(map(len, self.axes.values())) * len(self.points)

    def entries(self) -> Iterator[Entry]:
        """Yield the problems, group by group. Raises UsageError."""
        for group in self.groups():
            yield from group

    def groups(self) -> Iterator[list[Entry]]:
        """Yield the comparison groups in the order of the file, the last axis varying fastest.

        Without variants, a group is one problem. Raises UsageError for an invalid problem.
        """
        within, across = self._axes(together=True), self._axes(together=False)
        for index, point in enumerate(self.points):
            count = self.counts if isinstance(self.counts, int) else self.counts[index]
            tied = dict(zip(self.tied, point, strict=True))
            for fixed in _product(across, tied):
                problems = (self.problem_class.make(values, self.where) for values in _product(within, fixed))
                settings = count, self.kernels, self.part, self.network, self.max_time
                yield [Entry(problem, *settings) for problem in problems]

    def _axes(self, together: bool) -> list[tuple[str, Sequence[Any]]]:
        return [(axis, values) for axis, values in self.axes.items() if (axis in self.together) == together]


def _product(axes: list[tuple[str, Sequence[Any]]], values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield combinations as itertools.product does, but without copying axes, which may be ranges of millions."""
    if not axes:
        yield values
        return
    name, candidates = axes[0]
    for value in candidates:
        yield from _product(axes[1:], {**values, name: value})


def read_sweep(table: Any, registry: Registry, where: str) -> Sweep:
    """Read and check a table of a suite file. where: its name in complaints. Raises UsageError."""
    expect(isinstance(table, dict), f"{where}: is {table!r}, expected a table")
    expect("op" in table, f"{where}: op is missing; expected one of {', '.join(sorted(registry.operations))}")
    problem_class = registry.problem_class(str(table["op"]), f"{where}, key 'op'")
    known_keys(table, {*SWEEP_KEYS, *problem_class.axes()}, where)
    swept, tied, points = _axes(table, problem_class, where)

    def take(key: str, default: Any, expected: str, holds: Callable[[Any], bool]) -> Any:
        value = table.get(key, default)
        expect(holds(value), f"{where}, key '{key}': is {value!r}, expected {expected}")
        return value

    kernels = take("kernels", [], "a list of kernel ids or globs", lambda globs: _texts(_listed(globs)))
    counts = take("count", 1, f"integers from 1 to {_LARGEST}", _are_counts)
    fits = not isinstance(counts, list) or len(counts) == len(points)
    one_each = f"one, or one for each of {len(points)} points"
    expect(fits, f"{where}, key 'count': has {len(_listed(counts))} values, expected {one_each}")
    ties = f"one of the axes of points: {', '.join(tied) or 'none'}"
    along = take("along", None, ties, lambda axis: axis is None or axis in tied)
    several = (axis for axis, values in swept.items() if len(values) > 1 and isinstance(values[0], int | float))
    # Variants differ in axes with named values (layout, dtype), never in sizes, whose times cannot be compared.
    named = [axis for axis, values in swept.items() if isinstance(values[0], str)]
    names = f"a list of axes whose values are names, each once; here: {', '.join(named) or 'none'}"
    sweep = Sweep(
        problem_class,
        where,
        swept,
        tied,
        points,
        counts,
        tuple(_listed(kernels)),
        take("part", "", f"one of {', '.join(PARTS)}", lambda part: part in ("", *PARTS)),
        take("network", "", "a string", lambda network: isinstance(network, str)),
        (*several, *([along] if along else [])),
        tuple(take("together", [], names, lambda axes: _each_once(axes) and set(axes) <= set(named))),
        read_max_time(table, where),
    )
    # Valid values of axes may be invalid in combination. Large sweeps are checked when they are run.
    expect(sweep.size <= MOST_PROBLEMS, f"{where}: has {sweep.size:,} problems, expected at most {MOST_PROBLEMS:,}")
    if sweep.size <= CHECKED_AT_ONCE:
        for _ in sweep.entries():
            pass
    return sweep


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _each_once(value: Any) -> bool:
    return _texts(value) and len(set(value)) == len(value)


def _are_counts(value: Any) -> bool:
    return all(isinstance(c, int) and not isinstance(c, bool) and 0 < c <= _LARGEST for c in _listed(value))


def read_max_time(table: Mapping[str, Any], where: str) -> float | None:
    """Return the time limit of a suite or a sweep, in seconds per case, or None. Raises UsageError."""
    seconds = table.get("max_time")
    if seconds is not None:
        right = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= sys.float_info.max
        expect(right, f"{where}: max_time is {seconds!r}, expected a finite number of seconds above 0")
    return seconds


def _axes(
    table: Mapping[str, Any], problem_class: type[Problem], where: str
) -> tuple[dict[str, Sequence[Any]], tuple[str, ...], Sequence[Sequence[Any]]]:
    """Return untied axes with their values, tied axes, and rows of tied values. Raises UsageError if one is missing."""
    swept = {key: _values(value, f"{where}, key '{key}'") for key, value in table.items() if key not in SWEEP_KEYS}
    for axis, values in swept.items():
        _check(problem_class, axis, values, where)
    tied, points = _points(table, problem_class, where)
    required = problem_class.required()
    missing = [axis for axis in required if axis not in swept and axis not in tied]
    expect(not missing, f"{where}: {', '.join(missing)} is missing; {problem_class.op} needs {', '.join(required)}")
    twice = [axis for axis in tied if axis in swept]
    expect(not twice, f"{where}, key '{', '.join(twice)}': is also in points; give it once")
    return swept, tied, points


def _points(
    table: Mapping[str, Any], problem_class: type[Problem], where: str
) -> tuple[tuple[str, ...], Sequence[Sequence[Any]]]:
    """Return the tied axes (`axes`, by default the operation's sizes) and their rows of values."""
    if "points" not in table:
        expect("axes" not in table, f"{where}, key 'axes': needs points, and there are none")
        return (), ((),)
    tied, points = table.get("axes", list(problem_class.sizes)), table["points"]
    expect(_each_once(tied) and bool(tied), f"{where}, key 'axes': is {tied!r}, expected a list of axes, each once")
    known_keys(dict.fromkeys(tied), set(problem_class.axes()), f"{where}, key 'axes'")
    expect(isinstance(points, list) and bool(points), f"{where}, key 'points': is {points!r}, expected a list of rows")
    for row in points:
        right = isinstance(row, list) and len(row) == len(tied)
        expect(right, f"{where}, key 'points': row {row!r}, expected {len(tied)} values ({', '.join(tied)})")
    for axis, values in zip(tied, zip(*points, strict=True), strict=True):
        _check(problem_class, axis, values, f"{where}, key 'points'")
    return tuple(tied), points


def _values(value: Any, where: str) -> Sequence[Any]:
    """Return an axis's values: a list, {pow2 = [first, last]}, {linear = [start, stop, step]}, or one value."""
    if not isinstance(value, dict):
        expect(value != [], f"{where}: is an empty list, expected at least one value")
        return _listed(value)
    kind, bounds = next(iter(value.items()), (None, None))
    whole = isinstance(bounds, list) and all(isinstance(b, int) and not isinstance(b, bool) for b in bounds)
    if len(value) == 1 and whole and isinstance(bounds, list):
        if kind == "pow2" and len(bounds) == 2 and 0 <= bounds[0] <= bounds[1] <= 62:
            return [2**i for i in range(bounds[0], bounds[1] + 1)]
        if kind == "linear" and len(bounds) == 3 and 0 <= bounds[0] <= bounds[1] < _LARGEST and bounds[2] > 0:
            return range(bounds[0], bounds[1] + 1, bounds[2])
    raise UsageError(f"{where}: is {value!r}, expected {{pow2 = [first, last]}} or {{linear = [start, stop, step]}}")


def _check(problem_class: type[Problem], axis: str, values: Iterable[Any], where: str) -> None:
    # For a range it is enough to check both ends.
    for value in (values[0], values[-1]) if isinstance(values, range) else values:
        if (complaint := problem_class.complaint(axis, value)) is not None:
            raise UsageError(f"{where}, key '{axis}': {complaint}")


def known_keys(table: Mapping[str, Any], known: set[str], where: str) -> None:
    """Raise UsageError for an unknown key."""
    for key in table:
        if key not in known:
            raise UsageError(f"{where}, key '{key}': {unknown(key, known)}")


def expect(condition: bool, complaint: str) -> None:
    """Raise UsageError if the condition is false."""
    if not condition:
        raise UsageError(complaint)
