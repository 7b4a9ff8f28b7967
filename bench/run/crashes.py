"""Run jobs in worker processes: a kernel that crashes its worker loses one row, and the other kernels run again.

The parent ends a worker that hangs or uses up the memory.
"""

import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure import memory
from kernelmark.bench.measure.affinity import process_tree
from kernelmark.bench.measure.board import IMPORT, OF_OPERATION, Board, Call
from kernelmark.bench.measure.isa import environment
from kernelmark.bench.measure.machine import idle_variables
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Budget, Entrant, Job, Plan, WorkerKey
from kernelmark.bench.plan.discovery import discover, others_installed
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import REGISTRY
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.child import Child, relay, scratch_file, trim
from kernelmark.bench.run.family import below
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.worker import Reply

#: The most idle workers that are kept for later jobs; if there are more, the least recently used worker is ended.
MAX_WAITING = 4
#: A signal from another process may have nothing to do with a kernel: the contenders that were being called are
#: blamed only after this many workers were killed.
KILLS = 3
#: A kernel that has crashed this many workers is skipped.
LEFT_OUT_AFTER = 2
#: A kernel's set-up and an operation's code may take this many times the limit of a call.
SLOW_FACTOR = 10
#: The minimum limits for an operation's code and for imports, whose time does not depend on the kernel.
LEAST_S, LEAST_IMPORT_S = 10.0, 10.0
#: The limit of a whole job: for each contender CALLS call limits and BUDGETS sampling budgets, at least LEAST_JOB_S.
CALLS, BUDGETS, LEAST_JOB_S = 100, 10, 60.0
#: This share of the memory, at least this many bytes, must stay free; with less the system would kill a process.
FLOOR_SHARE, LEAST_FLOOR_BYTES = 0.03, 128 * 2**20
#: Seconds between two checks of a busy worker, which disturb it little; if memory is short, as few as SOONEST_S.
POLL_S, SOONEST_S = 0.25, 5e-3
#: If the parent checks a worker this much too late, the parent itself was stopped, as in a paused container.
STOPPED_S = 1.0
#: The rate at which a process is assumed to fill memory.
FILL_BYTES_PER_S = 20e9
#: A count of the system's out-of-memory kills is reused up to this age, since reading it takes as long as a short job.
KILLS_AGE_S = 1.0
#: Signals that come from other processes; a fault of the worker itself raises different signals.
FROM_OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
#: The number of processes that a kernel may start in addition to one per thread.
MOST_PROCESSES = 64
#: The reason for a kernel that forks its worker.
FORKED = "the call also returned in a process that it forked, expected os._exit there"
#: Statuses that another kernel in the process may have caused.
BLAMED = (Status.WRONG, Status.MISTRUSTED, Status.FAILED, Status.OOM)
#: The key of a worker: its environment, its plug-ins, and whether it loads no installed ones, as for ceilings.
_Slot = tuple[WorkerKey, tuple[str, ...], bool]
#: A function that measures a job in the worker with a key.
Execute = Callable[[Job, WorkerKey], list[Measurement]]


class Death(NamedTuple):
    """The end of a worker during a job. blamed: the contenders that were being called; status, reason: for their rows.

    fresh: it was the worker's first job, so no earlier job is the cause. killed: a signal from another process ended
    the worker, so perhaps no contender is the cause. entropy: random bits that the operands were drawn from, if any.
    """

    blamed: tuple[Entrant, ...]
    status: Status
    reason: str
    fresh: bool = True
    killed: bool = False
    entropy: str = ""


