"""Compile Numba functions in child processes, since Numba compiles one function at a time in a process.

A child writes compiled functions to Numba's cache, from which its parent loads them.
"""

import ctypes
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

LIMIT_S = 60  # time limit of a child, which hangs if it needs a lock that another thread held at the fork
_PR_SET_PDEATHSIG = 1


@contextmanager
def ahead(*wanted: tuple[Callable[..., Any], Callable[[], object]]) -> Iterator[None]:
    """Compile functions in child processes while the context runs; leaving the context waits for the children.

    wanted: pairs of a function and a callable that compiles it. While the cache exists, only the first process that
    needs a function starts a child for it. If a function is still not in the cache afterwards, or the machine has a
    single CPU, the calling process compiles it.
    """
    from kernelmark.kernels._numba import claim, get_ready

    missing = [compiles for function, compiles in wanted if _may_fork() and claim(function)]
    if missing:
        get_ready()  # once here, instead of in each child
    children: list[int] = []
    try:
        with suppress(OSError):  # the system may refuse to start another process
            children.extend(map(_begun, missing))
        yield
        while children:
            _wait(children[-1])
            children.pop()
    finally:  # after an interrupt, children may still be running
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _wait(child)


def _may_fork() -> bool:
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def _begun(compiles: Callable[[], object]) -> int:
    """Start a child that compiles a function, and return its process id.

    The child is killed when its parent ends, and closes the files that it inherits.
    """
    parent = os.getpid()
    with warnings.catch_warnings():  # Python 3.12 warns that other threads may hold a lock
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        gc.disable()  # a collection could release the parent's files and GPU memory
        if os.getppid() == parent:
            compiles()
    finally:
        os._exit(0)


def _wait(child: int) -> None:
    with suppress(ChildProcessError):  # if SIGCHLD is ignored, the system has already reaped the child
        os.waitpid(child, 0)
