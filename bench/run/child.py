"""A child process that answers questions over pipes. A keeper process starts it, and ends it with its descendants.

The parent uses a `Child`; the module that the child runs gets its channel from `to_parent`. Each message carries the
number of its question and the id of the process that sent it. A child's output goes to a file, and the parent shows a
part of it. If a child ends, its last line of output is reported as the reason.
"""

import importlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from types import TracebackType
from typing import IO, Any, NamedTuple, TextIO, TypeVar

import msgspec

from kernelmark.bench.measure.timing import now, pause
from kernelmark.bench.plan.errors import UsageError, place
from kernelmark.bench.plan.files import only_utf8
from kernelmark.bench.plan.text import one_line, plain
from kernelmark.bench.run.family import NO_PROCESS

T = TypeVar("T")
#: Seconds that a child may take to end after its pipe has closed.
EXIT_S = 5.0
#: Seconds that a keeper may take to end all processes below it, before it is killed.
KEEPER_S = 10.0
#: Seconds between two checks of a child that answers questions, and of a child that is expected to end.
_POLL_S, _PAUSE_S = 0.1, 2e-3
_LENGTH_BYTES, _PIECE_BYTES, _MOST_BYTES = 8, 2**20, 2**30
#: The bytes of output that are shown for each question; the rest is dropped.
MOST = 64 * 1024
#: The output file is truncated above this size, which is large so that truncation is rare.
_GROWN = 16 * MOST
#: The remedy if the system refuses a process or a descriptor for a child.
_MORE = "`ulimit -a` shows the limits; a container may also limit pids"
#: The maximum number of characters shown of a child's last line.
_WORDS = 200


class Message(msgspec.Struct, array_like=True):
    """A question or an answer. number: the question's number; 0 for a message that answers no question."""

    number: int
    pid: int
    body: msgspec.Raw


class Channel:
    """Messages to and from another process."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes, self._data = reads, writes, bytearray()

    def send(self, number: int, body: object) -> None:
        """Send a message. Raises BrokenPipeError if the reader has ended, UsageError for text that is not UTF-8."""
        with only_utf8():
            encoded = msgspec.msgpack.encode(body)
        data = msgspec.msgpack.encode(Message(number, os.getpid(), msgspec.Raw(encoded)))
        left = memoryview(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
        while left:
            left = left[os.write(self._writes, left) :]

    def receive(self, within_s: float | None = None) -> Message | None:
        """Return the next message, or None if it has not arrived completely in time.

        within_s: None waits for ever. Raises EOFError if the other side has ended, msgspec.DecodeError for invalid
        bytes.
        """
        until_s = now() + (within_s or 0.0)
        while (message := self._next()) is None:
            if within_s is not None and not select.select([self._reads], [], [], max(0.0, until_s - now()))[0]:
                return None
            piece = os.read(self._reads, _PIECE_BYTES)
            if not piece:
                raise EOFError
            self._data += piece
        return message

    def _next(self) -> Message | None:
        end = _LENGTH_BYTES + int.from_bytes(self._data[:_LENGTH_BYTES], "little")
        if end > _MOST_BYTES:
            raise msgspec.DecodeError(f"a message of {end} bytes")
        if len(self._data) < max(end, _LENGTH_BYTES + 1):
            return None
        message = bytes(self._data[_LENGTH_BYTES:end])
        del self._data[:end]
        return msgspec.msgpack.decode(message, type=Message)

    def close(self) -> None:
        os.close(self._reads)
        os.close(self._writes)


class Child:
    """A module that runs in another process, started by a keeper."""

    def __init__(self, module: str, *words: str, variables: Mapping[str, str] = {}, passed: Sequence[int] = ()) -> None:
        """variables: added to this process's environment for the child. passed: descriptors that the child inherits.

        Raises UsageError if there is no room for its output, or the system refuses the process or a file.
        """
        self.log = scratch_file()
        keeper = [sys.executable, "-P", "-m", "kernelmark.bench.run.family", str(os.getpid())]
        try:
            questions, writes = os.pipe()
            reads, answers = os.pipe()
            self._process = subprocess.Popen(
                [*keeper, module, str(questions), str(answers), *words],
                env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                pass_fds=(questions, answers, *passed),
                start_new_session=True,  # the parent handles interrupts from the terminal
            )
        except OSError as error:
            raise UsageError(f"{NO_PROCESS} {error.strerror}; {_MORE}") from None
        self._channel, self._number, self._answers_as = Channel(reads, writes), 0, 0
        self.pid = self._process.pid
        os.close(questions)
        os.close(answers)

    def ask(self, body: object) -> int:
        """Send a question and return its number; if the child has ended, `receive` raises."""
        self._number += 1
        with suppress(BrokenPipeError):
            self._channel.send(self._number, body)
        return self._number

    def receive(self, within_s: float) -> Message | None:
        """Return the next answer, or None if there is none in time.

        Raises EOFError if the child has ended, msgspec.DecodeError for invalid bytes or an answer of another process.
        """
        has_ended = self.ended() is not None  # if so, everything that it sent can be read
        message = self._channel.receive(within_s)
        if message is None and has_ended:
            raise EOFError
        if message is not None:
            self._answers_as = self._answers_as or message.pid
            if message.pid != self._answers_as:
                raise msgspec.DecodeError(f"process {message.pid} answers for process {self._answers_as}")
        return message

    def ended(self, within_s: float = 0.0) -> int | None:
        """Wait up to `within_s` for the end; return the exit status (negative: a signal), or None if it still runs."""
        stop = now() + within_s
        while (status := self._process.poll()) is None and now() < stop:
            pause(_PAUSE_S)
        return status

    def fate(self) -> tuple[int | None, str]:
        """Return the exit status of a child that stopped answering, and a text with its last line of output.

        Raises UsageError if the system could not start the process.
        """
        status, words = self.ended(EXIT_S), last_words(self.log)
        if not self._answers_as and words.startswith(NO_PROCESS):
            raise UsageError(f"{words}; {_MORE}")
        if status is None:
            return None, f"the process does not answer, but has not ended{self.said()}"
        how = signal.Signals(-status).name if status < 0 else f"the process ended with status {status}"
        return status, f"{how}{self.said()}"

    def said(self) -> str:
        """Return a colon and the last line of output, or ""."""
        words = last_words(self.log)
        return f": {words}" if words else ""

    def close(self, patience_s: float = 0.0) -> None:
        """Give the process `patience_s` to end by itself; then end it and its descendants, and wait for their end."""
        self._channel.close()
        if self.ended(patience_s) is None:
            self._process.terminate()
        if self.ended(KEEPER_S) is None:
            self._process.kill()
            self.ended(KEEPER_S)
        self.log.close()


def to_parent() -> Channel:
    """Return the channel to the parent; from now on an uncaught exception ends this process with one line."""
    sys.excepthook = _end_in_a_line
    return Channel(int(sys.argv[1]), int(sys.argv[2]))


def _end_in_a_line(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """Print an exception as one line and exit without Python's clean-up, which reports each handle of a lost device."""
    sys.stderr.write(f"{kind.__name__}: {' '.join(str(error).split())}{place(error)}\n")
    sys.stderr.flush()
    os._exit(1)


