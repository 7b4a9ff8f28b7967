"""A row that kernelmark itself has written, and what must hold of it whichever format it comes in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, get_type_hints

import msgspec

from kernelmark.bench.plan.numbers import NotNegative
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.foreign.node import ROUNDING, Node
from kernelmark.bench.record.result import COLUMNS, SCHEMA, Result

HINTS = get_type_hints(Result)
_TIMES = ("time_s_median", "time_s_min", "time_s_mean")
_NOT_NEGATIVE = tuple(
    name for name, hint in get_type_hints(Result, include_extras=True).items() if hint == NotNegative | None
)
#: Columns of which the first is not above the second, but for the rounding of a mean.
_ORDERED = (
    ("time_s_min", "time_s_median"),
    ("time_s_min", "time_s_mean"),
    ("time_s_ci95_low", "time_s_ci95_high"),
    ("speedup_ci95_low", "speedup_ci95_high"),
)
_STATUSES = frozenset(Status)
#: Rows by column, all of one length, and what is wrong with one: its place, the column, and what is expected there.
Columns = Mapping[str, Sequence[Any]]
Wrong = tuple[int, str, str]
#: Columns that no row of ours can be without.
REQUIRED = (
    "schema",
    *(field.name for field in msgspec.structs.fields(Result) if field.required and field.name != "run_id"),
)


def own_result(node: Node) -> Result:
    """The row under a node, column by column; columns newer than the file keep their defaults. Raises UsageError."""
    values = {name: _value(found, HINTS[name]) for name in COLUMNS if (found := node.get(name)) is not None}
    for name in REQUIRED:
        node.need(name)
    if complaint := unsound(_alone(values)):
        _, name, expected = complaint
        node.need(name).refuse(expected)
    return Result(**{**values, "run_id": ""})


def _value(node: Node, hint: Any) -> Any:
    if hint is str:
        return node.text()
    if hint in (int, int | None):
        return node.integer()
    return node.number()


def unsound(columns: Columns) -> Wrong | None:
    """Return the first row with a value that no row can have: its place, the column, and what is expected there."""
    return min(_wrong(columns), key=lambda found: found[0], default=None)


def refuse_unsound(result: Result, node: Node) -> None:
    """Raise UsageError, which names the node, where its numbers became columns that no row can have."""
    values = msgspec.structs.asdict(result)
    for _, name, expected in _impossible(_alone(values)):
        node.holding(values).need(name).refuse(expected)


def _alone(values: Mapping[str, Any]) -> Columns:
    """Return the columns of one row."""
    return {name: (value,) for name, value in values.items()}


def _wrong(columns: Columns) -> Iterator[Wrong]:
    """Yield the first wrong row of each column."""
    yield from _first(
        columns, "schema", lambda value: value != SCHEMA, f"{SCHEMA}, which is what this kernelmark reads"
    )
    yield from _first(columns, "status", lambda value: value not in _STATUSES, f"one of {', '.join(Status)}")
    yield from _first(columns, "threads", lambda value: value < 1, "a count from 1")
    yield from _impossible(columns)


def _impossible(columns: Columns) -> Iterator[Wrong]:
    for name in _TIMES:
        yield from _first(columns, name, lambda value: value <= 0, "seconds above 0")
    for name in _NOT_NEGATIVE:
        if min(filter(None, columns.get(name, ())), default=0.0) >= 0:  # ten times as fast as a look at each
            continue
        yield from _first(columns, name, lambda value: value < 0, "0 or more")
    for low, high in _ORDERED:
        ends = enumerate(zip(columns.get(low, ()), columns.get(high, ()), strict=False))
        known = ((at, least, most) for at, (least, most) in ends if least is not None and most is not None)
        yield from islice(
            ((at, low, f"at most {high}, {most!r}") for at, least, most in known if least > most * (1 + ROUNDING)), 1
        )


def _first(columns: Columns, name: str, wrong: Callable[[Any], bool], expected: str) -> Iterator[Wrong]:
    found = (
        (at, name, expected) for at, value in enumerate(columns.get(name, ())) if value is not None and wrong(value)
    )
    yield from islice(found, 1)
