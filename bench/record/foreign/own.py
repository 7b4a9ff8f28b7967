"""A row that kernelmark itself has written, and what must hold of it whichever format it comes in."""

from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec

from bench.plan.numbers import NotNegative
from bench.plan.status import Status
from bench.record.foreign.node import ROUNDING, Node
from bench.record.result import COLUMNS, SCHEMA, Result

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
    if complaint := unsound(values):
        name, expected = complaint
        node.need(name).refuse(expected)
    return Result(**{**values, "run_id": ""})


def _value(node: Node, hint: Any) -> Any:
    if hint is str:
        return node.text()
    if hint in (int, int | None):
        return node.integer()
    return node.number()


def unsound(values: dict[str, Any]) -> tuple[str, str] | None:
    """The first column whose value no row can have, and what is expected there."""
    if values.get("schema") != SCHEMA:
        return "schema", f"{SCHEMA}, which is what this kernelmark reads"
    if values.get("status") not in list(Status):
        return "status", f"one of {', '.join(Status)}"
    if values.get("threads", 0) < 1:
        return "threads", "a count from 1"
    return next(_impossible(values), None)


def refuse_unsound(result: Result, node: Node) -> None:
    """Raise UsageError, which names the node, where its numbers became columns that no row can have."""
    values = msgspec.structs.asdict(result)
    for name, expected in _impossible(values):
        node.holding(values).need(name).refuse(expected)


def _impossible(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    known = {name: value for name, value in values.items() if value is not None}
    yield from ((name, "seconds above 0") for name in _TIMES if known.get(name, 1.0) <= 0)
    yield from ((name, "0 or more") for name in _NOT_NEGATIVE if known.get(name, 0.0) < 0)
    for low, high in _ORDERED:
        if low in known and high in known and known[low] > known[high] * (1 + ROUNDING):
            yield low, f"at most {high}, {known[high]!r}"
