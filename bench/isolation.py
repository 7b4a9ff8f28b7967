"""Jobs in processes of their own: a kernel that takes its process along costs one row, and the others run again."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, NamedTuple, Self

import msgspec

from bench.measure import memory
from bench.measure.board import Board
from bench.measure.isa import environment
from bench.measure.measurement import Measurement
from bench.measure.processes import merge
from bench.measure.timing import now
from bench.plan.case import Job, WorkerKey
from bench.plan.errors import UsageError
from bench.serve import Reply, receive, send

#: How often a worker at work is looked at: seldom enough not to disturb what it measures.
POLL_S = 0.25
#: Compiling and planning may take this many times what a call may.
SET_UP_FACTOR = 10
#: Workers that wait for a job of their key; beyond it the one unused for longest is ended.
MAX_WAITING = 4
#: How long a process whose pipe has ended may take to end.
EXIT_S = 5.0
#: How old a count of the system's kills may be when a job begins: to read it takes as long as a quick job.
KILLS_AGE_S = 1.0
#: Less memory than this share of the whole must not be left: beyond it the system would choose whom to kill.
MEMORY_FLOOR = 0.03


#: What measures a job: key of the worker, number of fresh processes.
Execute = Callable[[Job, WorkerKey, int], list[Measurement]]


class Death(NamedTuple):
    """How a worker ended within a job: the kernel that was being called, if any, and what its row will say.

    fresh: it had run no job before, so that none of an earlier one may have been the cause.
    """

    kernel: str | None
    status: str
    reason: str
    fresh: bool = True


class Worker:
    """One process that runs jobs of one key, watched from outside."""

    def __init__(self, key: WorkerKey) -> None:
        self._shared, self._log = _scratch_file(), _scratch_file()
        self._board = Board(self._shared.fileno())
        self._fresh = True
        self._kills, self._kills_at_s = memory.kills_by_system(), now()
        jobs, self._jobs = os.pipe()
        self._replies, replies = os.pipe()
        passed = (jobs, replies, self._shared.fileno())
        words = [*map(str, (*passed, os.getpid())), msgspec.json.encode(key).decode()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.serve", *words],
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
            while not self._has_replied(POLL_S):
                if verdict := self._overdue(job) or self._greedy(job):
                    self._process.kill()
                    return verdict
                if self._process.poll() is not None and not self._has_replied(0):
                    return self._died(job)  # what it has forked holds the pipe open
            reply = receive(self._replies, Reply)
        except (BrokenPipeError, msgspec.DecodeError):
            reply = None
        if reply is None:
            return self._died(job)
        if reply.refused:
            raise UsageError(reply.refused)
        if reply.lost:
            return Death(reply.lost[0], "crashed", reply.lost[1])
        return reply

    def _has_replied(self, seconds: float) -> bool:
        """Whether there is something to read within so long, be it the end."""
        return bool(select.select([self._replies], [], [], seconds)[0])

    def _overdue(self, job: Job) -> Death | None:
        call = self._board.read()
        if call is None:
            return None
        limit = job.timeout_s * (SET_UP_FACTOR if call.stage == "set-up" else 1)
        if now() - call.since_s <= limit:
            return None
        return Death(job.kernels[call.contender], "timeout", f"{call.stage} took more than {limit:g} s; see --timeout")

    def _greedy(self, job: Job) -> Death | None:
        """End a worker that takes the last of the memory, before the system has to choose somebody."""
        available, whole = memory.available_bytes(), memory.whole_bytes()
        own = memory.resident_bytes(self._process.pid)
        if available is None or whole is None or own is None:
            return None
        if available > MEMORY_FLOOR * whole or own < available:
            return None
        kernel, stage = self._caller(job)
        found = f"the process took {own / 1e9:.3g} GB, {available / 1e9:.2g} GB are left"
        return Death(kernel, "oom", f"{stage}: {found}")

    def _caller(self, job: Job) -> tuple[str | None, str]:
        call = self._board.read()
        return (job.kernels[call.contender], call.stage) if call else (None, "between calls")

    def _died(self, job: Job) -> Death:
        kernel, stage = self._caller(job)
        try:
            code = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return Death(kernel, "crashed", f"{stage}: the process answers no more, and has not ended")
        how = signal.Signals(-code).name if code < 0 else f"the process ended with status {code}"
        if code == -signal.SIGKILL and memory.kills_by_system() > self._kills:
            return Death(kernel, "oom", f"{stage}: killed by the system for want of memory")
        said = self._last_words()
        return Death(kernel, "crashed", f"{stage}: {how}" + (f": {said}" if said else ""))

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def _relay(self) -> None:
        """What kernels and libraries have printed goes where complaints go, and not among the tables."""
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


class Workers:
    """The workers of a run, made when a job of their key comes, and the processes of cases that want fresh ones."""

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

    def run(self, job: Job, key: WorkerKey, processes: int = 1) -> list[Measurement]:
        """The rows of a job, in the order of its kernels; from so many fresh processes, if more than one is asked for.

        Raises UsageError for ids and plug-ins that do not exist, never for a kernel's sake.
        """
        if processes == 1:
            return self._survive(job, lambda part: self._ask(part, key))
        runs: list[list[Measurement]] = []
        left = job
        for _ in range(processes):
            runs.append(self._survive(left, lambda part: _ask_once(part, key)))
            good = tuple(row.kernel for row in runs[-1] if row.status == "ok")
            if not good:
                break
            left = msgspec.structs.replace(left, kernels=good)
        return merge(runs, job.baseline)

    def _ask(self, job: Job, key: WorkerKey) -> Reply | Death:
        worker = self._waiting.pop(key, None) or Worker(key)
        for other in list(self._waiting):  # those of the pass before are done
            if other.process != key.process or len(self._waiting) >= MAX_WAITING:
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

    def _survive(self, job: Job, ask: "Ask", attempt: int = 1) -> list[Measurement]:
        """Ask, and ask again without the kernel that ended its worker, until a worker lives to answer."""
        reply = ask(job)
        if isinstance(reply, Reply):
            for row in reply.rows:
                row.attempt = attempt
            return reply.rows
        if not reply.fresh and reply.status != "timeout":  # an earlier job may have been the cause
            return self._survive(job, ask, attempt + 1)
        if len(job.kernels) == 1:
            return [Measurement(kernel=job.kernels[0], status=reply.status, reason=reply.reason, attempt=attempt)]
        if reply.kernel is None:  # whatever it was struck between two calls: each has to show itself alone
            return [self._alone(job, kernel, reply, ask, attempt + 1) for kernel in job.kernels]
        blamed = self._blamed(job, reply, ask, attempt)  # first, while no other has been in the next process
        others = tuple(kernel for kernel in job.kernels if kernel != reply.kernel)
        rows = [blamed, *self._survive(msgspec.structs.replace(job, kernels=others), ask, attempt + 1)]
        return sorted(rows, key=lambda row: job.kernels.index(row.kernel))

    def _blamed(self, job: Job, death: Death, ask: "Ask", attempt: int) -> Measurement:
        """The row of the kernel that was being called; one that crashed may have been another's victim."""
        assert death.kernel is not None
        if death.status == "crashed":
            return self._alone(job, death.kernel, death, ask, attempt + 1)
        return Measurement(kernel=death.kernel, status=death.status, reason=death.reason, attempt=attempt)

    def _alone(self, job: Job, kernel: str, death: Death, ask: "Ask", attempt: int) -> Measurement:
        (row,) = self._survive(msgspec.structs.replace(job, kernels=(kernel,)), ask, attempt)
        if row.status == "ok":
            why = f"measured alone, since in company the worker was lost ({death.reason})"
            row.disturbed = "; ".join(filter(None, (why, row.disturbed)))
        return row


Ask = Callable[[Job], Reply | Death]


def _ask_once(job: Job, key: WorkerKey) -> Reply | Death:
    """Ask a process that has done nothing before and does nothing afterwards."""
    worker = Worker(key)
    try:
        return worker.ask(job)
    finally:
        worker.close()
