"""Foreign code in a process that no other one watches: what takes too long ends the process, in one line.

Kernels and operations are called in worker processes, which their parent ends from outside. But the parent imports
plug-ins too, and asks their problems for sizes and figures; it cannot know these otherwise. Python cannot stop a call
from within, so a thread ends the process; where code in C keeps the thread from running, a timer of the system does.
What a plug-in puts in the place of Python's own functions changes nothing here: they are held since before it was
loaded.
"""

import _thread
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from typing import TypeVar

from kernelmark.bench.plan.last_resort import ended

T = TypeVar("T")
#: What an import may take, and each step of planning, where a call may take less.
LEAST_S = 10.0
#: How much later the system's timer ends what the thread could not.
GRACE_S = 1.0
_USAGE = 2
#: What is overseen now: calls within it need no limit of their own, which would end the process a second time.
_overseen: list[str] = []
_start, _new_lock, _ident = _thread.start_new_thread, _thread.allocate_lock, _thread.get_ident
_write, _exit, _frames = os.write, os._exit, sys._current_frames


@contextmanager
def overseen(subject: str, timeout_s: float) -> Iterator[None]:
    """End the process with status 2 if what is done meanwhile takes longer than `timeout_s`, and ten seconds.

    An infinite time watches nothing: another process does.
    """
    limit_s = max(LEAST_S, timeout_s)
    if limit_s > _thread.TIMEOUT_MAX:
        yield
        return
    done, caller = _new_lock(), _ident()
    done.acquire()
    _start(_watch, (done, caller, subject, limit_s))
    _overseen.append(subject)
    try:
        with ended(_complaint(subject, limit_s), limit_s + GRACE_S):
            yield
    finally:
        _overseen.pop()
        done.release()


def limited(function: Callable[..., T], subject: str, timeout_s: float) -> Callable[..., T]:
    """Return the function with each of its calls watched by the system's timer alone, which costs 20 us.

    A call within what is overseen is watched already.
    """
    limit_s = max(LEAST_S, timeout_s)
    if limit_s > _thread.TIMEOUT_MAX:
        return function

    @wraps(function)
    def watched(*args: object, **options: object) -> T:
        if _overseen:
            return function(*args, **options)
        with ended(_complaint(subject, limit_s), limit_s):
            return function(*args, **options)

    return watched


def _complaint(subject: str, limit_s: float, where: str = "") -> str:
    """Return the line without its beginning, `kernelmark: `, short enough for it."""
    return f"{subject} took more than {limit_s:g} s{where}; --timeout allows more"[:287]


def _watch(done: _thread.LockType, caller: int, subject: str, limit_s: float) -> None:
    if done.acquire(timeout=limit_s):
        return
    frame = _frames().get(caller)
    where = f" (now at {frame.f_code.co_filename}, line {frame.f_lineno})" if frame else ""
    try:
        _write(2, f"kernelmark: {_complaint(subject, limit_s, where)}\n".encode(errors="backslashreplace"))
    finally:
        _exit(_USAGE)


def each_overseen(items: Iterable[T], subject: str, timeout_s: float) -> Iterator[T]:
    """Yield the items; finding the next one is overseen."""
    iterator = iter(items)
    while True:
        with overseen(subject, timeout_s):
            found = list(islice(iterator, 1))
        if not found:
            return
        yield found[0]
