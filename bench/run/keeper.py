"""Stands between a run and a child of it, so that whatever the child starts ends with it, and it with the run.

`python -m kernelmark.bench.run.keeper PARENT MODULE WORD...` runs a module as a child and ends as that ends. A process
that the child has started may leave its group and its session, or lose its parent: the keeper is then its parent. When
the child ends, when the parent ends, or when SIGTERM arrives, the keeper kills all of them. It loads no plug-in, so
nothing that one does to the modules of its process concerns it.
"""

import os
import runpy
import signal
import sys
from collections.abc import Sequence

from kernelmark.bench.run.family import adopt, die_with, end_all, leave_no_dump, volunteer

_SIGNALS = {signal.SIGTERM, signal.SIGCHLD}


def main(parent: int, module: str, words: Sequence[str]) -> None:
    """Keep a child that runs the module; returns in the child alone, once the module has ended."""
    adopt()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides what an interrupt does
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    die_with(parent, signal.SIGTERM)
    keeper = os.getpid()
    if child := os.fork():
        _keep(child)
    os.setsid()  # a kernel that signals its group does not reach the keeper
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    die_with(keeper)
    volunteer()
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _keep(child: int) -> None:
    """Wait for the end of the child, or for the order to end it, and exit as it did once nothing is left of it."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # its pipes must end with it
    status = None
    while status is None and signal.sigwait(_SIGNALS) != signal.SIGTERM:
        status = _reaped(child)
    end_all(child)
    _end_as(status or 0)


def _reaped(child: int) -> int | None:
    """Reap what has ended, adopted processes too; return the child's status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _end_as(status: int) -> None:
    """End by the same signal, or with the same exit status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        leave_no_dump()  # the child has left its own
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
