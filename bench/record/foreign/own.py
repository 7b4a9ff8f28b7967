"""A row that kernelmark itself has written, and what must hold of it whichever format it comes in."""

from typing import Any, get_type_hints

import msgspec

from bench.plan.status import Status
from bench.record.foreign.node import Node
from bench.record.result import COLUMNS, SCHEMA, Result

HINTS = get_type_hints(Result)
_TIMES = ("time_s_median", "time_s_min", "time_s_mean")
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
    """The first column whose value no row of ours can have, and what is expected there."""
    if values.get("schema") != SCHEMA:
        return "schema", f"{SCHEMA}, which is what this kernelmark reads"
    if values.get("status") not in list(Status):
        return "status", f"one of {', '.join(Status)}"
    if values.get("threads", 0) < 1:
        return "threads", "a count from 1"
    return next(((name, "seconds above 0") for name in _TIMES if (values.get(name) or 1.0) <= 0), None)
