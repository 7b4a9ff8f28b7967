"""Jobs in processes of their own: a kernel that takes its process along costs one row, and the others run again."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Entrant, Job, Plan, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.process import Death, Worker
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.worker import Reply

#: Workers that wait for a job of their key; beyond it the one unused for longest is ended.
MAX_WAITING = 4

#: A signal from another process may be meant for no kernel: this many workers have to be killed before it counts
#: against the contenders that were being called for.
KILLS = 3

#: What measures a job in the worker of a key.
Execute = Callable[[Job, WorkerKey], list[Measurement]]


class Workers(AbstractContextManager["Workers", None]):
    """The workers of a run, made when a job of their key comes; `progress` gets notice of what they do."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress or Progress()
        self._waiting: dict[WorkerKey, Worker] = {}

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, at once."""
        for worker in self._waiting.values():
            worker.close()
        self._waiting.clear()

    def load(self, plan: Plan) -> None:
        """Load the plug-ins of a plan in a worker, which can be ended, before this process may load them.

        Raises UsageError for one that hangs, ends its process or cannot be loaded.
        """
        if plan.plugins:
            threads, isa = plan.threads[0], plan.isas[0]
            job = Job((), (), plan.mode, plan.plugins, plan.seed, Budget(), threads, timeout_s=plan.timeout_s)
            key = WorkerKey("cpu", threads, isa)
            self._waiting[key] = Worker(key)
            discover()  # while the worker starts: what is installed takes this process as long
            self.run(job, key)

    def run(self, job: Job, key: WorkerKey) -> list[Measurement]:
        """The rows of a job, in the order of its contenders, from the process of this key.

        Raises UsageError for ids and plug-ins that do not exist, never for a kernel's sake.
        """
        return self._survive(job, key)

    def _ask(self, job: Job, key: WorkerKey) -> Reply | Death:
        worker = self._waiting.pop(key, None) or Worker(key)
        for other in list(self._waiting):  # those of the pass before are done
            if other.process < key.process or len(self._waiting) >= MAX_WAITING:
                self._waiting.pop(other).close()
        try:
            reply = worker.ask(job, self.progress)
        except BaseException:
            worker.close()
            raise
        if isinstance(reply, Death):
            worker.close()
        else:
            self._waiting[key] = worker  # last in order: the one used most recently
        return reply

    def _survive(self, job: Job, key: WorkerKey, attempt: int = 1, killed: tuple[Death, ...] = ()) -> list[Measurement]:
        """Ask, and ask again without the contenders that ended their worker, until a worker lives to answer.

        killed: how workers of the same contenders ended by a signal from another process, until now.
        """
        reply = self._ask(job, key)
        if isinstance(reply, Reply):
            for row in reply.rows:
                row.attempt = attempt
            return reply.rows
        if not job.entrants:
            raise UsageError(f"plugin {' and '.join(job.plugins)}: {reply.reason}")
        if not reply.fresh and reply.status != Status.TIMEOUT:  # an earlier job may have been the cause
            return self._survive(job, key, attempt + 1)
        if reply.killed:
            killed = (*killed, reply)
            if len(killed) < KILLS and not _is_suspect(job, killed):
                return self._survive(job, key, attempt + 1, killed)
        if len(job.entrants) == 1:
            return [_row(job.entrants[0], reply, attempt)]
        if reply.status == Status.OOM and len(job.problems) > 1:  # the siblings may be what took the memory
            return self._apart(job, reply, key, attempt + 1)
        if not reply.blamed:  # whatever it was struck between two calls: each has to show itself alone
            return [self._alone(job, entrant, reply, key, attempt + 1, killed) for entrant in job.entrants]
        # First, while no other has been in the next worker.
        rows = [self._blamed(job, entrant, reply, key, attempt, killed) for entrant in reply.blamed]
        if others := [entrant for entrant in job.entrants if entrant not in reply.blamed]:
            rows += self._survive(job.only(others), key, attempt + 1)
        return sorted(rows, key=lambda row: job.entrants.index(row.entrant))

    def _blamed(
        self, job: Job, entrant: Entrant, death: Death, key: WorkerKey, attempt: int, killed: tuple[Death, ...]
    ) -> Measurement:
        """The row of a contender that was being called for; one that crashed may have been another's victim."""
        if death.status == Status.CRASHED:
            return self._alone(job, entrant, death, key, attempt + 1, killed)
        return _row(entrant, death, attempt)

    def _alone(
        self, job: Job, entrant: Entrant, death: Death, key: WorkerKey, attempt: int, killed: tuple[Death, ...]
    ) -> Measurement:
        (row,) = self._survive(job.only([entrant]), key, attempt, killed)
        if row.interval:
            row.note(f"measured alone, since in company the worker was lost ({death.reason})")
        return row

    def _apart(self, job: Job, death: Death, key: WorkerKey, attempt: int) -> list[Measurement]:
        """The rows of a group whose siblings take more memory together than there is, one problem after the other."""
        rows = [row for part in job.apart() for row in self._survive(part, key, attempt)]
        for row in filter(lambda row: row.interval, rows):
            row.note(f"measured apart from its siblings, since with them the worker was lost ({death.reason})")
        return rows


def _is_suspect(job: Job, killed: tuple[Death, ...]) -> bool:
    """Return whether one of several contenders was being called for both times that a worker was killed."""
    if len(job.entrants) == 1 or len(killed) < 2:
        return False
    return killed[-1].blamed == killed[-2].blamed != ()


def _row(entrant: Entrant, death: Death, attempt: int) -> Measurement:
    """The row of a contender that took its worker along."""
    problem, kernel = entrant
    return Measurement(kernel=kernel, problem=problem, status=death.status, reason=death.reason, attempt=attempt)
