"""Jobs without the kernels that have taken workers along: a hang would cost its time-out again on each problem."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from bench.measure.measurement import Measurement
from bench.plan.case import Job, WorkerKey
from bench.plan.status import Status
from bench.run.pool import Execute

#: Workers that a kernel may take along before it is left out.
LIMIT = 2


class Wary:
    """Measures jobs through `execute`, and gives a kernel that took `LIMIT` workers along no further call.

    left_out: the kernels that are left out, with the status and the reason of their last death; those of an earlier
    run can be handed in.
    """

    def __init__(self, execute: Execute, left_out: Mapping[str, str] = MappingProxyType({})) -> None:
        self._execute = execute
        self._deaths: Counter[str] = Counter()
        self.left_out = dict(left_out)

    def __call__(self, job: Job, key: WorkerKey) -> list[Measurement]:
        """The rows of a job, in the order of its kernels; those left out have the status of their last death."""
        out = dict(self.left_out)
        others = tuple(kernel for kernel in job.kernels if kernel not in out)
        rows = self._execute(msgspec.structs.replace(job, kernels=others), key) if others else []
        for row in rows:
            self._note(job, row)
        rows += [self._row(kernel) for kernel in job.kernels if kernel in out]
        return sorted(rows, key=lambda row: job.kernels.index(row.kernel))

    def _note(self, job: Job, row: Measurement) -> None:
        if row.status not in (Status.CRASHED, Status.TIMEOUT):
            return
        # A crash that was tried again has cost two workers; a call that hangs is not tried again.
        self._deaths[row.kernel] += 2 if row.status == Status.CRASHED and row.attempt > 1 else 1
        if self._deaths[row.kernel] >= LIMIT:
            self.left_out[row.kernel] = f"{row.status} on {', '.join(job.problems)}: {row.reason}"

    def _row(self, kernel: str) -> Measurement:
        reason = self.left_out[kernel]
        why = f"left out after {LIMIT} lost workers: {reason}"
        return Measurement(kernel=kernel, status=reason.partition(" ")[0], reason=why)
