"""Handle the signals that end a command: SIGINT, SIGTERM, and SIGHUP from a terminal that is closed.

The first signal gives a run ten seconds to finish the current job; the second ends the run at once. Until the command
handles signals, an interrupt prints a traceback, so this module is loaded first and imports little.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

#: Seconds that the current row may still take after the first signal. Schedulers kill a process 10 to 30 seconds after
#: that signal, and users do not wait longer.
FINISH_S = 10.0
_came: list[int] = []
#: Python's function, bound before a plug-in could replace it, since it is called until the process ends.
_set = signal.signal


def stop(number: int, frame: "FrameType | None") -> None:
    """Raise KeyboardInterrupt for any of the signals."""
    _came.append(number)
    raise KeyboardInterrupt


def exit_status() -> int:
    """Return 128 plus the number of the first signal received."""
    return 128 + (_came[0] if _came else signal.SIGINT)


def take(handler: "Callable[[int, Any], object]") -> "dict[int, Any]":
    """Install a handler for the signals that are not ignored (nohup ignores some); return the previous handlers."""
    before: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    taken = {number: previous for number, previous in before.items() if previous is not signal.SIG_IGN}
    give(dict.fromkeys(taken, handler))
    return taken


def give(handlers: "Mapping[int, Any]") -> None:
    """Install each handler for its signal."""
    for number, handler in handlers.items():
        _set(number, handler)


def ignore() -> None:
    """Ignore further signals, since little is left to do."""
    give(dict.fromkeys(take(stop), signal.SIG_IGN))


@contextmanager
def interruptible(finish_s: float = FINISH_S) -> Iterator[Callable[[], bool]]:
    """Set a flag at the first signal; raise KeyboardInterrupt at the second or `finish_s` after the first, if not 0."""
    hits: list[int] = []

    def handle(number: int, frame: "FrameType | None") -> None:
        hits.append(number)
        _came.append(number)
        if number == signal.SIGHUP:
            _leave_terminal()
        give(before)
        before[signal.SIGALRM] = _set(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, finish_s)

    before = take(handle)
    try:
        yield lambda: bool(hits)
    finally:
        if hits:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        give(before)


def _leave_terminal() -> None:
    """If the terminal is closed, discard output, since writing to it would end the run."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            with open(os.devnull, "wb") as null:  # noqa: PTH123 # pathlib is not imported here
                os.dup2(null.fileno(), stream)