class Worker:
    """A process that runs the jobs of one `WorkerKey`, monitored from its parent."""

    def __init__(self, key: WorkerKey) -> None:
        self._shared = scratch_file()
        self._board = Board(self._shared.fileno())
        self.is_fresh, self._look_s = True, next_look_s(_spare_bytes())
        self._asked_s = self._looked_s = now()
        #: Begin and end of each span in which this process was stopped during the job.
        self._stops: list[tuple[float, float]] = []
        self._kills, self._kills_at_s = memory.kills_by_system(), now()
        variables = idle_variables() | environment(key.isa) | ({"CUDA_VISIBLE_DEVICES": key.gpu} if key.gpu else {})
        shared, words = self._shared.fileno(), msgspec.json.encode(key).decode()
        self._child = Child("kernelmark.bench.run.worker", str(shared), words, variables=variables, passed=[shared])

    def ask(self, job: Job, progress: Progress) -> Reply | Death:
        """Return a job's rows, or how the worker ended during the job. Raises UsageError for a refused job."""
        fresh, self.is_fresh = self.is_fresh, self.is_fresh and not job.entrants
        self._board.clear()
        if now() - self._kills_at_s > KILLS_AGE_S:
            self._kills, self._kills_at_s = memory.kills_by_system(), now()
        asked_s = now()
        reply = self._answer(job, progress)
        if call := self._board.returned_twice(asked_s):
            reply = Death(_blamed(job, call), Status.CRASHED, f"{call.stage}: {FORKED}")
        elif isinstance(reply, Reply):
            reply = self._crowded(job, None) or reply
        relay(self._child.log, sys.stderr)
        return reply._replace(fresh=fresh, entropy=self._board.entropy) if isinstance(reply, Death) else reply

    def _answer(self, job: Job, progress: Progress) -> Reply | Death:
        number = self._child.ask(job)
        self._asked_s = self._looked_s = now()
        self._stops = []
        try:
            while True:
                message = self._child.receive(self._look_s)
                if message is None:
                    if death := self._look(job, progress):
                        return death
                    continue
                reply = msgspec.msgpack.decode(message.body, type=Reply)
                if message.number != number:
                    return self._died(job)
                if not reply.glimpses:
                    break
                progress.glimpses(reply.glimpses)
        except (EOFError, msgspec.DecodeError):
            return self._died(job)
        if reply.refused:
            raise UsageError(reply.refused)
        if reply.lost:
            return Death((reply.lost[0],), Status.CRASHED, reply.lost[1])
        return reply

    def _look(self, job: Job, progress: Progress) -> Death | None:
        """Return why the worker must be ended, or None, and report the call in progress."""
        self._note_stop()
        trim(self._child.log)
        spare, call = _spare_bytes(), self._board.read()
        if death := self._overdue(job, call) or self._greedy(job, call, spare) or self._crowded(job, call):
            return death
        self._look_s = next_look_s(spare)
        if call and call.stage != IMPORT:
            progress.calls(job.entrants[call.contender], call.stage)
        return None

    def _note_stop(self) -> None:
        """If this process (and perhaps the worker) was stopped since its last check of the worker, record when."""
        due_s, self._looked_s = self._looked_s + POLL_S, now()
        if self._looked_s - due_s > STOPPED_S:
            self._stops.append((due_s, self._looked_s))

    @property
    def stopped_s(self) -> float:
        """Return the seconds during which this process, and perhaps the worker, was stopped in the last job."""
        return sum(end - begin for begin, end in self._stops)

    def _ran_s(self, since_s: float) -> float:
        """Return the seconds from `since_s` to the last check, without the time in which this process was stopped."""
        return self._looked_s - since_s - sum(max(0.0, end - max(begin, since_s)) for begin, end in self._stops)

    def _overdue(self, job: Job, call: Call | None) -> Death | None:
        """Return the `Death` of a worker whose call or job takes too long, or None; for an import, raise UsageError."""
        limit_s = call_limit_s(call.stage, job.timeout_s) if call else 0.0
        if call and self._ran_s(call.since_s) > limit_s:
            reason = f"{call.stage} took more than {limit_s:g} s; see --timeout"
            if call.stage == IMPORT:
                subject = f"plugin {' and '.join(job.plugins)}" if job.plugins else "the libraries of kernels"
                raise UsageError(f"{subject}: {reason}")
        elif self._ran_s(self._asked_s) > job_limit_s(job):
            reason = f"all kernels together took more than {job_limit_s(job):g} s; see --timeout"
        else:
            return None
        return Death(_blamed(job, call), Status.TIMEOUT, reason)

    def _greedy(self, job: Job, call: Call | None, spare: float | None) -> Death | None:
        """If memory is short and the worker uses more than is left, return its `Death`, else None."""
        if spare is None or spare > 0:
            return None
        used, available = sum(member.resident_bytes for member in below(self._child.pid)), memory.available_bytes() or 0
        if used < available:
            return None
        complaint = f"the process used {used / 1e9:.3g} GB, {available / 1e9:.2g} GB are left"
        return Death(_blamed(job, call), Status.OOM, f"{_stage(call)}: {complaint}")

    def _crowded(self, job: Job, call: Call | None) -> Death | None:
        """Return the `Death` of a worker with too many descendants, or None."""
        limit = MOST_PROCESSES + job.threads
        started = len([*process_tree(str(self._child.pid))]) - 2  # without the keeper and the worker
        if started <= limit:
            return None
        reason = f"{_stage(call)}: the worker has started {started} processes, expected at most {limit}"
        return Death(_blamed(job, call), Status.CRASHED, reason)

    def _died(self, job: Job) -> Death:
        call = self._board.read()
        blamed, stage = _blamed(job, call), _stage(call)
        status, fate = self._child.fate()
        if status == -signal.SIGKILL and memory.kills_by_system() > self._kills:
            return Death(blamed, Status.OOM, f"{stage}: killed by the system for lack of memory")
        return Death(blamed, Status.CRASHED, f"{stage}: {fate}", killed=-(status or 0) in FROM_OUTSIDE)

    def close(self) -> None:
        self._child.close()
        self._board.close()
        self._shared.close()


