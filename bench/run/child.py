"""A child process: started below a keeper, queried over pipes, and ended with all of its descendants.

`Child` is the side that asks; the module that the child runs gets its side from `to_parent`. Each message carries the
number of its question and the process that sent it. What a child prints goes to a file, of which the parent shows a
part; if a child ends, its last line is the reason.
"""

import importlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import MappingProxyType, TracebackType
from typing import IO, Any, NamedTuple, TextIO, TypeVar

import msgspec

from kernelmark.bench.measure.timing import now, pause
from kernelmark.bench.plan.errors import UsageError, place
from kernelmark.bench.plan.files import only_utf8
from kernelmark.bench.plan.text import one_line, plain
from kernelmark.bench.run.family import NO_PROCESS

T = TypeVar("T")
#: How long a child whose pipe has ended may take to end.
EXIT_S = 5.0
#: How long a keeper may take to end all processes below it, before it is ended itself.
KEEPER_S = 10.0
#: How often a child that is asked by `answers` is looked at, and how often one that is to end.
_POLL_S, _PAUSE_S = 0.1, 2e-3
_LENGTH_BYTES, _PIECE_BYTES, _MOST_BYTES = 8, 2**20, 2**30
#: Bytes that are shown of what was printed for one question; the rest is given up.
MOST = 64 * 1024
#: The file may grow to this before it is cut, so that it is seldom touched.
_GROWN = 16 * MOST
#: What helps where the system has no process, or no descriptor, for a child.
_MORE = "`ulimit -a` shows the limits, a container has one of its own (pids)"
#: Characters of the last words.
_WORDS = 200


class Message(msgspec.Struct, array_like=True):
    """A question or an answer to it; the number is the question's, 0 for a message that answers none."""

    number: int
    pid: int
    body: msgspec.Raw


class Channel:
    """Messages to and from another process."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes, self._data = reads, writes, bytearray()

    def send(self, number: int, body: object) -> None:
        """Send a message. Raises BrokenPipeError if the reader has gone, UsageError for text that is not UTF-8."""
        with only_utf8():
            encoded = msgspec.msgpack.encode(body)
        data = msgspec.msgpack.encode(Message(number, os.getpid(), msgspec.Raw(encoded)))
        left = memoryview(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
        while left:
            left = left[os.write(self._writes, left) :]

    def receive(self, within_s: float | None = None) -> Message | None:
        """Return the next message, or None if it has not arrived completely in time. None waits for ever.

        Raises EOFError if the other side has ended, msgspec.DecodeError for nonsense.
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
        """Close both pipes."""
        os.close(self._reads)
        os.close(self._writes)


class Child(AbstractContextManager["Child", None]):
    """A module that runs in another process, below a keeper."""

    def __init__(
        self, module: str, *words: str, variables: Mapping[str, str] = MappingProxyType({}), passed: Sequence[int] = ()
    ) -> None:
        """variables: added to the environment of this process. passed: descriptors that the child inherits.

        Raises UsageError where there is no place for what it prints, and no process or file for it.
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
                start_new_session=True,  # an interrupt from the terminal is the parent's to handle
            )
        except OSError as error:
            raise UsageError(f"{NO_PROCESS} {error.strerror}; {_MORE}") from None
        self._channel, self._number, self._answers_as = Channel(reads, writes), 0, 0
        self.pid = self._process.pid
        os.close(questions)
        os.close(answers)

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, body: object) -> int:
        """Send a question and return its number; if the child has ended, `receive` finds out."""
        self._number += 1
        with suppress(BrokenPipeError):
            self._channel.send(self._number, body)
        return self._number

    def receive(self, within_s: float) -> Message | None:
        """Return the next answer, or None if there is none in time.

        Raises EOFError if none can come, msgspec.DecodeError for nonsense and for an answer of another process.
        """
        has_ended = self.ended() is not None  # all that it has written is there to be read then
        message = self._channel.receive(within_s)
        if message is None and has_ended:
            raise EOFError
        if message is not None:
            self._answers_as = self._answers_as or message.pid
            if message.pid != self._answers_as:
                raise msgspec.DecodeError(f"process {message.pid} answers for process {self._answers_as}")
        return message

    def ended(self, within_s: float = 0.0) -> int | None:
        """Wait up to `within_s` for the end; return the exit status, below 0 a signal, None while the process runs."""
        stop = now() + within_s
        while (status := self._process.poll()) is None and now() < stop:
            pause(_PAUSE_S)
        return status

    def fate(self) -> tuple[int | None, str]:
        """Return the exit status of a child that stopped answering, and a description with its last words.

        Raises UsageError if the system could not start the process.
        """
        status, words = self.ended(EXIT_S), last_words(self.log)
        if not self._answers_as and words.startswith(NO_PROCESS):
            raise UsageError(f"{words}; {_MORE}")
        if status is None:
            return None, f"the process does not answer, and has not ended{self.said()}"
        how = signal.Signals(-status).name if status < 0 else f"the process ended with status {status}"
        return status, f"{how}{self.said()}"

    def said(self) -> str:
        """Return the last words after a colon, or nothing."""
        words = last_words(self.log)
        return f": {words}" if words else ""

    def close(self, patience_s: float = 0.0) -> None:
        """End the process and all below it, and wait for that; first give it `patience_s` to end by itself."""
        self._channel.close()
        if self.ended(patience_s) is None:
            self._process.terminate()
        if self.ended(KEEPER_S) is None:
            self._process.kill()
            self.ended(KEEPER_S)
        self.log.close()


def to_parent() -> Channel:
    """Return the channel to the parent process; from now on an exception ends this process with one line."""
    sys.excepthook = _end_in_a_line
    return Channel(int(sys.argv[1]), int(sys.argv[2]))


def _end_in_a_line(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """Print an exception as one line, and skip Python's own end: a lost device would complain of each handle."""
    sys.stderr.write(f"{kind.__name__}: {' '.join(str(error).split())}{place(error)}\n")
    sys.stderr.flush()
    os._exit(1)


