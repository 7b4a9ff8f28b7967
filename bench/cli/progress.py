"""Print the progress of `run`, and then a line per problem; with `--verbose`, print each table once it is complete."""

import os
import shutil
import sys
from collections.abc import Sequence
from enum import Enum
from types import TracebackType
from typing import Self

import click

from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Entrant, PlannedJob
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.digest import run_digest, verdict_line
from kernelmark.bench.report.format import digits, seconds, short
from kernelmark.bench.report.layout import TERMINAL, TableColumn, is_wanted, paragraph, table
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.show import PAGE, run_end, run_page
from kernelmark.bench.report.tables import run_table
from kernelmark.bench.run.progress import Glimpse, Progress

#: The words of the progress line for each phase of a kernel.
PHASES = {
    "operands": "planning the operands of",
    "set-up": "compiling",
    "reference": "computing the reference of",
    "verification": "verifying",
    "check": "checking",
    "warm-up": "warming up",
    "sampling": "measuring",
}
_MINUTE_S = 90
#: Seconds between two lines of progress in a pipe.
_EVERY_S = 60.0


class Detail(Enum):
    """How much `run` prints: the verdict only, also a line per problem, or also a table per problem."""

    QUIET, LINES, TABLES = range(3)


#: Clears a terminal's line from the cursor to its end (ECMA-48).
_CLEAR = "\033[K"
_PROVISIONAL = (
    *map(TableColumn, ("provisional", "kernel")),
    *(TableColumn(name, "right") for name in ("time so far", "GFLOP/s", "samples")),
)


class Display(Progress):
    """Print finished tables, and the progress on standard error: a terminal shows one changing line, a pipe gets lines.

    jobs: the planned jobs in order; they may finish in another order. processes: the number of processes that measure
    each job. again: the run was resumed, so tables are printed only at the end.
    """

    def __init__(
        self,
        jobs: Sequence[PlannedJob],
        processes: int,
        registry: Registry,
        detail: Detail = Detail.LINES,
        again: bool = False,
    ) -> None:
        following = [*(planned.job.problems for planned in jobs[1:]), ()]
        self._jobs = jobs  # keeps the jobs alive, so that no new object gets the id() of a job
        self._following = {id(planned): problems for planned, problems in zip(jobs, following, strict=True)}
        self._registry, self._processes, self._detail = registry, processes, detail
        self._style = table_style() if detail is Detail.TABLES and not again else None
        self._printed_s, self._so_far = -_EVERY_S, dict[Entrant, float]()
        self._total, self._done = sum(len(planned.job.entrants) for planned in jobs), 0
        self._total_s, self._done_s = processes * sum(map(_least_s, jobs)), 0.0
        self._began_s, self._process = now(), 1
        self._rows: list[Result] = []
        self._tables = 0
        self._waiting = False
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._print_tables()
        self._show("")

    def row(self, result: Result) -> None:
        """Keep a row until its table is complete and can be printed."""
        self._rows.append(result)

    def begins(self, planned: PlannedJob, process: int) -> None:
        if process != self._process:
            self._process, self._done = process, 0
        self._waiting = False
        self._so_far = {}
        self._show(f"[{self._where}] {planned.job.problems[0]}")
        if self._detail is Detail.TABLES or now() - self._printed_s >= _EVERY_S:
            self._note(f"[{self._where}] {' and '.join(planned.job.problems)}")

    def calls(self, entrant: Entrant, stage: str) -> None:
        so_far = f" ({seconds(self._so_far[entrant])} so far)" if entrant in self._so_far else ""
        self._show(f"[{self._where}] {PHASES[stage]} {short(entrant.kernel)}{so_far} on {entrant.problem}")

    def waits(self, left_s: float) -> None:
        self._show(f"process {self._process} has ended; the next one starts in {left_s:.0f} s")
        if not self._waiting:
            self._note(f"[the next process starts in {left_s:.0f} s]")
        self._waiting = True

    def ends(self, planned: PlannedJob, process: int) -> None:
        self._done += len(planned.job.entrants)
        self._done_s += _least_s(planned)
        if process >= self._processes and self._following[id(planned)] != planned.job.problems:
            self._print_tables()

    def glimpses(self, glimpses: list[Glimpse]) -> None:
        self._so_far = {glimpse.entrant: glimpse.median_s for glimpse in glimpses}
        if self._detail is Detail.TABLES:
            self._write(_provisional(glimpses, self._registry), err=True)

    @property
    def _where(self) -> str:
        part = f"{self._done}/{self._total}"
        if self._process > self._processes:
            part = f"process {self._process}, to replace disturbed ones, {part}"
        elif self._processes > 1:
            part = f"process {self._process} of {self._processes}, {part}"
        left_s = self._left_s
        # More digits would suggest an accuracy that the estimate lacks.
        left = f"{max(5, 5 * round(left_s / 5))} s" if left_s < _MINUTE_S else f"{left_s / 60:.0f} min"
        return f"{part}, about {left} left"

    @property
    def _left_s(self) -> float:
        """Return the estimated seconds left: the remaining jobs' time limits, scaled by the finished jobs' pace."""
        pace = (now() - self._began_s) / self._done_s if self._done_s else 1.0
        return max(0.0, self._total_s - self._done_s) * pace

    def _print_tables(self) -> None:
        tables = len({(r.problem, r.mode, r.isa) for r in self._rows})
        if tables and self._tables < PAGE and self._style is not None:
            self._write("\n" + run_table(self._rows, self._style), err=False)
        self._tables += tables
        self._rows = []

    def _show(self, text: str) -> None:
        if self._terminal:
            show_line(text)

    def _note(self, text: str) -> None:
        if not self._terminal and self._detail is not Detail.QUIET:
            click.echo(text, err=True)
            self._printed_s = now()

    def _write(self, text: str, err: bool) -> None:
        self._show("")
        click.echo(text, err=err)


