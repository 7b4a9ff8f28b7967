"""What a stage of `make gpu` has to work with: the registry, the folder of the report, a run, and its deadline."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import msgspec

from gpu_folder import LEFT_OUT, RUNS, Folder
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Entrant, Plan, PlannedJob, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.registry import Kernels, Registry
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.tables import status_line
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import Session, run_passes
from kernelmark.bench.run.wary import Wary

#: The ways of launching that are timed wrong, with globs of the kernels that are launched so.
DISAGREEING = "disagreeing.json"


class Settings(msgspec.Struct, frozen=True):
    """What a report is asked for: the device, suites to be timed, plug-ins."""

    folder: str
    device: str = "cuda"
    suites: tuple[str, ...] = ("founding", "seed")
    plugins: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True):
    """A stage, and until when (monotonic clock) it may go on."""

    stage: str
    settings: Settings
    until_s: float


class _Cut(Exception):
    """The deadline came in the midst of a job."""


class _Deadline(Progress):
    """Ends a job at the deadline: raised while a worker is waited for, it costs the worker and the job's rows."""

    def __init__(self, until_s: float) -> None:
        self._until_s = until_s

    def calls(self, entrant: Entrant, stage: str) -> None:
        if now() >= self._until_s:
            raise _Cut


class Task:
    """What a stage has to work with."""

    def __init__(self, asked: Question) -> None:
        self.settings, self.stage, self.until_s = asked.settings, asked.stage, asked.until_s
        self.folder, found = Folder(Path(asked.settings.folder)), discover(asked.settings.plugins)
        barred = [glob for globs in self.folder.read(DISAGREEING).values() for glob in globs.split()]
        left = (id_ for id_ in found.kernels if not any(fnmatchcase(id_, glob) for glob in barred))
        kernels = Kernels((id_, found.kernels[id_]) for id_ in left)
        # Kernels whose way of launching is timed wrong are not there, so that no glob of a plan can select them.
        self.registry = Registry(found.operations, kernels)

    @property
    def over(self) -> bool:
        """Return whether no further job may begin."""
        return now() >= self.until_s

    def kernels(self) -> list[Kernel]:
        """The device's kernels."""
        return [kernel for kernel in self.registry.kernels.values() if kernel.device == self.settings.device]

    def own(self) -> list[CudaKernel]:
        """The device's kernels that are written by hand."""
        return [kernel for kernel in self.kernels() if isinstance(kernel, CudaKernel)]

    def measure(
        self, plan: Plan, suites: Sequence[Suite], planned: Callable[[], Iterable[PlannedJob]] | None = None
    ) -> str:
        """Measure what is planned, or the suites, as a run of its own, and return its statuses."""
        wanted = planned or (lambda: jobs(list(suites), self.registry, plan))
        with closing(self.folder.store()) as store, Workers(_Deadline(self.until_s)) as workers:
            wary = Wary(workers.run, self.folder.read(LEFT_OUT))
            session = Session(store, list(suites), plan, wary)
            self.folder.note(RUNS, self.stage, session.run_id)
            keep = partial(self._keep, wary)
            try:
                run_passes(session, wanted, self.registry, plan, keep, Progress(), lambda: self.over)
            except _Cut:
                pass  # the line below reports it
            finally:
                session.finish()
        return status_line(session.tally) + (", cut off at its deadline" if self.over else "")

    def _keep(self, wary: Wary, row: Result) -> None:
        """Let later stages know which kernels to leave out."""
        known = self.folder.read(LEFT_OUT)
        for kernel, reason in wary.left_out.items():
            if kernel not in known:
                self.folder.note(LEFT_OUT, kernel, reason)
