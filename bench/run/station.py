"""A station measures tasks in an executor's worker, with worker processes and peak rates as in a local run.

The process of a station outlives its tasks, so that workers are started and peak rates measured once. A station locks
its GPU as a run does. A job that needs the host's processors or memory waits until it has the host to itself; only jobs
on different GPUs run concurrently.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from itertools import count
from socket import gethostname
from typing import Any

import msgspec

from kernelmark import __version__
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.host import Host, digests, unlike
from kernelmark.bench.measure.lock import exclusive, turn
from kernelmark.bench.measure.machine import environment, machine
from kernelmark.bench.measure.measurement import Ceiling, Measurement
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.measure.timing import now, pause
from kernelmark.bench.plan.case import Job, Plan, PlannedJob, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.run.asked import plan_asked
from kernelmark.bench.run.ceilings import Ceilings
from kernelmark.bench.run.commit import git_commit
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.passes import counted, is_settled, merge, planned_processes, still_good

#: One station per thread, since an executor's workers may be threads of one process.
_local = threading.local()
_one_at_a_time = threading.Lock()


class Expected(msgspec.Struct):
    """The part of a task that every version of kernelmark can read: the host that is expected, or None for any."""

    host: Host | None = None


class Task(Expected):
    """The jobs of a comparison group, all measured on one host; without jobs, a request for a plan or the host's facts.

    options: the options from which the station makes a plan for its machine; None if the task contains its plan.
    """

    plan: Plan | None = None
    jobs: list[PlannedJob] = []
    suites: list[str] = []
    options: dict[str, Any] | None = None


class StationRows(msgspec.Struct):
    """The rows of each job, and peak rates, each with a reason to doubt it or "". refused: why nothing was measured."""

    host: Host
    rows: list[list[Measurement]] = []
    ceilings: list[tuple[Ceiling, str]] = []
    plan: Plan | None = None
    refused: str = ""


def measure(data: bytes, gpu: str = "") -> bytes:
    """Measure a `Task` and return `StationRows`, both as MessagePack. gpu: the UUID of the GPU to use, or ""."""
    expected, host = msgspec.msgpack.decode(data, type=Expected), this_host()
    try:
        rows = _answered(expected.host, data, gpu, host)
    except UsageError as error:
        rows = StationRows(host, refused=str(error))
    return msgspec.msgpack.encode(rows)


def _answered(expected: Host | None, data: bytes, gpu: str, host: Host) -> StationRows:
    if expected and (apart := [*unlike(host, msgspec.structs.replace(expected, plugins={}))]):
        raise UsageError("; ".join(apart[:3]) + "; install the same versions on every host")
    task = msgspec.msgpack.decode(data, type=Task)
    if task.options is not None:
        return StationRows(host, plan=plan_asked(task.suites, task.options))
    assert task.plan is not None
    host = msgspec.structs.replace(host, plugins=digests(task.plan.plugins))
    if expected and (apart := [*unlike(host, expected)]):
        raise UsageError("; ".join(apart[:3]) + "; copy the same file to every host")
    if task.jobs:
        return _station(task.plan, gpu, host).measure(task.jobs)
    return StationRows(host)


@lru_cache
def this_host() -> Host:
    """Return the facts of this host, read while no other job runs on it."""
    with turn(alone=True):
        facts, around = machine(), environment()
    return Host(gethostname(), git_commit(), __version__, facts["python"], around["versions"], {}, facts, around)


def _station(plan: Plan, gpu: str, host: Host) -> "Station":
    """Return the station of this thread and plan; the station of an earlier plan is closed."""
    before: Station | None = getattr(_local, "station", None)
    if before is not None and before.plan == plan:
        return before
    if before is not None:
        before.close()
    with _one_at_a_time:
        _local.station = station = Station(plan, gpu, host)
    return station


class Station:
    """Measures the jobs of one plan in its own workers."""

    def __init__(self, plan: Plan, gpu: str, host: Host) -> None:
        """Raise UsageError if the host cannot run the plan, or another run has locked the GPU."""
        if "cuda" in plan.devices and (reason := cuda_missing()):
            raise UsageError(f"the run measures on cuda: {reason}")
        if max(plan.threads) > cpu_count():
            usable = f"only {cpu_count()} CPUs may be used"
            raise UsageError(f"the run uses {max(plan.threads)} threads, but {usable}; see --threads")
        self.plan, self._gpu, self._host = plan, gpu, host
        self._locks, self._workers = ExitStack(), Workers()
        self._processes = planned_processes(plan)
        if not gpu:  # otherwise the run has locked it
            self._locks.enter_context(exclusive(plan.devices, plan.share_gpu))
        self._workers.load(plan)
        self._registry = discover(plan.plugins, plan.timeout_s)
        self._taken: list[tuple[Ceiling, str]] = []
        self._ceilings: Ceilings | None = None
        if plan.ceilings and plan.mode.does.times:
            self._ceilings = Ceilings(
                self._registry, self._execute, lambda ceiling: self._taken.append((ceiling, "")), self._doubt
            )

    def close(self) -> None:
        self._workers.close()
        self._locks.close()

    def measure(self, jobs: Sequence[PlannedJob]) -> StationRows:
        """Measure all jobs once per process; the passes over the jobs begin at least `spread_s` seconds apart."""
        self._taken.clear()
        measured: list[list[list[Measurement]]] = [[] for _ in jobs]
        rows: dict[int, list[Measurement]] = {}
        for process in count(1):
            began = now()
            for place, (planned, before) in enumerate(zip(jobs, measured, strict=True)):
                if place in rows:
                    continue
                if left := still_good(planned, before):
                    before.append(self._execute(left.job, msgspec.structs.replace(planned.key, process=process)))
                if is_settled(planned, before, self._processes):
                    rows[place] = merge(counted(before, self._processes), planned.job.baseline_of)
                    if self._ceilings is not None:
                        self._ceilings.apply(planned.job, rows[place])
            if len(rows) == len(jobs):
                break
            pause(max(0.0, began + self.plan.spread_s - now()))
        return StationRows(self._host, [rows[place] for place in range(len(jobs))], list(self._taken))

    def _execute(self, job: Job, key: WorkerKey) -> list[Measurement]:
        with self._turn(job):
            return self._workers.run(job, msgspec.structs.replace(key, gpu=self._gpu))

    def _turn(self, job: Job) -> AbstractContextManager[None]:
        on_host = any(self._registry.kernels[name].device == "cpu" for name in job.kernels)
        return turn(on_host or any(self._registry.problem(name).uses_host for name in job.problems))

    def _doubt(self, ceiling: Ceiling, reason: str) -> None:
        self._taken = [(known, reason if known == ceiling else doubt) for known, doubt in self._taken]
