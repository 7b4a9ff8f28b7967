"""Jobs without the kernels that have taken workers along: a hang would cost its time-out again on each problem."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Entrant, Job, WorkerKey
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.pool import Execute

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
        """The rows of a job, in the order of its contenders; those left out have the status of their last death."""
        out = dict(self.left_out)
        others = [entrant for entrant in job.entrants if entrant.kernel not in out]
        rows = self._execute(job.only(others), key) if others else []
        for row in rows:
            self._note(row)
        rows += [self._row(entrant) for entrant in job.entrants if entrant.kernel in out]
        return sorted(rows, key=lambda row: job.entrants.index(row.entrant))

    def _note(self, row: Measurement) -> None:
        if row.status not in (Status.CRASHED, Status.TIMEOUT):
            return
        # A crash that was tried again has cost two workers; a call that hangs is not tried again.
        self._deaths[row.kernel] += 2 if row.status == Status.CRASHED and row.attempt > 1 else 1
        if self._deaths[row.kernel] >= LIMIT:
            self.left_out[row.kernel] = f"{row.status} on {row.problem}: {row.reason}"

    def _row(self, entrant: Entrant) -> Measurement:
        problem, kernel = entrant
        reason = self.left_out[kernel]
        why = f"left out after {LIMIT} lost workers: {reason}"
        return Measurement(kernel=kernel, problem=problem, status=reason.partition(" ")[0], reason=why)
