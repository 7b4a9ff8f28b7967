"""Perform an input, each step in a fork of this process, and list its faults.

A fork costs less than a new process. Unlike a call in this process, it has its own exit status, streams and signals,
and its end can be observed even if a plug-in patches, closes or ends a part of the command.
"""

import atexit
import csv
import functools
import gc
import io
import os
import pkgutil
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path, PurePath
from typing import NamedTuple, TextIO

import msgspec

from fuzz.inputs import Input, Step, Stream, lay_out
from kernelmark import bench
from kernelmark.bench.cli.shared import DEFECT
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.run.family import Member, adopt, below
from support.processes import command, complaints

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("kernelmark")
#: CPU seconds that a step may use, and how many times as long it may take while other processes use the CPUs. The
#: product is less than the minute after which the command itself ends a plug-in.
LIMIT_S, BUSY = 10.0, 5
#: Factors of the limits of slow commands; `report` draws all figures of a run twice.
SLOW = {"report": 2}
#: The time until a second interrupt, since a run finishes the current job after the first.
AGAIN_S = 1.0
#: The time for which processes that a step has started may outlive it.
GRACE_S = 10.0
TICK_S = 0.05
#: The address space of a step, so that a plug-in cannot fill the memory of the machine.
MOST_BYTES = 8 * 2**30
#: The variables that a step inherits, by which it finds programs, libraries and compiled kernels.
INHERITED = ("PATH", "HOME", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "PYTHONDONTWRITEBYTECODE")
#: Modules that only steps that need them import, since they start threads or take a second.
COLD = tuple(f"kernelmark.bench.{name}" for name in ("pytest", "selftest", "emulator", "report.figures", "run.worker"))


class Outcome(NamedTuple):
    """How a step ended. status: negative for a signal. left: commands that it left running. hung: it was killed.

    interrupted: it took longer than `patience_s`.
    """

    status: int
    out: str = ""
    err: str = ""
    left: tuple[str, ...] = ()
    hung: bool = False
    interrupted: bool = False


class Observed(NamedTuple):
    """The outcomes of an input's steps, the new and changed files of its folder, and the files in TMPDIR."""

    outcomes: list[Outcome]
    changed: Sequence[str] = ()
    temporary: Sequence[str] = ()


@functools.cache
def prepare() -> None:
    for module in pkgutil.walk_packages(bench.__path__, "kernelmark.bench."):
        if not module.name.startswith(COLD):
            with suppress(ImportError):
                import_module(module.name)
    discover()
    gc.freeze()  # so that forks share the objects that they do not use
    adopt()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the campaign
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def perform(given: Input, samples: Path, place: Path, limit_s: float) -> Observed:
    """Perform an input in the folder `place`, which is made for it and removed after it."""
    prepare()
    folder, temporary = place / "work", place / "tmp"
    folder.mkdir(parents=True)
    temporary.mkdir()
    try:
        lay_out(given.files, folder, samples)
        before = _seen(folder)
        outcomes = [_performed(step, place, limit_s) for step in given.steps]
        after = _seen(folder)
        changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        return Observed(outcomes, changed, sorted(_seen(temporary)))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _performed(step: Step, place: Path, limit_s: float) -> Outcome:
    limit_s = limit_s * SLOW.get("".join(step.words[:1]), 1) + step.patience_s
    paths = place / "out", place / "err"
    streams = [_stream(kind, path) for kind, path in zip((step.out, step.err), paths, strict=True)]
    readers = [reader for _, reader in streams if reader is not None]
    pid = os.fork()
    if pid == 0:
        for reader in readers:
            os.close(reader)
        _become(step, place, [file for file, _ in streams], limit_s)
    for file, _ in streams:
        os.close(file)
    due = [(signal.SIGINT, step.patience_s + again_s) for again_s in (0.0, AGAIN_S) if step.patience_s]
    due.append((signal.SIGKILL, BUSY * limit_s))
    ended, elapsed_s = os.pidfd_open(pid), 0.0  # without time in which this process was stopped, too
    while ended not in (ready := select.select([ended, *readers], [], [], TICK_S)[0]):
        for reader in ready:
            readers.remove(reader)
            os.close(reader)
        elapsed_s += 0.0 if ready else TICK_S
        while due and elapsed_s > due[0][1]:
            signal.pidfd_send_signal(ended, due.pop(0)[0])
    for file in (ended, *readers):
        os.close(file)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left, hung = _ended(), not due or status == -signal.SIGXCPU
    out, err = (path.read_bytes().decode(errors="surrogateescape") if path.exists() else "" for path in paths)
    return Outcome(status, out, err, () if hung else left, hung, 0.0 < step.patience_s < elapsed_s)