def scratch_file() -> IO[bytes]:
    """Return an unnamed file, which is deleted when the last process closes it. Raises UsageError on failure."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise UsageError(f"a worker needs a file for its output: {error}; set TMPDIR to another folder") from None


def trim(log: IO[bytes]) -> None:
    """Truncate a long file to its beginning, the part that is shown. The child keeps writing at its old position."""
    if os.fstat(log.fileno()).st_size > _GROWN:
        os.ftruncate(log.fileno(), MOST)


def relay(log: IO[bytes], out: TextIO) -> None:
    """Copy the child's output to `out`, and empty the file."""
    fd = log.fileno()
    size = os.fstat(fd).st_size
    if not size:
        return
    out.write(plain(os.pread(fd, MOST, 0).decode(errors="replace")))
    if size > MOST:
        out.write(f"\n(kernels printed {size / 1e6:.3g} MB, of which {MOST // 1024} kB are shown)\n")
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)  # also moves the child's position, since both share it


def last_words(log: IO[bytes]) -> str:
    """Return the last non-empty line, cut to a bounded length."""
    start = max(0, os.fstat(log.fileno()).st_size - MOST)
    lines = plain(os.pread(log.fileno(), MOST, start).decode(errors="replace")).split("\n")
    return next((one_line(line.strip()[:_WORDS]) for line in reversed(lines) if line.strip()), "")


class Lost(NamedTuple):
    """The reason why a question has no answer."""

    reason: str


def answers(
    module: str,
    questions: Sequence[T],
    silence_s: float | Callable[[T], float],
    until_s: float,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[T, Any]]:
    """Yield each question with the answer of a module's function `replies`, or with `Lost`.

    `replies` runs in a child, gets the questions as plain data, and yields the answers in order on demand. A child that
    is silent for longer than `silence_s`, which may depend on the question, is ended, and a new child gets the
    remaining questions. At `until_s` (monotonic clock), or when `stop` returns true, the child is ended, and questions
    that it had not begun are skipped.
    """
    left = list(questions)
    while left and now() < until_s and not stop():
        with closing(Child(__name__, module)) as child:
            while left:
                limit_s = silence_s(left[0]) if callable(silence_s) else silence_s
                answer = _answer(child, left, min(now() + limit_s, until_s), stop)
                relay(child.log, sys.stderr)
                yield left.pop(0), answer
                if isinstance(answer, Lost):
                    break


def _answer(child: Child, questions: Sequence[object], until_s: float, stop: Callable[[], bool]) -> Any:
    began = now()
    child.ask(questions)
    try:
        while not stop() and now() < until_s:
            if message := child.receive(_POLL_S):
                return msgspec.msgpack.decode(message.body)
            trim(child.log)
    except (EOFError, msgspec.DecodeError):
        return Lost(child.fate()[1])
    return Lost(f"ended after {now() - began:.0f} s without an answer{child.said()}")


def main() -> None:
    """Answer questions with the function `replies` of the named module; the first message holds all questions."""
    parent, replies = to_parent(), iter(list[Any]())
    while message := parent.receive():
        if message.number == 1:
            replies = importlib.import_module(sys.argv[3]).replies(msgspec.msgpack.decode(message.body))
        answer = next(replies)
        sys.stdout.flush()
        parent.send(message.number, answer)


if __name__ == "__main__":
    with suppress(EOFError):
        main()
