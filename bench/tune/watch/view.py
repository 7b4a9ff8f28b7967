"""What `kernelmark watch` shows of a version: what it takes of the GPU and how fast it is, beside the one before."""

from collections.abc import Mapping, Sequence

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.report.contest import APART, paired
from kernelmark.bench.report.format import digits, seconds, spread
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.tune.inspect import InspectRow

_SHOWN = {
    "registers": "registers",
    "static": "static_shared_bytes",
    "dynamic": "dynamic_shared_bytes",
    "spill": "spill_bytes",
    "stack": "stack_bytes",
    "threads": "threads",
    "blocks/SM": "blocks_per_sm",
    "occupancy": "occupancy",
    "limited by": "limiter",
}


def resource_table(rows: Sequence[InspectRow], before: Sequence[InspectRow]) -> str:
    """Return a column for each launch; what differs from the version before shows the old value. Sizes are in bytes."""
    known = {row.entry: row for row in before}
    cells = [[name, *(_beside(row, known.get(row.entry), field) for row in rows)] for name, field in _SHOWN.items()]
    return table([TableColumn("launch"), *(TableColumn(row.entry, wraps=12) for row in rows)], cells)


def _beside(row: InspectRow, before: InspectRow | None, field: str) -> str:
    new = _shown(getattr(row, field))
    old = _shown(getattr(before, field)) if before else new
    return new if new == old else f"{new} (was {old})"


def _shown(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, float) else str(value)


def time_table(rows: Sequence[Measurement], names: Mapping[str, str], problem: Problem) -> str:
    """Return a table of the present version, the first row, against each other kernel, from samples taken in turn.

    names: of the kernels that have no id of their own. Below the table stands what has no time, and why.
    """
    columns = (
        TableColumn("kernel"),
        TableColumn("time", "right"),
        TableColumn("95 %", "right", spare=2),
        TableColumn("GFLOP/s" if problem.flop else "GB/s", "right", spare=1),
        TableColumn("this version against it", wraps=24),
    )
    cells = [
        (
            names.get(row.kernel, row.kernel),
            seconds(row.interval.median),
            spread(row.interval.median, row.interval.low, row.interval.high),
            digits((problem.flop or problem.traffic_bytes) / row.interval.median * 1e-9),
            "" if row is rows[0] else _against(row, rows[0]),
        )
        for row in rows
        if row.status == Status.OK and row.interval
    ]
    parts = [table(columns, cells)] if cells else []
    parts += [
        paragraph(f"{row.status}: {names.get(row.kernel, row.kernel)}: {row.reason}")
        for row in rows
        if row.status != Status.OK
    ]
    return "\n".join(parts)


def _against(other: Measurement, present: Measurement) -> str:
    """Return `1.05x [1.03, 1.07] faster`, or with `tie` where the interval includes 1."""
    if other.job != present.job:
        return APART
    found = paired([other.samples], [present.samples])
    return f"{found} {found.side}" if found else ""