def call_limit_s(stage: str, timeout_s: float) -> float:
    """Return the seconds that a call of foreign code may take in a stage; a kernel's call may take `timeout_s`."""
    if stage == IMPORT:
        return max(LEAST_IMPORT_S, timeout_s)
    if stage in OF_OPERATION:
        return max(LEAST_S, SLOW_FACTOR * timeout_s)
    return SLOW_FACTOR * timeout_s if stage == "set-up" else timeout_s


def job_limit_s(job: Job) -> float:
    """Return the seconds that a whole job may take, including work between monitored calls."""
    each_s = CALLS * job.timeout_s + BUDGETS * job.budget.max_time_s
    return max(LEAST_JOB_S, len(job.entrants) * each_s)


def floor_bytes(whole_bytes: int) -> float:
    """Return how many bytes of a total of `whole_bytes` of memory must stay free."""
    return max(FLOOR_SHARE * whole_bytes, LEAST_FLOOR_BYTES)


def next_look_s(spare_bytes: float | None) -> float:
    """Return the seconds until the next check of a worker. spare_bytes: available memory minus the reserve."""
    return POLL_S if spare_bytes is None else min(POLL_S, max(SOONEST_S, spare_bytes / FILL_BYTES_PER_S))


def _spare_bytes() -> float | None:
    """Return the available memory minus the reserve that must stay free, in bytes, or None if unknown."""
    available, whole = memory.available_bytes(), memory.whole_bytes()
    return None if available is None or whole is None else available - floor_bytes(whole)


def _blamed(job: Job, call: Call | None) -> tuple[Entrant, ...]:
    """Return the contenders to blame: the called one; all on a problem whose class was called; none for an import."""
    if call is None or call.stage == IMPORT:
        return ()
    entrant = job.entrants[call.contender]
    if call.stage in OF_OPERATION:
        return tuple(other for other in job.entrants if other.problem == entrant.problem)
    return (entrant,)


def _stage(call: Call | None) -> str:
    return call.stage if call else "between calls"


