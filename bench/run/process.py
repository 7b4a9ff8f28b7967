"""A worker process as its parent sees it: asked, watched, and ended where it hangs or takes the last of the memory."""

import os
import select
import signal
import sys
import tempfile
from typing import IO, NamedTuple

import msgspec

from kernelmark.bench.measure import memory
from kernelmark.bench.measure.board import IMPORT, OF_OPERATION, Board, Call
from kernelmark.bench.measure.isa import environment
from kernelmark.bench.measure.machine import idle_variables
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Entrant, Job, WorkerKey
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run import limits
from kernelmark.bench.run.family import below
from kernelmark.bench.run.kept import KeptProcess
from kernelmark.bench.run.printed import last_words, relay, trim
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.worker import Inbox, Reply, send

#: How long a process whose pipe has ended may take to end.
EXIT_S = 5.0
#: How old a count of the system's kills may be when a job begins: to read it takes as long as a quick job.
KILLS_AGE_S = 1.0
#: The signals that come from another process: a fault of the worker's own raises others.
FROM_OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
#: Held since before a plug-in could replace it.
_select = select.select


class Death(NamedTuple):
    """How a worker ended within a job: the contenders that were being called for, and what their rows will say.

    fresh: it had run no job before, so that none of an earlier one may have been the cause. killed: by a signal from
    another process, so that none of its contenders need be the cause.
    """

    blamed: tuple[Entrant, ...]
    status: Status
    reason: str
    fresh: bool = True
    killed: bool = False


