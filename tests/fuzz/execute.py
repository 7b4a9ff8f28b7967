"""Performing an input: its folder, its steps one after the other, and what is found after them."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from fuzz.files import lay_out
from fuzz.hanging import Watch
from fuzz.inputs import Input, Step
from fuzz.server import LENGTH_BYTES, children_of

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("kernelmark")
#: How long a step may take, of a processor and on a machine that is not busy (`hanging.py`); one with patience has this
#: from its interrupt on. The first interrupt of a run lets the job in hand finish, so a second one follows.
LIMIT_S, AGAIN_S = 10.0, 1.0
#: How many times that it takes to draw all figures of a run twice, which uses a processor for eight seconds.
SLOW = {"report": 2}
#: Of an output this much is kept, and a reader that goes early takes so much before.
KEPT_BYTES, HEAD_BYTES = 2**20, 10
#: What is kept of the caller's environment: where programs, libraries and what was compiled before are found.
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "PYTHONDONTWRITEBYTECODE")


class Outcome(NamedTuple):
    """How a step ended. status: negative for a signal. left: commands that it left running. hung: it had to be ended.

    interrupted: after its patience.
    """

    status: int
    out: str
    err: str
    left: list[str]
    hung: bool = False
    interrupted: bool = False


class Found(NamedTuple):
    """All that an input is judged by: its steps' outcomes, what is new or changed in its folder, and in TMPDIR."""

    outcomes: list[Outcome]
    changed: list[str]
    temporary: list[str]


class Server:
    """The process that forks for each step (`server.py`)."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._link, theirs = socket.socketpair()
        words = [sys.executable, "-P", str(Path(__file__).with_name("server.py")), str(theirs.fileno())]
        variables = {**_kept(), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            words, env=variables, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        self._process.wait()

    def perform(self, given: Input, samples: Path, place: Path) -> Found:
        """Perform an input in a folder of its own below `place`, which is removed after it."""
        place.mkdir(parents=True)
        try:
            folder, temporary = place / "work", place / "tmp"
            folder.mkdir()
            temporary.mkdir()
            lay_out(given.files, folder, samples)
            before = _seen(folder)
            variables = {"XDG_DATA_HOME": str(place / "data"), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
            outcomes = [
                self._outcome(step, folder, {**_kept(), "LANG": "C.UTF-8", **variables}) for step in given.steps
            ]
            after = _seen(folder)
            changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
            return Found(outcomes, changed, sorted(_seen(temporary)))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _outcome(self, step: Step, folder: Path, variables: dict[str, str]) -> Outcome:
        streams = [_Stream(step.out), _Stream(step.err)]
        message = {
            "folder": str(folder),
            "words": step.words,
            "variables": {**variables, **step.variables},
            "fresh": step.fresh,
            "script": str(SCRIPT),
            "closed": [number for number, stream in enumerate(streams, 1) if stream.kind == "closed"],
        }
        data = json.dumps(message).encode()
        socket.send_fds(self._link, [len(data).to_bytes(LENGTH_BYTES, "little")], [stream.write for stream in streams])
        self._link.sendall(data)
        for stream in streams:
            os.close(stream.write)
        try:
            return self._followed(step, streams)
        finally:
            for stream in streams:
                stream.close()

    def _followed(self, step: Step, streams: list["_Stream"]) -> Outcome:
        """Read what a step prints, and send it the signals that are due, until it has ended."""
        pid = int(self._line()["pid"])
        watch = Watch(pid, self._limit_s * SLOW.get("".join(step.words[:1]), 1) + step.patience_s)
        kill, hung = step.kill, False
        interrupts = [step.patience_s, step.patience_s + AGAIN_S] if step.patience_s else []
        while not (ended := self._readable(streams)):
            elapsed = watch.look()
            if kill is not None and elapsed > kill.after_s:
                _kill(pid, kill.signal, kill.worker)
                kill = None
            if interrupts and elapsed > interrupts[0]:
                interrupts.pop(0)
                _kill(pid, signal.SIGINT)
            if not hung and watch.is_over():
                hung = True
                _kill(pid, signal.SIGKILL)
        out, err = (stream.all() for stream in streams)
        interrupted = bool(step.patience_s) and len(interrupts) < 2
        return Outcome(ended["status"], out, err, [] if hung else ended["left"], hung, interrupted)

    def _readable(self, streams: list["_Stream"]) -> dict[str, Any] | None:
        """Read what there is for a moment, and return how the step ended, if it has."""
        open_streams = [stream for stream in streams if stream.read is not None]
        ready, _, _ = select.select([self._link, *open_streams], [], [], 0.05)
        for stream in open_streams:
            if stream in ready:
                stream.take()
        return self._line() if self._link in ready else None

    def _line(self) -> dict[str, Any]:
        line = b""
        while not line.endswith(b"\n"):
            part = self._link.recv(1)
            if not part:
                raise RuntimeError("the process that forks for each step has ended")
            line += part
        return json.loads(line)  # type: ignore[no-any-return]


class _Stream:
    """What one of a step's outputs is, seen from outside. write: the file that the step gets; read: ours, or None."""

    def __init__(self, kind: str) -> None:
        self.kind, self._data = kind, b""
        self.read: int | None = None
        if kind == "full":
            self.write = os.open("/dev/full", os.O_WRONLY)
        else:
            self.read, self.write = os.pipe()
            os.set_blocking(self.read, False)
        if kind == "gone":
            self.close()

    def fileno(self) -> int:
        """The file that `select` waits for."""
        assert self.read is not None
        return self.read

    def take(self) -> bool:
        """Read once; return whether there may be more."""
        if self.read is None:
            return False
        try:
            part = os.read(self.read, 2**16)
        except BlockingIOError:
            return False
        self._data = (self._data + part)[:KEPT_BYTES]
        if not part or (self.kind == "head" and len(self._data) >= HEAD_BYTES):
            self.close()
        return bool(part)

    def all(self) -> str:
        """Return all that was written."""
        while self.take():
            pass
        return self._data.decode(errors="surrogateescape")

    def close(self) -> None:
        """Read no more."""
        if self.read is not None:
            os.close(self.read)
            self.read = None


def _kept() -> dict[str, str]:
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def _kill(pid: int, number: int, worker: bool = False) -> None:
    """Send a signal to a step, or to what it has started, if there is something."""
    for found in children_of(pid) if worker else [pid]:
        with suppress(ProcessLookupError):
            os.kill(found, number)


def _seen(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of the last change of everything below a folder, folders without theirs."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            facts = path.lstat()
            found[str(path.relative_to(folder))] = (0, 0) if path.is_dir() else (facts.st_size, facts.st_mtime_ns)
    return found
