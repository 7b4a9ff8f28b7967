"""The findings of checks, their table, and the jobs that checks measure."""

from collections.abc import Callable, Sequence

import msgspec

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.report import layout
from kernelmark.bench.report.layout import TableColumn
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.selftest.known import plugin

A_SECOND = Budget(max_time_s=1.0)
#: Called once a job is done.
Tick = Callable[[], object]


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of `selftest` with its bound. check: the check's name, and after a colon the part that was checked.

    holds: null if the check could not be run here, or if the figure has no bound.
    """

    check: str
    found: str
    bound: str
    holds: bool | None

    @property
    def name(self) -> str:
        """Return the name of the check."""
        return self.check.partition(":")[0]


class Checks(msgspec.Struct, forbid_unknown_fields=True):
    """The output of `selftest`. left_out: the checks that were not selected."""

    findings: list[Finding]
    left_out: list[str]


COLUMNS = (
    TableColumn("check", wraps=24),
    TableColumn("found", wraps=30),
    TableColumn("bound", wraps=12),
    TableColumn("holds"),
)
MARKS = {True: "yes", False: "NO", None: "-"}


def table(findings: Sequence[Finding]) -> str:
    """Return a table with a row for each finding."""
    return layout.table(COLUMNS, [(f.check, f.found, f.bound, MARKS[f.holds]) for f in findings])


def measured(
    problems: Sequence[str],
    kernels: Sequence[str],
    plugins: str = "",
    *,
    mode: Mode = Mode.HOT,
    budget: Budget = A_SECOND,
    device: str = "cpu",
    seed: int = 0,
    baseline: str | None = None,
) -> list[Measurement]:
    """Measure kernels in turn on one thread of a fresh process, with a plug-in of this folder."""
    paths = (plugin(plugins),) if plugins else ()
    with Workers() as workers:
        job = Job(tuple(problems), tuple(kernels), mode, paths, seed, budget, 1, baseline)
        return workers.run(job, WorkerKey(device, 1))


def failures(check: str, rows: Sequence[Measurement]) -> list[Finding]:
    """Return a failed finding for each row without a time; a check reports these instead of its figures."""
    return [
        Finding(f"{check}: {row.kernel}", f"{row.status}: {row.reason}", "a time", False)
        for row in rows
        if row.interval is None
    ]
