"""Questions to a child process, answered one by one and watched: a hang or a crash costs one answer, not the rest.

The child imports a module and calls its function `replies` with the questions, which yields an answer to each, in
order. Run by itself, this module is that child.
"""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NamedTuple

from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.text import plain
from kernelmark.bench.run.kept import EXIT_S, KeptProcess
from kernelmark.bench.run.printed import MOST, end_in_a_line

#: Begins an answer in what the child prints; everything else is from libraries.
_MARK = "kernelmark-answer "
#: Bytes of an answer.
_LONGEST = 2**26
_POLL_S = 0.1
#: Held since before a plug-in could replace them.
_read, _select, _exit = os.read, select.select, os._exit


class Lost(NamedTuple):
    """Why a question has no answer."""

    reason: str


def answers(
    module: str,
    questions: Sequence[str],
    silence_s: float | Callable[[str], float],
    until_s: float,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[str, Any]]:
    """Yield each question with its answer, or with `Lost`; after a loss a fresh child takes the questions left.

    A child that is silent for longer than `silence_s`, which may depend on the question, is ended. So is any at
    `until_s` (monotonic clock) or when `stop` holds; questions that were not begun by then are left out.
    """
    left = list(questions)
    while left and now() < until_s and not stop():
        with _Child(module, left) as child:
            while left:
                limit_s = silence_s(left[0]) if callable(silence_s) else silence_s
                found = child.next(min(now() + limit_s, until_s), stop)
                yield left.pop(0), found
                if isinstance(found, Lost):
                    break


class _Child(AbstractContextManager["_Child", None]):
    def __init__(self, module: str, questions: Sequence[str]) -> None:
        self._buffer, self._words, self._shown = b"", "", 0
        self._kept = KeptProcess(
            "kernelmark.bench.run.watched", [module, *questions], {}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def __exit__(self, *_: object) -> None:
        self._kept.end()
        if self._kept.stdout:
            self._kept.stdout.close()

    def next(self, until_s: float, stop: Callable[[], bool]) -> Any:
        """The next answer, or why there is none."""
        began, self._shown = now(), 0
        while True:
            while b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                _, mark, text = line.decode(errors="replace").partition(_MARK)
                if mark:
                    return json.loads(text)
                self._pass_on(line)
            if len(self._buffer) > (_LONGEST if self._buffer.startswith(_MARK.encode()) else MOST):
                self._pass_on(self._buffer)
                self._buffer = b""  # what follows is taken for another line
            if stop() or now() > until_s:
                return Lost(f"ended after {now() - began:.0f} s without an answer{self._last_words()}")
            if not self._read():
                return self._ended()

    def _read(self) -> bool:
        """Wait for a moment for more; return whether the child's output may go on."""
        assert self._kept.stdout is not None
        if not _select([self._kept.stdout], [], [], _POLL_S)[0]:
            return True
        data = _read(self._kept.stdout.fileno(), 65536)
        self._buffer += data
        return bool(data)

    def _ended(self) -> Lost:
        code = self._kept.ended(EXIT_S)
        if code is None:
            return Lost("the process answers no more, and has not ended" + self._last_words())
        how = signal.Signals(-code).name if code < 0 else f"the process ended with status {code}"
        return Lost(how + self._last_words())

    def _pass_on(self, line: bytes) -> None:
        if text := plain(line[:MOST].decode(errors="replace")).strip():
            self._words = text
            if self._shown < MOST:
                sys.stderr.write(text[: MOST - self._shown] + "\n")
            self._shown += len(text)

    def _last_words(self) -> str:
        return f": {self._words[:200]}" if self._words else ""


def main(module: str, *questions: str) -> None:
    """Answer the questions."""
    for answer in importlib.import_module(module).replies(questions):
        sys.stdout.write(f"\n{_MARK}{json.dumps(answer)}\n")
        sys.stdout.flush()


def _end_at_once(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End in a line, and skip Python's own end: what is left may hold a lost device, and complain of each handle."""
    end_in_a_line(kind, error, trace)
    sys.stderr.flush()
    _exit(1)


if __name__ == "__main__":
    sys.excepthook = _end_at_once
    main(*sys.argv[1:])