def _stream(kind: Stream, path: Path) -> tuple[int, int | None]:
    """Open an output of a step; return its descriptor, and that of a reader that closes after the first bytes."""
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY), None
    if kind in ("gone", "head"):
        reader, writer = os.pipe()
        if kind == "head":
            return writer, reader
        os.close(reader)
        return writer, None
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), None


def _become(step: Step, place: Path, files: list[int], limit_s: float) -> None:
    """Run the step as if a shell had started this process for it, and exit."""
    leave = os._exit  # a plug-in may replace functions
    try:
        os.setsid()
        seconds = int(limit_s) + 1
        for name, most in ((resource.RLIMIT_AS, MOST_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, seconds)):
            resource.setrlimit(name, (most, most + (name == resource.RLIMIT_CPU)))
        for number, (file, kind) in enumerate(zip(files, (step.out, step.err), strict=True), 1):
            os.dup2(file, number)
            os.close(file)
            if kind == "closed":
                os.close(number)
        os.chdir(place / "work")
        variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
        os.environ.clear()
        os.environ.update({**variables, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "TMPDIR": str(place / "tmp")})
        os.environ.update({"XDG_DATA_HOME": str(place / "data"), **step.variables})
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if step.fresh:
            os.execve(sys.executable, [sys.executable, SCRIPT, *step.words], dict(os.environ))
        sys.argv = [str(SCRIPT), *step.words]
        sys.stdout = sys.__stdout__ = _text(1, step.out)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _text(2, step.err)  # type: ignore[misc]
        leave(_called() & 0xFF)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        leave(1)


def _text(number: int, kind: Stream) -> TextIO | None:
    if kind == "closed":
        return None
    errors, buffering = ("strict", -1) if number == 1 else ("backslashreplace", 1)
    return open(number, "w", buffering, encoding="utf-8", errors=errors, closefd=False)


def _called() -> int:
    """Call the command as the console script does, and end as the interpreter does; return the exit status.

    The interpreter would also remove all objects, which takes longer than most commands. It ends with 120 if it cannot
    write buffered output.
    """
    from kernelmark.bench.cli import main

    on_signal = signal.signal
    try:
        try:
            main()
            status = 0
        except SystemExit as ending:
            status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            status = 1
        on_signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:  # after the command's end, when a process of its own takes no interrupt
        return 128 + signal.SIGINT
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            status = 120
    return status


def _ended() -> tuple[str, ...]:
    """Kill the processes that a step has left and that do not end within GRACE_S; return their commands."""
    until, ended = time.monotonic() + GRACE_S, set[str]()
    while left := _left():
        if time.monotonic() > until:
            ended.update(command(member.pid).replace("\0", " ")[:100] for member in left)
            for member in left:
                with suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)
        time.sleep(0.01)
    return tuple(sorted(ended))


def _left() -> list[Member]:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return below(os.getpid())
    return []


def _seen(folder: Path) -> dict[str, tuple[int, int]]:
    facts_by_name = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        facts_by_name[str(path.relative_to(folder))] = (0, 0) if path.is_dir() else (facts.st_size, facts.st_mtime_ns)
    return facts_by_name


STATUSES = (0, 1, 2, 130)
#: The longest line on standard error.
MOST = 300
#: Commands that write progress to standard error, and the option with which all text but JSON goes there.
TALKS = ("run", "claims", "tune", "--json")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Exception ignored in")
#: Errors of a plug-in that are no `Exception`. They end its worker, whose traceback the command shows.
_BEYOND = re.compile(r"^(KeyboardInterrupt|GeneratorExit|\S+\.Base)\b", re.MULTILINE)
#: A word with a shorter stem names one file only, not all files that begin with its stem.
SHORTEST_STEM = 3


