"""A worker process as its parent sees it: asked, watched, and ended where it hangs or takes the last of the memory."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO, NamedTuple

import msgspec

from bench.measure import memory
from bench.measure.board import Board
from bench.measure.isa import environment
from bench.measure.timing import now
from bench.plan.case import Entrant, Job, WorkerKey
from bench.plan.errors import UsageError
from bench.plan.status import Status
from bench.run.progress import Progress
from bench.run.worker import Reply, receive, send

#: How often a worker at work is looked at: seldom enough not to disturb what it measures.
POLL_S = 0.25
#: Compiling and planning may take this many times what a call may.
SET_UP_FACTOR = 10
#: How long a process whose pipe has ended may take to end.
EXIT_S = 5.0
#: How old a count of the system's kills may be when a job begins: to read it takes as long as a quick job.
KILLS_AGE_S = 1.0
#: Less memory than this share of the whole must not be left: beyond it the system would choose whom to kill.
MEMORY_FLOOR = 0.03


class Death(NamedTuple):
    """How a worker ended within a job: the contender that was being called, if any, and what its row will say.

    fresh: it had run no job before, so that none of an earlier one may have been the cause.
    """

    entrant: Entrant | None
    status: Status
    reason: str
    fresh: bool = True


class Worker:
    """One process that runs jobs of one key, watched from outside."""

    def __init__(self, key: WorkerKey, progress: Progress) -> None:
        self._progress = progress
        self._shared, self._log = _scratch_file(), _scratch_file()
        self._board = Board(self._shared.fileno())
        self._fresh = True
        self._kills, self._kills_at_s = memory.kills_by_system(), now()
        jobs, self._jobs = os.pipe()
        self._replies, replies = os.pipe()
        passed = (jobs, replies, self._shared.fileno())
        words = [*map(str, (*passed, os.getpid())), msgspec.json.encode(key).decode()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.run.worker", *words],
            env={**os.environ, **environment(key.isa), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # an interrupt from the terminal is the parent's to handle
        )
        os.close(jobs)
        os.close(replies)

    def ask(self, job: Job) -> Reply | Death:
        """The rows of a job, or how the worker ended in it. Raises UsageError for what the worker refuses."""
        fresh, self._fresh = self._fresh, False
        reply = self._answer(job)
        self._relay()
        return reply._replace(fresh=fresh) if isinstance(reply, Death) else reply

    def _answer(self, job: Job) -> Reply | Death:
        self._board.clear()
        if now() - self._kills_at_s > KILLS_AGE_S:
            self._kills, self._kills_at_s = memory.kills_by_system(), now()
        try:
            send(self._jobs, job)
            reply: Reply | None = Reply(unfinished=True)
            while reply is not None and reply.unfinished:
                if death := self._wait_for_reply(job):
                    return death
                reply = receive(self._replies, Reply)
                if reply is not None and reply.glimpses:
                    self._progress.glimpses(reply.glimpses)
        except (BrokenPipeError, msgspec.DecodeError):
            reply = None
        if reply is None:
            return self._died(job)
        if reply.refused:
            raise UsageError(reply.refused)
        if reply.lost:
            return Death(reply.lost[0], Status.CRASHED, reply.lost[1])
        return reply

    def _wait_for_reply(self, job: Job) -> Death | None:
        """Return None once there is something to read, or why there will not be."""
        while not self._has_replied(POLL_S):
            if verdict := self._overdue(job) or self._greedy(job):
                self._process.kill()
                return verdict
            if self._process.poll() is not None and not self._has_replied(0):
                return self._died(job)  # what it has forked holds the pipe open
            if call := self._board.read():
                self._progress.calls(job.entrants[call.contender], call.stage)
        return None

    def _has_replied(self, seconds: float) -> bool:
        """Return whether there is something to read within so long, be it the end."""
        return bool(select.select([self._replies], [], [], seconds)[0])

    def _overdue(self, job: Job) -> Death | None:
        call = self._board.read()
        if call is None:
            return None
        limit = job.timeout_s * (SET_UP_FACTOR if call.stage == "set-up" else 1)
        if now() - call.since_s <= limit:
            return None
        reason = f"{call.stage} took more than {limit:g} s; see --timeout"
        return Death(job.entrants[call.contender], Status.TIMEOUT, reason)

    def _greedy(self, job: Job) -> Death | None:
        """End a worker that takes the last of the memory, before the system has to choose a process to end."""
        available, whole = memory.available_bytes(), memory.whole_bytes()
        own = memory.resident_bytes(self._process.pid)
        if available is None or whole is None or own is None:
            return None
        if available > MEMORY_FLOOR * whole or own < available:
            return None
        entrant, stage = self._caller(job)
        found = f"the process took {own / 1e9:.3g} GB, {available / 1e9:.2g} GB are left"
        return Death(entrant, Status.OOM, f"{stage}: {found}")

    def _caller(self, job: Job) -> tuple[Entrant | None, str]:
        call = self._board.read()
        return (job.entrants[call.contender], call.stage) if call else (None, "between calls")

    def _died(self, job: Job) -> Death:
        entrant, stage = self._caller(job)
        try:
            code = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return Death(entrant, Status.CRASHED, f"{stage}: the process answers no more, and has not ended")
        how = signal.Signals(-code).name if code < 0 else f"the process ended with status {code}"
        if code == -signal.SIGKILL and memory.kills_by_system() > self._kills:
            return Death(entrant, Status.OOM, f"{stage}: killed by the system for want of memory")
        said = self._last_words()
        return Death(entrant, Status.CRASHED, f"{stage}: {how}" + (f": {said}" if said else ""))

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def _relay(self) -> None:
        """Pass on what kernels and libraries have printed to where complaints go, and not among the tables."""
        self._log.seek(0)
        if text := self._log.read().decode(errors="replace"):
            sys.stderr.write(text)
            self._log.seek(0)
            self._log.truncate()

    def close(self) -> None:
        """End the process, at once."""
        os.close(self._jobs)
        with suppress(ProcessLookupError, PermissionError):  # what a kernel has started ends with it
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._replies)
        self._board.close()
        self._shared.close()
        self._log.close()


def _scratch_file() -> IO[bytes]:
    """A file without a name, which ends with the processes that hold it. Raises UsageError where none can be made."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise UsageError(f"a worker needs a file for what it prints: {error}; TMPDIR names another folder") from None