def scratch_file() -> IO[bytes]:
    """Return a file without a name, which ends with the processes that hold it. Raises UsageError on failure."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise UsageError(f"a worker needs a file for what it prints: {error}; TMPDIR names another folder") from None


def trim(log: IO[bytes]) -> None:
    """Truncate the file to the part that would be shown; the child goes on writing at its old position."""
    if os.fstat(log.fileno()).st_size > _GROWN:
        os.ftruncate(log.fileno(), MOST)


def relay(log: IO[bytes], out: TextIO) -> None:
    """Copy the printed text to `out`, and empty the file."""
    fd = log.fileno()
    size = os.fstat(fd).st_size
    if not size:
        return
    out.write(plain(os.pread(fd, MOST, 0).decode(errors="replace")))
    if size > MOST:
        out.write(f"\n(kernels printed {size / 1e6:.3g} MB, of which {MOST // 1024} kB are shown)\n")
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)  # of the child too, which shares the position


def last_words(log: IO[bytes]) -> str:
    """Return the last line that is not empty, on one line of bounded length."""
    start = max(0, os.fstat(log.fileno()).st_size - MOST)
    lines = plain(os.pread(log.fileno(), MOST, start).decode(errors="replace")).split("\n")
    return next((one_line(line.strip()[:_WORDS]) for line in reversed(lines) if line.strip()), "")


class Lost(NamedTuple):
    """Why a question has no answer."""

    reason: str


def answers(
    module: str,
    questions: Sequence[T],
    silence_s: float | Callable[[T], float],
    until_s: float,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[T, Any]]:
    """Yield each question with its answer by the function `replies` of a module, or with `Lost`.

    `replies` gets the questions, as plain data, in a child, and yields an answer to each, in order, when it is asked
    for. A child that is silent for longer than `silence_s`, which may depend on the question, is ended; a fresh one
    takes the questions left. So is any at `until_s` (monotonic clock) or when `stop` holds; questions that were not
    begun by then are left out.
    """
    left = list(questions)
    while left and now() < until_s and not stop():
        with Child(__name__, module) as child:
            while left:
                limit_s = silence_s(left[0]) if callable(silence_s) else silence_s
                answer = _answer(child, left, min(now() + limit_s, until_s), stop)
                relay(child.log, sys.stderr)
                yield left.pop(0), answer
                if isinstance(answer, Lost):
                    break


def _answer(child: Child, questions: Sequence[object], until_s: float, stop: Callable[[], bool]) -> Any:
    """Return the answer to the first of the questions."""
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
    """Answer questions by the function `replies` of the named module, which gets all of them with the first."""
    parent, found = to_parent(), iter(list[Any]())
    while message := parent.receive():
        if message.number == 1:
            found = importlib.import_module(sys.argv[3]).replies(msgspec.msgpack.decode(message.body))
        answer = next(found)
        sys.stdout.flush()
        parent.send(message.number, answer)


if __name__ == "__main__":
    with suppress(EOFError):
        main()