class Workers(AbstractContextManager["Workers", None]):
    """The worker processes of a run. A worker is started for the first job with its key, and reports to `progress`."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress or Progress()
        self._waiting: dict[_Slot, Worker] = {}
        self._had_company = False

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, without waiting for their jobs."""
        while self._waiting:  # an interrupt may come here, and no worker is closed twice
            self._waiting.popitem()[1].close()

    def load(self, plan: Plan) -> None:
        """Load a plan's plug-ins in a worker before this process loads them, since a worker that hangs can be ended.

        Raises UsageError for a plug-in that hangs, ends its process or cannot be loaded.
        """
        if plan.plugins:
            threads, isa = plan.threads[0], plan.isas[0]
            job = Job((), (), plan.mode, plan.plugins, plan.seed, Budget(), threads, timeout_s=plan.timeout_s)
            key = WorkerKey("cpu", threads, isa)
            self._waiting[_slot(key, job)] = Worker(key)
            discover()  # while the worker starts, since finding installed plug-ins takes as long
            self.run(job, key)

    def run(self, job: Job, key: WorkerKey) -> list[Measurement]:
        """Return the rows of a job, in the order of its contenders, from the worker with this key.

        Raises UsageError for ids and plug-ins that do not exist; faults of a kernel do not raise.
        """
        return self._survive(job.of_process(key.process), key)

    def _confirmed(self, job: Job, row: Measurement, key: WorkerKey) -> Measurement:
        """If another kernel may have caused a failure, run this one alone. Return its new row if it succeeds, or `row`.

        The kernel is first verified on the same values, then measured on new ones, since it may have kept results.
        """
        if row.status not in BLAMED:
            return row
        alone, again = job.only([row.entrant]), row
        same = msgspec.structs.replace(alone, entropy=row.entropy, mode=Mode.VERIFY)
        for part in (same, alone)[row.status == Status.MISTRUSTED :]:
            if worker := self._waiting.pop(_slot(key, job), None):
                worker.close()
            (again,) = self._survive(part, key, again.attempt + 1)
            if again.status != Status.OK:
                return row
        again.note(f"measured alone, since with other kernels it was {row.status}: {row.reason}")
        return again

    def _ask(self, job: Job, key: WorkerKey) -> Reply | Death:
        slot = _slot(key, job)
        worker = self._waiting.pop(slot, None) or Worker(key)
        for other in list(self._waiting):  # the previous pass's workers are done
            if other[0].process < key.process or len(self._waiting) >= MAX_WAITING:
                self._waiting.pop(other).close()
        self._had_company = len(job.entrants) > 1 or not worker.is_fresh
        try:
            reply = worker.ask(job, self.progress)
            if isinstance(reply, Reply) and job.mode.does.times and (stopped_s := worker.stopped_s):
                reply = self._again(worker, job, reply, stopped_s)
        except BaseException:
            worker.close()
            raise
        if isinstance(reply, Death) or reply.is_awake:
            worker.close()
        else:
            self._waiting[slot] = worker  # last in order: the one used most recently
        return reply

    def _again(self, worker: Worker, job: Job, reply: Reply, stopped_s: float) -> Reply | Death:
        """Measure timed rows again in the same worker, since samples may include the stop of `stopped_s` seconds."""
        timed = [row.entrant for row in reply.rows if row.interval]
        again = worker.ask(job.only(timed), self.progress) if timed else Reply()
        self._had_company = True
        if isinstance(again, Death) or again.replaced:
            return again
        more = f", and for {worker.stopped_s:.2g} s meanwhile" if timed and worker.stopped_s else ""
        for row in filter(lambda row: row.interval, again.rows):
            row.note(f"measured again, since kernelmark had been stopped for {stopped_s:.2g} s{more}")
        rows = {row.entrant: row for row in (*reply.rows, *again.rows)}
        is_awake = reply.is_awake or again.is_awake
        return msgspec.structs.replace(reply, rows=list(rows.values()), is_awake=is_awake)

    def _survive(self, job: Job, key: WorkerKey, attempt: int = 1, killed: tuple[Death, ...] = ()) -> list[Measurement]:
        """Run the job, and again without the contenders that ended their worker, until a worker returns rows.

        killed: earlier deaths in this job that were caused by a signal from another process.
        """
        reply = self._ask(job, key)
        if isinstance(reply, Reply) and reply.replaced:
            return self._without_plugins(job, reply, key, attempt)
        if isinstance(reply, Reply):
            had_company = self._had_company
            for row in reply.rows:
                row.attempt = attempt
            return [self._confirmed(job, row, key) if had_company else row for row in reply.rows]
        if not job.entrants:
            raise UsageError(f"plugin {' and '.join(job.plugins)}: {reply.reason}")
        if not reply.fresh and reply.status != Status.TIMEOUT:  # an earlier job may have been the cause
            return self._survive(job, key, attempt + 1)
        if reply.killed:
            killed = (*killed, reply)
            # Whether the same contender, of several, was being called when the last two workers were killed.
            suspected = len(job.entrants) > 1 and len(killed) > 1 and killed[-2].blamed == reply.blamed != ()
            if len(killed) < KILLS and not suspected:
                return self._survive(job, key, attempt + 1, killed)
        if len(job.entrants) == 1:
            return [_row(job.entrants[0], reply, attempt)]
        if reply.status == Status.OOM and len(job.problems) > 1:  # its variants may have taken the memory
            return self._apart(job, reply, key, attempt + 1)
        if not reply.blamed:  # the worker ended between two calls, so each contender is tried alone
            return [self._alone(job, entrant, reply, key, attempt + 1, killed) for entrant in job.entrants]
        # Blamed contenders run first, so that no other contender has run in the next worker.
        rows = [self._blamed(job, entrant, reply, key, attempt, killed) for entrant in reply.blamed]
        if others := [entrant for entrant in job.entrants if entrant not in reply.blamed]:
            rows += self._survive(job.only(others), key, attempt + 1)
        return sorted(rows, key=lambda row: job.entrants.index(row.entrant))

    def _without_plugins(self, job: Job, reply: Reply, key: WorkerKey, attempt: int) -> list[Measurement]:
        """Return a job's rows; our kernels run without the plug-ins, which have replaced functions of libraries."""
        ours = msgspec.structs.replace(job.only(reply.ours), plugins=(), ours=True)
        theirs = job.only([entrant for entrant in job.entrants if entrant not in reply.ours])
        rows = [row for part in (ours, theirs) if part.entrants for row in self._survive(part, key, attempt)]
        for row in rows:
            row.note(f"our kernels were measured without the plug-ins, which had replaced {reply.replaced}")
        return sorted(rows, key=lambda row: job.entrants.index(row.entrant))

    def _blamed(
        self, job: Job, entrant: Entrant, death: Death, key: WorkerKey, attempt: int, killed: tuple[Death, ...]
    ) -> Measurement:
        """Return the row of a contender that was being called; it is tried alone first if another may be the cause.

        A kernelmark kernel that hung in a job with plug-ins is tried alone, too.
        """
        kernel = REGISTRY.kernels.get(entrant.kernel)
        if death.status != Status.TIMEOUT or (job.plugins and kernel and kernel.is_ours):
            return self._alone(job, entrant, death, key, attempt + 1, killed)
        return _row(entrant, death, attempt)

    def _alone(
        self, job: Job, entrant: Entrant, death: Death, key: WorkerKey, attempt: int, killed: tuple[Death, ...]
    ) -> Measurement:
        (row,) = self._survive(job.only([entrant]), key, attempt, killed)
        if row.interval:
            row.note(f"measured alone, since with other kernels the worker was lost ({death.reason})")
        return row

    def _apart(self, job: Job, death: Death, key: WorkerKey, attempt: int) -> list[Measurement]:
        """Return the rows of variants that do not fit into memory together, measured one problem after the other."""
        rows = [row for part in job.apart() for row in self._survive(part, key, attempt)]
        for row in filter(lambda row: row.interval, rows):
            row.note(f"measured separately from its variants, since with them the worker was lost ({death.reason})")
        return rows