class Worker:
    """One process that runs jobs of one key, watched from outside."""

    def __init__(self, key: WorkerKey) -> None:
        self._shared, self._log = scratch_file(), scratch_file()
        self._board = Board(self._shared.fileno())
        self._fresh, self._look_s = True, limits.next_look_s(self._spare_bytes())
        self._kills, self._kills_at_s = memory.kills_by_system(), now()
        jobs, self._jobs = os.pipe()
        self._replies, replies = os.pipe()
        self._inbox = Inbox(self._replies)
        passed = (jobs, replies, self._shared.fileno())
        words = [*map(str, passed), msgspec.json.encode(key).decode()]
        self._kept = KeptProcess(
            "kernelmark.bench.run.worker", words, _variables(key), pass_fds=passed, stdout=self._log, stderr=self._log
        )
        os.close(jobs)
        os.close(replies)

    def ask(self, job: Job, progress: Progress) -> Reply | Death:
        """The rows of a job, or how the worker ended in it. Raises UsageError for what the worker refuses."""
        self._progress = progress
        fresh, self._fresh = self._fresh, self._fresh and not job.entrants
        reply = self._answer(job)
        relay(self._log.fileno(), sys.stderr)
        return reply._replace(fresh=fresh) if isinstance(reply, Death) else reply

    def _answer(self, job: Job) -> Reply | Death:
        self._board.clear()
        if now() - self._kills_at_s > KILLS_AGE_S:
            self._kills, self._kills_at_s = memory.kills_by_system(), now()
        until_s = now() + limits.job_limit_s(job)
        try:
            send(self._jobs, job)
            while (reply := self._inbox.next(Reply)) is None or reply.unfinished:
                if reply is not None:
                    self._progress.glimpses(reply.glimpses)
                elif death := self._wait(job, until_s):
                    return death
                elif not self._inbox.fill():
                    return self._died(job)
        except (BrokenPipeError, msgspec.DecodeError):
            return self._died(job)
        if reply.refused:
            raise UsageError(reply.refused)
        if reply.lost:
            return Death((reply.lost[0],), Status.CRASHED, reply.lost[1])
        return reply

    def _wait(self, job: Job, until_s: float) -> Death | None:
        """Return None once there is something to read, or why there will not be."""
        while not self._has_replied(self._look_s):
            trim(self._log.fileno())
            spare = self._spare_bytes()
            if verdict := self._overdue(job, until_s) or self._greedy(job, spare):
                self._kept.order_end()
                return verdict
            if self._kept.ended() is not None and not self._has_replied(0):
                return self._died(job)
            self._look_s = limits.next_look_s(spare)
            call = self._board.read()
            if call and call.stage != IMPORT:
                self._progress.calls(job.entrants[call.contender], call.stage)
        return None

    def _has_replied(self, seconds: float) -> bool:
        """Return whether there is something to read within so long, be it the end."""
        return bool(_select([self._replies], [], [], seconds)[0])

    def _overdue(self, job: Job, until_s: float) -> Death | None:
        """Return how a worker ends whose call, or whose job, takes too long. Raises UsageError for an import."""
        call = self._board.read()
        limit_s = limits.call_limit_s(call.stage, job.timeout_s) if call else 0.0
        if call and now() - call.since_s > limit_s:
            reason = f"{call.stage} took more than {limit_s:g} s; see --timeout"
            if call.stage == IMPORT:
                subject = f"plugin {' and '.join(job.plugins)}" if job.plugins else "the libraries of kernels"
                raise UsageError(f"{subject}: {reason}")
            return Death(_blamed(job, call), Status.TIMEOUT, reason)
        if now() > until_s:
            reason = f"the whole job took more than {limits.job_limit_s(job):g} s; see --timeout"
            return Death(_blamed(job, call), Status.TIMEOUT, reason)
        return None

    def _spare_bytes(self) -> float | None:
        """Return what may still be taken before the memory that is left reaches the floor; None where it is unknown."""
        available, whole = memory.available_bytes(), memory.whole_bytes()
        return None if available is None or whole is None else available - limits.floor_bytes(whole)

    def _greedy(self, job: Job, spare: float | None) -> Death | None:
        """End a worker that takes the last of the memory, before the system has to choose a process to end."""
        if spare is None or spare > 0:
            return None
        own, available = sum(member.resident_bytes for member in below(self._kept.pid)), memory.available_bytes() or 0
        if own < available:
            return None
        found = f"the process took {own / 1e9:.3g} GB, {available / 1e9:.2g} GB are left"
        call = self._board.read()
        return Death(_blamed(job, call), Status.OOM, f"{_stage(call)}: {found}")

    def _died(self, job: Job) -> Death:
        call = self._board.read()
        blamed, stage = _blamed(job, call), _stage(call)
        code = self._kept.ended(EXIT_S)
        if code is None:
            self._kept.order_end()
            return Death(blamed, Status.CRASHED, f"{stage}: the process answers no more, and has not ended")
        how = signal.Signals(-code).name if code < 0 else f"the process ended with status {code}"
        if code == -signal.SIGKILL and memory.kills_by_system() > self._kills:
            return Death(blamed, Status.OOM, f"{stage}: killed by the system for want of memory")
        said = last_words(self._log.fileno())
        reason = f"{stage}: {how}" + (f": {said}" if said else "")
        return Death(blamed, Status.CRASHED, reason, killed=-code in FROM_OUTSIDE)

    def close(self) -> None:
        """End the process and whatever it has started, at once."""
        os.close(self._jobs)
        self._kept.end()
        os.close(self._replies)
        self._board.close()
        self._shared.close()
        self._log.close()


def _variables(key: WorkerKey) -> dict[str, str]:
    return idle_variables() | environment(key.isa) | ({"CUDA_VISIBLE_DEVICES": key.gpu} if key.gpu else {})


def _blamed(job: Job, call: Call | None) -> tuple[Entrant, ...]:
    """Return the contenders that a call was for: all on a problem where its class was called, none in an import."""
    if call is None or call.stage == IMPORT:
        return ()
    entrant = job.entrants[call.contender]
    if call.stage in OF_OPERATION:
        return tuple(other for other in job.entrants if other.problem == entrant.problem)
    return (entrant,)


def _stage(call: Call | None) -> str:
    return call.stage if call else "between calls"


def scratch_file() -> IO[bytes]:
    """A file without a name, which ends with the processes that hold it. Raises UsageError where none can be made."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise UsageError(f"a worker needs a file for what it prints: {error}; TMPDIR names another folder") from None
