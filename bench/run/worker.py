"""The worker process: takes jobs from a pipe and gives their rows back, until the pipe ends."""

import os
import signal
import sys
from typing import TypeVar

import msgspec

from kernelmark.bench.measure.affinity import pin
from kernelmark.bench.measure.board import Board
from kernelmark.bench.measure.device import DeviceLost
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Entrant, Job, WorkerKey
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import only_utf8
from kernelmark.bench.run.job import Show, run_job
from kernelmark.bench.run.printed import end_in_a_line
from kernelmark.bench.run.progress import Glimpse

_LENGTH_BYTES = 8
_PIECE_BYTES, _MOST_BYTES = 2**20, 2**30
T = TypeVar("T")
#: Held since before a plug-in could replace them.
_read_some, _write_some, _exit = os.read, os.write, os._exit


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
    """Write one message. Raises BrokenPipeError where the reader has gone, UsageError for a text that is not UTF-8."""
    with only_utf8():
        data = msgspec.msgpack.encode(message)
    data = len(data).to_bytes(_LENGTH_BYTES, "little") + data
    while data:
        data = data[_write_some(fd, data) :]


def receive(fd: int, kind: type[T]) -> T | None:
    """Read one message, or None where the other side has ended."""
    head = _read(fd, _LENGTH_BYTES)
    data = _read(fd, int.from_bytes(head, "little")) if head else b""
    return msgspec.msgpack.decode(data, type=kind) if data else None


def _read(fd: int, count: int) -> bytes:
    """Read this many bytes, or none at all where the other side ends before."""
    parts = []
    while count:
        part = _read_some(fd, count)
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Inbox:
    """Messages as they arrive, piece by piece: a writer that stops in the midst of one keeps no reader waiting."""

    def __init__(self, fd: int) -> None:
        self._fd, self._data = fd, bytearray()

    def fill(self) -> bool:
        """Read what is there; return whether more may come."""
        piece = _read_some(self._fd, _PIECE_BYTES)
        self._data += piece
        return bool(piece)

    def next(self, kind: type[T]) -> T | None:
        """Return the next message, or None where it is not there as a whole. Raises msgspec.DecodeError."""
        end = _LENGTH_BYTES + int.from_bytes(self._data[:_LENGTH_BYTES], "little")
        if end > _MOST_BYTES:
            raise msgspec.DecodeError(f"a message of {end} bytes")
        if len(self._data) < max(end, _LENGTH_BYTES):
            return None
        message = bytes(self._data[_LENGTH_BYTES:end])
        del self._data[:end]
        return msgspec.msgpack.decode(message, type=kind)


def main(jobs_fd: int, replies_fd: int, board_fd: int, key: WorkerKey) -> None:
    """Run jobs until there are no more, or until one has taken the device along."""
    if key.device != "cuda":  # what feeds a GPU may run anywhere
        pin(key.threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupted run does
    board = Board(board_fd)
    while (job := receive(jobs_fd, Job)) is not None:
        reply = _answer(job, board, lambda found: send(replies_fd, Reply(glimpses=found, unfinished=True)))
        send(replies_fd, reply)
        if reply.lost:
            _exit(0)  # what is left in the process would touch the lost device once more


def _answer(job: Job, board: Board, show: Show) -> Reply:
    try:
        return Reply(run_job(job, board, show))
    except UsageError as error:
        return Reply(refused=str(error))
    except DeviceLost as error:
        return Reply(lost=(error.entrant, error.reason))


if __name__ == "__main__":
    sys.excepthook = end_in_a_line
    _jobs_fd, _replies_fd, _board_fd = map(int, sys.argv[1:4])
    main(_jobs_fd, _replies_fd, _board_fd, msgspec.json.decode(sys.argv[4], type=WorkerKey))
