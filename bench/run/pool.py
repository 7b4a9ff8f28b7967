"""Jobs in processes of their own: a kernel that takes its process along costs one row, and the others run again."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from bench.measure.measurement import Measurement
from bench.plan.case import Job, WorkerKey
from bench.plan.status import Status
from bench.run.process import Death, Worker
from bench.run.worker import Reply

#: Workers that wait for a job of their key; beyond it the one unused for longest is ended.
MAX_WAITING = 4

#: What measures a job in the worker of a key.
Execute = Callable[[Job, WorkerKey], list[Measurement]]


class Workers:
    """The workers of a run, made when a job of their key comes."""

    def __init__(self) -> None:
        self._waiting: dict[WorkerKey, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, at once."""
        for worker in self._waiting.values():
            worker.close()
        self._waiting.clear()

    def run(self, job: Job, key: WorkerKey) -> list[Measurement]:
        """The rows of a job, in the order of its kernels, from the process of this key.

        Raises UsageError for ids and plug-ins that do not exist, never for a kernel's sake.
        """
        return self._survive(job, key)

    def _ask(self, job: Job, key: WorkerKey) -> Reply | Death:
        worker = self._waiting.pop(key, None) or Worker(key)
        for other in list(self._waiting):  # those of the pass before are done
            if other.process < key.process or len(self._waiting) >= MAX_WAITING:
                self._waiting.pop(other).close()
        try:
            reply = worker.ask(job)
        except BaseException:
            worker.close()
            raise
        if isinstance(reply, Death):
            worker.close()
        else:
            self._waiting[key] = worker  # last in order: the one used most recently
        return reply

    def _survive(self, job: Job, key: WorkerKey, attempt: int = 1) -> list[Measurement]:
        """Ask, and ask again without the kernel that ended its worker, until a worker lives to answer."""
        reply = self._ask(job, key)
        if isinstance(reply, Reply):
            for row in reply.rows:
                row.attempt = attempt
            return reply.rows
        if not reply.fresh and reply.status != Status.TIMEOUT:  # an earlier job may have been the cause
            return self._survive(job, key, attempt + 1)
        if len(job.kernels) == 1:
            return [Measurement(kernel=job.kernels[0], status=reply.status, reason=reply.reason, attempt=attempt)]
        if reply.kernel is None:  # whatever it was struck between two calls: each has to show itself alone
            return [self._alone(job, kernel, reply, key, attempt + 1) for kernel in job.kernels]
        blamed = self._blamed(job, reply, key, attempt)  # first, while no other has been in the next process
        others = tuple(kernel for kernel in job.kernels if kernel != reply.kernel)
        rows = [blamed, *self._survive(msgspec.structs.replace(job, kernels=others), key, attempt + 1)]
        return sorted(rows, key=lambda row: job.kernels.index(row.kernel))

    def _blamed(self, job: Job, death: Death, key: WorkerKey, attempt: int) -> Measurement:
        """The row of the kernel that was being called; one that crashed may have been another's victim."""
        assert death.kernel is not None
        if death.status == Status.CRASHED:
            return self._alone(job, death.kernel, death, key, attempt + 1)
        return Measurement(kernel=death.kernel, status=death.status, reason=death.reason, attempt=attempt)

    def _alone(self, job: Job, kernel: str, death: Death, key: WorkerKey, attempt: int) -> Measurement:
        (row,) = self._survive(msgspec.structs.replace(job, kernels=(kernel,)), key, attempt)
        if row.interval:
            why = f"measured alone, since in company the worker was lost ({death.reason})"
            row.disturbed = "; ".join(filter(None, (why, row.disturbed)))
        return row
