"""Limit the time of foreign code in the parent process. If a call takes too long, the process ends with a message.

Kernels and operations are called in worker processes, which the parent process can kill. But the parent, too, imports
plug-ins, and calls their problem classes for sizes and work. Python cannot interrupt such a call, so a thread ends the
process.
"""

import builtins
import faulthandler
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
#: Seconds that an import or a step of planning may always take, even if the time limit of a call is shorter.
LEAST_S = 10.0
#: Seconds after the limit at which faulthandler ends the process, if C code keeps the thread from running.
GRACE_S = 1.0
_BUILTINS = dict(vars(builtins))


@contextmanager
def overseen(subject: str, timeout_s: float) -> Iterator[None]:
    """End the process with status 2 if the context takes longer than `timeout_s`, or ten seconds if that is more.

    An infinite `timeout_s` sets no limit here, since another process limits the time.
    """
    limit_s = max(LEAST_S, timeout_s)
    if limit_s > threading.TIMEOUT_MAX:
        yield
        return
    streams = sys.stdout, sys.stderr
    watch = threading.Timer(limit_s, _end, (subject, limit_s, threading.get_ident()))
    watch.daemon = True
    watch.start()
    faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=2)
    try:
        yield
    finally:
        # A plug-in may have replaced functions and streams that report errors.
        vars(builtins).update(_BUILTINS)
        sys.stdout, sys.stderr = streams
        watch.cancel()
        faulthandler.cancel_dump_traceback_later()


def _end(subject: str, limit_s: float, caller: int) -> None:
    frame = sys._current_frames().get(caller)
    where = f" (now at {frame.f_code.co_filename}, line {frame.f_lineno})" if frame else ""
    line = f"kernelmark: {subject} took more than {limit_s:g} s{where}; --timeout allows more\n"
    os.write(2, line.encode(errors="backslashreplace"))
    os._exit(2)


_END: Any = object()


def each_overseen(items: Iterable[T], subject: str, timeout_s: float) -> Iterator[T]:
    """Yield the items of an iterable, limiting the time to compute each."""
    iterator = iter(items)
    while True:
        with overseen(subject, timeout_s):
            item = next(iterator, _END)
        if item is _END:
            return
        yield item