def show_line(text: str) -> None:
    """Replace the line of progress with the text if standard error is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r{text[: shutil.get_terminal_size().columns - 1]}{_CLEAR}", nl=False, err=True)


def _least_s(planned: PlannedJob) -> float:
    """Return the seconds that a job would take if each case used its time limit and nothing else took time."""
    return planned.job.budget.max_time_s * len(planned.job.entrants)


def _provisional(glimpses: Sequence[Glimpse], registry: Registry) -> str:
    cells = []
    for glimpse in sorted(glimpses, key=lambda glimpse: (glimpse.entrant.problem, glimpse.median_s)):
        problem = registry.problem(glimpse.entrant.problem)
        rate = digits(problem.flop / glimpse.median_s * 1e-9) if problem.flop else ""
        cells.append((problem.id, short(glimpse.entrant.kernel), seconds(glimpse.median_s), rate, str(glimpse.samples)))
    note = paragraph("Provisional times, neither complete nor verified after timing; the table follows.", rest="")
    return f"\n{note}\n\n{table(_PROVISIONAL, cells, titled=True)}"


def print_run(store: Store, run_id: str, page: int = 1) -> None:
    """Print a page of a run's tables, as `show` does."""
    for part in filter(None, run_page(store, run_id, page, table_style())):
        click.echo(f"\n{part}")


def print_end(store: Store, run_id: str, detail: Detail, again: bool) -> None:
    """Print the end of the output of `run`. again: the run was resumed, so its tables are printed here."""
    if detail is Detail.QUIET:
        click.echo(verdict_line(RunData(store, run_id)))
    elif detail is Detail.TABLES and again:
        print_run(store, run_id)
    else:
        with store.snapshot():
            end = run_end(store, run_id) if detail is Detail.TABLES else run_digest(store, run_id, table_style())
            for part in filter(None, end):
                click.echo(f"\n{part}")


def table_style() -> str:
    """Return the style of tables on standard output: the style for a terminal, or a plain style for a pipe."""
    return TERMINAL if is_wanted(sys.stdout, os.environ) else "simple"
