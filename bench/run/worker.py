"""The worker process: takes jobs from a pipe and gives their rows back, until the pipe ends."""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.measure.affinity import pin
from bench.measure.board import Board
from bench.measure.device import DeviceLost
from bench.measure.measurement import Measurement
from bench.plan.case import Entrant, Job, WorkerKey
from bench.plan.errors import UsageError
from bench.run.job import Show, run_job
from bench.run.progress import Glimpse

_LENGTH_BYTES = 8
_PR_SET_PDEATHSIG = 1
T = TypeVar("T")


class Reply(msgspec.Struct):
    """What a worker replies: a job's rows, or why it was refused, or which contender has lost the device and how.

    unfinished: another reply follows; until then there are glimpses alone.
    """

    rows: list[Measurement] = []
    refused: str = ""
    lost: tuple[Entrant, str] | None = None
    glimpses: list[Glimpse] = []
    unfinished: bool = False


def send(fd: int, message: object) -> None:
    """Write one message. Raises BrokenPipeError where the reader has gone."""
    data = msgspec.msgpack.encode(message)
    data = len(data).to_bytes(_LENGTH_BYTES, "little") + data
    while data:
        data = data[os.write(fd, data) :]


def receive(fd: int, kind: type[T]) -> T | None:
    """Read one message, or None where the other side has ended."""
    head = _read(fd, _LENGTH_BYTES)
    data = _read(fd, int.from_bytes(head, "little")) if head else b""
    return msgspec.msgpack.decode(data, type=kind) if data else None


def _read(fd: int, count: int) -> bytes:
    """Read this many bytes, or none at all where the other side ends before."""
    parts = []
    while count:
        part = os.read(fd, count)
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main(jobs_fd: int, replies_fd: int, board_fd: int, parent: int, key: WorkerKey) -> None:
    """Run jobs until there are no more, or until one has taken the device along."""
    die_with(parent)
    if key.device != "cuda":  # what feeds a GPU may run anywhere
        pin(key.threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupted run does
    board = Board(board_fd)
    while (job := receive(jobs_fd, Job)) is not None:
        reply = _answer(job, board, lambda found: send(replies_fd, Reply(glimpses=found, unfinished=True)))
        send(replies_fd, reply)
        if reply.lost:
            os._exit(0)  # what is left in the process would touch the lost device once more


def _answer(job: Job, board: Board, show: Show) -> Reply:
    try:
        return Reply(run_job(job, board, show))
    except UsageError as error:
        return Reply(refused=str(error))
    except DeviceLost as error:
        return Reply(lost=(error.entrant, error.reason))


def die_with(parent: int) -> None:
    """Let a run that is killed leave no worker; and where memory is short, let the system take the worker first."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
    if os.getppid() != parent:  # it has ended before it could take this process along
        sys.exit()


if __name__ == "__main__":
    _jobs_fd, _replies_fd, _board_fd, _parent = map(int, sys.argv[1:5])
    main(_jobs_fd, _replies_fd, _board_fd, _parent, msgspec.json.decode(sys.argv[5], type=WorkerKey))
