"""A run: jobs to the worker, rows to the store, until the suites are done or somebody interrupts."""

import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

import bench
from bench.ceilings import Ceilings
from bench.measure.machine import environment, machine
from bench.measure.measurement import Measurement
from bench.plan.case import Plan, PlannedJob, case_key, jobs
from bench.plan.discovery import discover
from bench.plan.registry import Registry
from bench.plan.suites import Suite
from bench.record.result import VERIFY, Result, make_result
from bench.record.store import Layer, Run, Store
from bench.worker import run_job

#: Verdicts that go against the user; every other status is an answer.
AGAINST = ("wrong", "mistrusted", "failed", "crashed", "timeout")
Notify = Callable[[Result], None]


def default_store() -> Path:
    """`$XDG_DATA_HOME/kernelmark/results.db`."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "kernelmark" / "results.db"


@lru_cache
def git_commit() -> str:
    """The commit of the checkout that kernelmark runs from, `-dirty` behind it where files differ; else its version."""
    root = Path(bench.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return f"kernelmark {bench.__version__}"

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"kernelmark {bench.__version__}"


class Session:
    """One run in one store: begun once, then fed with jobs."""

    def __init__(self, store: Store, suites: list[Suite], plan: Plan) -> None:
        started = datetime.now(UTC)
        self.run_id = f"{started:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self.tally: Counter[str] = Counter()
        self._store = store
        self._ceilings: Ceilings | None = None
        if plan.ceilings and plan.timed:
            registry = discover(plan.plugins)
            keep, doubt = (partial(method, self.run_id) for method in (store.add_ceiling, store.doubt_ceiling))
            self._ceilings = Ceilings(registry, keep, doubt)
        store.begin(
            Run(
                run_id=self.run_id,
                machine=machine(),
                started_at=started.isoformat(timespec="seconds"),
                suites=tuple(suite.name for suite in suites),
                command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
                environment=environment(),
                git_commit=git_commit(),
                plan=msgspec.to_builtins(plan),
            )
        )

    def note(self, planned: PlannedJob) -> None:
        """Keep what the job is a part of, if it is a network's layer."""
        if planned.part:
            name = f"{planned.suite} {planned.network}".strip()
            layer = Layer(name, planned.job.problem, planned.part, planned.count)
            self._store.add_layer(self.run_id, layer)

    def knows(self, planned: PlannedJob, registry: Registry) -> bool:
        """Whether the run has a row for every case of the job: sweeps of a suite may overlap."""
        job = planned.job
        mode = job.mode if job.timed else VERIFY
        threads = {name: job.threads if registry.kernels[name].threaded else 1 for name in job.kernels}
        cases = (case_key(name, job.problem, mode, count) for name, count in threads.items())
        return all(self._store.has(self.run_id, case) for case in cases)

    def measure(self, planned: PlannedJob, registry: Registry) -> list[tuple[Result, Measurement]]:
        """Run a job and commit its rows; of a case that the run has already, the first row stays."""
        problem = registry.problem(planned.job.problem)
        rows = []
        for measured in self._run(planned):
            kernel = registry.kernels[measured.kernel]
            result = make_result(measured, kernel, problem, planned, self.run_id, git_commit())
            if not self._store.has(self.run_id, result.case):
                self._store.add(
                    result,
                    problem.dims(),
                    measured.samples if result.samples else [],
                    measured.ratio,
                    measured.parts if result.samples else [],
                )
                self.tally[result.status] += 1
            rows.append((result, measured))
        return rows

    def _run(self, planned: PlannedJob) -> list[Measurement]:
        measured = run_job(planned.job)
        if self._ceilings is not None:
            self._ceilings.apply(planned.job, measured)
        return measured

    def finish(self) -> None:
        """Note the end of the run."""
        self._store.finish(self.run_id, datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def against(self) -> int:
        """Rows whose verdict went against the user."""
        return sum(self.tally[status] for status in AGAINST)


def run_suites(session: Session, suites: list[Suite], registry: Registry, plan: Plan, notify: Notify) -> bool:
    """Measure everything; True if it was not interrupted. The first SIGINT lets the job in hand finish."""
    with _interruptible() as interrupted:
        for planned in jobs(suites, registry, plan):
            session.note(planned)
            if session.knows(planned, registry):
                continue
            for result, _ in session.measure(planned, registry):
                notify(result)
            if interrupted():
                break
        session.finish()
        return not interrupted()


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT into a flag; the second one raises KeyboardInterrupt as usual."""
    hits: list[int] = []
    before: Any = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        hits.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(hits)
    finally:
        signal.signal(signal.SIGINT, before)
