"""Find and end all descendants of a process on Linux, even if they have left its group or session.

`python -m kernelmark.bench.run.family PARENT MODULE WORD...` is a keeper, the process between a run and its child. It
runs the module in a child and ends with the child's status. Processes that the child has started may leave its group
and session or lose their parent; the keeper then becomes their parent. When the child or the parent ends, or SIGTERM
arrives, the keeper kills all of them. It imports no plug-in and no large library, since every worker has a keeper.
"""

import ctypes
import os
import runpy
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
#: Python's process that removes shared memory and semaphores after the processes that shared them have ended.
_TRACKER = b"multiprocessing.resource_tracker"
#: The number of searches for remaining processes, and the seconds after each: five seconds in total.
_PASSES, _PAUSE_S = 1000, 5e-3
#: The searches during which a resource tracker is left alive to remove shared objects: four seconds, since it may still
#: be starting.
_GRACE_PASSES = 800
#: Milliseconds for which a process may have no name; after that it is taken to hide its name.
_LOADING_PASSES = 200
#: The text that a keeper, and no other process, prints before the reason if it cannot start a child.
NO_PROCESS = "a worker cannot be started:"
#: The signals that a keeper waits for.
_SIGNALS = {signal.SIGTERM, signal.SIGCHLD}


class Member(NamedTuple):
    """A process, its parent, and the bytes of host memory that it uses."""

    pid: int
    parent: int
    resident_bytes: int


def _control(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the system send this process a signal when its parent ends; exit if the parent has ended already."""
    _control(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit()


def adopt() -> None:
    """Become the parent of descendants whose parent ends, instead of init."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)


def below(pid: int) -> list[Member]:
    """Return the descendants of a process, each after its parent; none if the system has no /proc."""
    children: dict[int, list[Member]] = {}
    for member in _all():
        children.setdefault(member.parent, []).append(member)
    members: list[Member] = []
    left = [pid]
    while left:
        of_process = children.pop(left.pop(), [])
        members += of_process
        left += [member.pid for member in of_process]
    return members


def _all() -> Iterator[Member]:
    try:
        folders = [folder for folder in PROC.iterdir() if folder.name.isdigit()]
    except OSError:
        return
    for folder in folders:
        with suppress(OSError, ValueError, IndexError):  # the process has ended meanwhile
            words = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            yield Member(int(folder.name), int(words[1]), int(words[21]) * PAGE_BYTES)


def reap() -> dict[int, int] | None:
    """Reap ended processes, adopted ones included; return their statuses, or None if no child is left."""
    statuses: dict[int, int] = {}
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses.update([ended])
    except ChildProcessError:
        return statuses or None
    return statuses


def end_all(child: int) -> None:
    """Kill and reap all descendants of this process; if the system does not list them, kill the child's group.

    A process that does not end within five seconds, such as one that waits for a broken device, is left running.
    """
    for number in range(_PASSES):
        members = below(os.getpid())
        for member in members:
            if number >= _GRACE_PASSES or not _tracks(member.pid):
                _kill(os.kill, member.pid)
        if not members:
            _kill(os.killpg, child)
        if reap() is None:
            return
        select.select([], [], [], _PAUSE_S)


def known() -> set[int]:
    """Return the ids of this process's descendants. A shell that started it by exec may have left it some."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    return {member.pid for member in below(os.getpid())}


def end_rest(spared: set[int]) -> None:
    """Kill the descendants that foreign code has left, except resource trackers, which end by themselves.

    spared: ids of processes that are left running, with their descendants.
    """
    for _ in range(_PASSES):
        if reap() is None:
            return
        others = set(spared)
        left = []
        for member in below(os.getpid()):
            if member.pid in others or member.parent in others or _tracks(member.pid):
                others.add(member.pid)
            else:
                left.append(member.pid)
        if not left:
            return
        for pid in left:
            _kill(os.kill, pid)
        select.select([], [], [], _PAUSE_S)


def _kill(how: Callable[[int, int], None], pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        how(pid, signal.SIGKILL)


def _tracks(pid: int) -> bool:
    """Return whether a process is a resource tracker, which ends by itself after the others.

    Waits up to 0.2 s for the name of a process, which is missing while its program is being loaded.
    """
    folder = PROC / str(pid)
    with suppress(OSError):
        for _ in range(_LOADING_PASSES):
            name = (folder / "cmdline").read_bytes()
            if name or (folder / "stat").read_bytes().rpartition(b") ")[2].startswith(b"Z"):
                return _TRACKER in name
            select.select([], [], [], 1e-3)
    return False


def main(parent: int, module: str, words: Sequence[str]) -> None:
    """Start a child that runs the module, and be its keeper; returns only in the child, after the module has ended."""
    adopt()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles interrupts
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    die_with(parent, signal.SIGTERM)
    keeper = os.getpid()
    try:
        child = os.fork()
    except OSError as error:
        sys.exit(f"{NO_PROCESS} {error.strerror}")
    if child:
        _keep(child)
    os.setsid()  # so that a kernel cannot signal the keeper by its process group
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    die_with(keeper)
    with suppress(OSError):  # let the system kill this process first when memory is short
        PROC.joinpath("self/oom_score_adj").write_text("1000")
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _keep(child: int) -> None:
    """Wait for the child's end or SIGTERM, end all descendants, and exit with the child's status."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the child's pipes must close when it ends
    status = None
    while status is None and signal.sigwait(_SIGNALS) != signal.SIGTERM:
        status = (reap() or {}).get(child)
    end_all(child)
    status = status or 0
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _control(_PR_SET_DUMPABLE, 0)  # if the signal dumps core, the child has already dumped its core
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
