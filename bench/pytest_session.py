"""A kernelmark run in a pytest session: its cases, and the result of each case."""

import math
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.plan.case import Entrant, PlannedJob, case_count, case_of
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.options import OPTIONS
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report.export import check_writable, write_file
from kernelmark.bench.report.format import count
from kernelmark.bench.report.show import run_end, run_tables
from kernelmark.bench.run.asked import checked_jobs, plan_asked
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.session import Session, run_passes

DEFAULT_SUITES = ("smoke", "founding")
#: The maximum number of lines of tables at the end of a session, and their width; `kernelmark show` prints the rest.
LINES, COLUMNS = 60, 120
#: The problems, thread count and instruction set that the contenders of a job share.
Group = tuple[tuple[str, ...], int, str]


class BenchmarkItem(msgspec.Struct, frozen=True):
    """One test item, for one kernel of a job; the job's other kernels have their own items."""

    planned: PlannedJob
    problem: str
    kernel: str

    @property
    def group(self) -> Group:
        return self.planned.job.problems, self.planned.job.threads, self.planned.job.isa

    @property
    def id(self) -> str:
        """Return the id in the item's name: `gemm/numpy.matmul|m64n64k64/f32/NT|t2`, with `|avx2` if requested."""
        job = self.planned.job
        problem = self.problem.partition("/")[2]
        return f"{self.kernel}|{problem}|t{job.threads}" + (f"|{job.isa}" if job.isa else "")

    @property
    def params(self) -> dict[str, str | int]:
        """Return `params` for pytest-benchmark's JSON, by which `--benchmark-group-by=param:kernel` groups."""
        job = self.planned.job
        suite, problem, kernel = self.planned.suite, self.problem, self.kernel
        return {"suite": suite, "problem": problem, "kernel": kernel, "threads": job.threads, "isa": job.isa}


class Bridge:
    """A kernelmark run in a pytest session, planned at collection. A group is measured when its first item runs."""

    def __init__(self, config: pytest.Config) -> None:
        names = config.getoption("km_suite") or DEFAULT_SUITES
        options = {option.field: config.getoption(f"km_{option.field}") for option in OPTIONS}
        self._plan = plan_asked(names, options, "--km-")
        self._db = config.getoption("km_db")
        self._csv = Path(config.getoption("km_csv")) if config.getoption("km_csv") else None
        self.registry = discover(self._plan.plugins, self._plan.timeout_s)
        self._suites = [find_suite(name, self.registry) for name in names]
        if self._csv is not None:
            check_writable(self._csv)
        self._planned: dict[Group, PlannedJob] = {}
        self._rows: dict[str, Result] = {}
        self._measuring, self._storing = ExitStack(), ExitStack()
        config.add_cleanup(self._storing.close)
        #: The store and the session of a run that has begun.
        self.opened: tuple[Store, Session] | None = None

    def cases(self) -> Iterator[BenchmarkItem]:
        """Yield every case of the suites once, in order."""
        seen: set[str] = set()
        for planned in checked_jobs(self._suites, self.registry, self._plan, "--km-"):
            for problem, kernel in planned.job.entrants:
                case = BenchmarkItem(planned, problem, kernel)
                if case.id not in seen:
                    seen.add(case.id)
                    yield case

    def select(self, cases: list[BenchmarkItem]) -> None:
        """Drop the kernels that `-k`, `--deselect` and the like exclude, except baselines of the remaining problems.

        A deselected baseline has no item, but the speedups of other kernels need it.
        """
        left: dict[Group, set[Entrant]] = {}
        for case in cases:
            baseline = Entrant(case.problem, case.planned.job.baseline_of(case.problem) or "")
            needed = {Entrant(case.problem, case.kernel), baseline} & set(case.planned.job.entrants)
            left.setdefault(case.group, set()).update(needed)
            self._planned.setdefault(case.group, case.planned)
        for group, entrants in left.items():
            planned = self._planned[group]
            self._planned[group] = msgspec.structs.replace(planned, job=planned.job.only(entrants))

    def row(self, case: BenchmarkItem) -> tuple[Result, list[float]]:
        """Return the result and the samples of a case. A group is measured when the first of its cases is requested.

        With several processes, all groups are measured at the first request, since each process measures all groups.
        """
        key = case_of(case.planned.job, case.problem, self.registry.kernels[case.kernel])
        store, session = self._open()
        if key not in self._rows:
            groups = [case.group] if self._plan.processes == 1 else list(self._planned)
            planned = [self._planned[group] for group in groups]
            run_passes(session, lambda: planned, lambda row: self._rows.update({row.case: row}))
        return self._rows[key], store.samples(session.run_id, key)

    def _open(self) -> tuple[Store, Session]:
        if self.opened is None:
            store = self._storing.enter_context(Store(Path(self._db) if self._db else default_store()))
            self._measuring.enter_context(exclusive(self._plan.devices, self._plan.share_gpu))
            workers = self._measuring.enter_context(Workers())
            session = Session(
                store, self._suites, self._plan, workers.run, planned=case_count(self._planned.values(), self.registry)
            )
            self.opened = store, session
        return self.opened

    def finish(self, interrupted: bool) -> None:
        """End the workers, record the end of the run unless it was interrupted, and write its CSV file."""
        self._measuring.close()
        if self.opened is not None:
            store, session = self.opened
            if not interrupted:
                session.finish()
            if self._csv is not None:
                write_file(store, [session.run_id], "csv", self._csv)

    def summary(self) -> Iterator[str]:
        """Yield the first tables of the run (see `fitting`), a command that shows the rest, and notes on all tables."""
        assert self.opened is not None
        store, session = self.opened
        show = f"kernelmark show {session.run_id}" + (f" --db {shlex.quote(self._db)}" if self._db else "")
        yield from fitting(list(run_tables(store, session.run_id)), show)
        yield from filter(None, run_end(store, session.run_id))


def fitting(tables: Sequence[str], show: str) -> Iterator[str]:
    """Yield the tables that fit into LINES lines (the first one cut if needed), and a command that shows the others."""
    left = LINES
    for number, table in enumerate(tables):
        lines = table.splitlines()
        left -= sum(max(1, math.ceil(len(line) / COLUMNS)) for line in lines) + 1
        if left < 0:
            if number == 0:
                yield "\n".join(line[:COLUMNS] for line in lines[: LINES - 1])
            yield f"and {count(len(tables) - number, 'more table')}; all rows: `{show}`"
            return
        yield table