def faults(given: Input, performed: Observed) -> list[str]:
    pairs = list(zip(given.steps, performed.outcomes, strict=True))
    of_steps = [fault for step, outcome in pairs for fault in _step(given, step, outcome)]
    if given.wild or any(outcome.hung for outcome in performed.outcomes):
        return of_steps
    given_words = [word for s in given.steps for word in (*s.words, *s.variables.get("COMP_WORDS", "").split())]
    words = [text for word in given_words for text in (word, word.partition("=")[2] or word)]
    named = {os.path.normpath(word) for word in (*words, *given.asked, "kernelmark-report")}  # report's default
    of_steps += [f"file left or changed: {name}" for name in performed.changed if not _may_change(name, named)]
    return of_steps + [f"temporary file left: {name}" for name in performed.temporary if "-defect-" not in name]


def _may_change(name: str, named: set[str]) -> bool:
    """Return whether a path in `named` is `name`, contains it, is in it, or is the beginning of it."""
    if "." in named or "__pycache__" in name or name in named:
        return True
    if any(place.startswith(f"{name}/") or name.startswith(f"{place}/") for place in named):
        return True
    stems = (str(PurePath(place).with_suffix("")) for place in named if PurePath(place).name)
    return any(len(stem) >= SHORTEST_STEM and name.startswith(stem) for stem in stems)


def _step(given: Input, step: Step, outcome: Outcome) -> Iterator[str]:
    if outcome.hung:
        yield f"hang: goes on{' after an interrupt' if outcome.interrupted else ''}"
        return
    if outcome.left:
        yield f"left running: {', '.join(outcome.left)}"
    text = outcome.err + outcome.out
    if _TRACEBACK.search(text) and not (given.wild and _BEYOND.search(outcome.err)):
        yield f"traceback: {_last(text)}"
    if given.wild and outcome.status == DEFECT:
        yield f"exit {DEFECT}: {_last(outcome.err)}"
    if not given.wild:
        yield from _status(step, outcome)
        yield from _lines(step, outcome)
        yield from _data(step, outcome)


def _status(step: Step, outcome: Outcome) -> Iterator[str]:
    sent = {-signal.SIGINT} if outcome.interrupted else set()
    if outcome.status not in {*STATUSES, *sent}:
        how = signal.Signals(-outcome.status).name if outcome.status < 0 else f"exit {outcome.status}"
        yield f"{how}: {_last(outcome.err)}"
    elif step.refused and outcome.status != 2 and not outcome.interrupted:
        yield f"not refused: exit {outcome.status}: {_last(outcome.err)}"


def _lines(step: Step, outcome: Outcome) -> Iterator[str]:
    """Yield faults of standard error: long lines, more than one complaint, warnings, refusals without a message."""
    messages = complaints(outcome.err)
    for line in outcome.err.splitlines():
        if len(line) > MOST:
            yield f"a line of {len(line)} characters: {line}"
    ours = [line for line in messages if line.startswith("kernelmark: ")]
    others = [] if any(word in step.words for word in TALKS) else [line for line in messages if line not in ours]
    if len(ours) > 1 or (len(ours) == 1 and others) or len(others) > 1:
        yield f"{len(ours) + len(others)} lines: {' | '.join(ours + others)}"
    if any(re.search(r"\b[A-Z]\w+Warning\b", line) for line in others):
        yield f"warning: {others[0]}"
    if outcome.status == 2 and not ours and step.err == "file":
        yield f"refused without a word: {_last(outcome.out)}"


def _data(step: Step, outcome: Outcome) -> Iterator[str]:
    """Yield faults of JSON and CSV on standard output."""
    other = {"--help", "-h", "_KERNELMARK_COMPLETE"}.intersection((*step.words, *step.variables))
    if outcome.status != 0 or step.out != "file" or other:
        return
    style = re.findall(r"--format[ =](\w+)", " ".join(step.words)) or ["csv"]
    try:
        if "--json" in step.words or (step.words[:1] == ("export",) and style[-1] == "json" and outcome.out):
            msgspec.json.decode(outcome.out.encode(errors="surrogateescape"))
        elif step.words[:1] == ("export",) and style[-1] == "csv":
            widths = {len(row) for row in csv.reader(io.StringIO(outcome.out, newline=""), strict=True)}
            if len(widths) > 1:
                yield f"no CSV: lines of {' and '.join(map(str, sorted(widths)))} cells"
    except (ValueError, csv.Error) as error:
        yield f"no {'CSV' if isinstance(error, csv.Error) else 'JSON'}: {error}"


def _last(text: str) -> str:
    return ascii(next((line for line in reversed(text.splitlines()) if line.strip()), ""))[1:-1][:200]
