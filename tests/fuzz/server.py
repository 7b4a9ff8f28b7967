"""A process that has imported the command once, and forks for each step: `python server.py SOCKET`.

A child has the files, the folder, the variables and the words of its step, calls the command's entry point and ends as
the console script does: its exit status is real. What it leaves running becomes a child of this process.
"""

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from kernelmark import bench
from kernelmark.bench.plan.discovery import discover

#: How long the processes that a step has started may outlive it.
GRACE_S = 10.0
#: Address space of a step, so that what a plug-in takes does not end other programs.
MOST_BYTES = 8 * 2**30
#: Left for the few steps that need them: they start threads or take a second to import.
COLD = (
    "kernelmark.bench.pytest",
    "kernelmark.bench.test_bench",
    "kernelmark.bench.selftest",
    "kernelmark.bench.emulator",
    "kernelmark.bench.report.figures",
    "kernelmark.bench.run.worker",
)
LENGTH_BYTES = 8
_PR_SET_CHILD_SUBREAPER = 36
#: Held since before a plug-in could put others in their place.
now, sleep_until, on_signal, leave = time.monotonic, select.select, signal.signal, os._exit


def main(link: socket.socket) -> None:
    """Serve until the other side ends; in a child, run the command."""
    for module in pkgutil.walk_packages(bench.__path__, "kernelmark.bench."):
        if not module.name.startswith(COLD):
            with suppress(ImportError):
                import_module(module.name)
    discover()
    gc.freeze()  # what is never looked at stays shared with the children
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (step := serve(link)) is not None:
        become(step)
        try:
            end_with(run())
        except KeyboardInterrupt:  # after the command's own end, where a process of its own takes none any more
            leave(128 + signal.SIGINT)


def serve(link: socket.socket) -> dict[str, Any] | None:
    """Fork for each request and report how it ended; return the request in the child, None at the end of all."""
    while True:
        head, files, _, _ = socket.recv_fds(link, LENGTH_BYTES, 2)
        if not head:
            return None
        step = json.loads(_read(link, int.from_bytes(head, "little")))
        pid = os.fork()
        if pid == 0:
            link.close()
            for stream, file in zip((1, 2), files, strict=True):
                os.dup2(file, stream)
                os.close(file)
            return step  # type: ignore[no-any-return]
        for file in files:
            os.close(file)
        _write(link, {"pid": pid})
        _, status = os.waitpid(pid, 0)
        _write(link, {"status": os.waitstatus_to_exitcode(status), "left": leftovers()})


def run() -> int:
    """Call the command as the console script does, and return the exit status."""
    from kernelmark.bench.cli import main as command

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # an earlier one would meet this program
        command()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def end_with(status: int) -> None:
    """End as the interpreter does, but for the removal of every object, which takes longer than most commands.

    Where what is left to be written cannot be, the interpreter ends with 120.
    """
    on_signal(signal.SIGINT, signal.SIG_DFL)  # raised here, it would be an error of this program
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            status = 120
    leave(status & 0xFF)


def become(step: dict[str, Any]) -> None:
    """Make this process the one that a shell would have started for the step."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for stream in step["closed"]:
        os.close(stream)
    os.chdir(step["folder"])
    os.environ.clear()
    os.environ.update(step["variables"])
    tempfile.tempdir = None
    if step["fresh"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.execve(sys.executable, [sys.executable, step["script"], *step["words"]], dict(os.environ))
    sys.argv = [step["script"], *step["words"]]
    sys.stdout = sys.__stdout__ = _stream(1, step["closed"], "strict")  # type: ignore[assignment,misc]
    sys.stderr = sys.__stderr__ = _stream(2, step["closed"], "backslashreplace")  # type: ignore[assignment,misc]


def _stream(number: int, closed: list[int], errors: str) -> Any:
    if number in closed:
        return None
    return open(number, "w", encoding="utf-8", errors=errors, closefd=False, buffering=1 if number == 2 else -1)


def leftovers() -> list[str]:
    """End what a step has left running, after a moment in which it may end by itself; return what that was."""
    until, found = now() + GRACE_S, []
    while (children := _reaped()) and now() < until:
        sleep_until([], [], [], 0.01)
    while children:
        for pid in children:
            found.append(_command_of(pid))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        sleep_until([], [], [], 0.01)
        children = _reaped()
    return sorted(set(found))


def _reaped() -> list[int]:
    """Reap what has ended, and return the children that have not."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return []
    return children_of(os.getpid())


def children_of(parent: int) -> list[int]:
    """Return the processes that this one has started, or that were left to it."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = status.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                found.append(int(status.parent.name))
    return found


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100]
    return f"process {pid}"


def _read(link: socket.socket, count: int) -> bytes:
    parts = []
    while count and (part := link.recv(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _write(link: socket.socket, message: dict[str, Any]) -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