def _slot(key: WorkerKey, job: Job) -> _Slot:
    return key, job.plugins, job.ours and others_installed()


def _row(entrant: Entrant, death: Death, attempt: int) -> Measurement:
    problem, kernel = entrant
    return Measurement(
        kernel=kernel, problem=problem, status=death.status, reason=death.reason, attempt=attempt, entropy=death.entropy
    )


class Wary:
    """Measures jobs through `execute`, but skips kernels that have crashed `LEFT_OUT_AFTER` workers.

    Otherwise a kernel that hangs would cost its time-out again on each problem. left_out: the skipped kernels, with the
    status and the reason of their last death; kernels of an earlier run can be passed in.
    """

    def __init__(self, execute: Execute, left_out: Mapping[str, str] = {}) -> None:
        self._execute = execute
        self._deaths: Counter[str] = Counter()
        self.left_out = dict(left_out)

    def __call__(self, job: Job, key: WorkerKey) -> list[Measurement]:
        """Return a job's rows, in the order of its contenders; skipped ones have the status of their last death."""
        out = dict(self.left_out)
        others = [entrant for entrant in job.entrants if entrant.kernel not in out]
        rows = self._execute(job.only(others), key) if others else []
        for row in rows:
            ends = (":", " took")  # follow the stage in a reason; no kernel is at fault for its operation's code
            of_operation = row.reason.startswith(tuple(stage + end for stage in OF_OPERATION for end in ends))
            if row.status in (Status.CRASHED, Status.TIMEOUT) and not of_operation:
                # A crash is tried again and so costs two workers; a call that hangs is not tried again.
                self._deaths[row.kernel] += 2 if row.status == Status.CRASHED and row.attempt > 1 else 1
                if self._deaths[row.kernel] >= LEFT_OUT_AFTER:
                    self.left_out[row.kernel] = f"{row.status} on {row.problem}: {row.reason}"
        for problem, kernel in job.entrants:
            if reason := out.get(kernel):
                status, why = reason.partition(" ")[0], f"left out after {LEFT_OUT_AFTER} lost workers: {reason}"
                rows.append(Measurement(kernel=kernel, problem=problem, status=status, reason=why))
        return sorted(rows, key=lambda row: job.entrants.index(row.entrant))
