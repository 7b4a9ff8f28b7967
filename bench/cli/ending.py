"""Turn each error of a command into one line on standard error and the matching exit status."""

import errno
import io
import os
import select
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click import echo

from kernelmark import __version__
from kernelmark.bench.cli import NO_MEMORY, shadowed
from kernelmark.bench.cli.shared import AGAINST, DEFECT, INTERRUPTED, OK, USAGE
from kernelmark.bench.plan.errors import StoreGone, Unsupported, UsageError, message
from kernelmark.bench.plan.signals import exit_status
from kernelmark.bench.plan.text import MOST, one_line

#: Errors of writes to standard output; such an error names no file.
_OF_OUTPUT = (errno.ENOSPC, errno.EIO, errno.EBADF)
#: Errors of calls that fail because the system allows no more files, processes or memory.
_OF_MACHINE = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
_LIMITS = "`ulimit -a` shows the limits"
#: Part of the dynamic loader's message if a process may not map more memory.
_NO_ROOM = "failed to map segment"


class ReaderGone(Exception):
    """The program that reads standard output has ended, as in `| head`."""


def status_of(work: Callable[[], object]) -> int:
    """Run a command and return the exit status."""
    try:
        status = _ended(work)
    except KeyboardInterrupt:  # a second interrupt, while the first was reported
        status = INTERRUPTED
    return exit_status() if status == INTERRUPTED else status


def leave_if_interrupted(unraisable: Any) -> None:
    """End the process if an interrupt came where no exception can be raised: in a callback or a finaliser."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(exit_status())
    sys.__unraisablehook__(unraisable)


def _ended(work: Callable[[], object]) -> int:
    _stand_in_for_closed()
    _print_everything()
    try:
        return _done(work)
    except StoreGone as error:
        return _complain(str(error), AGAINST)
    except (UsageError, Unsupported) as error:
        return _complain(message(error) or "no message", USAGE)
    except click.ClickException as error:
        return _complain(_of_click(error), USAGE)
    except click.Abort:
        _flush()
        return INTERRUPTED
    except KeyboardInterrupt:  # before or after click handles interrupts
        return _complain("interrupted", INTERRUPTED)
    except (ReaderGone, OSError) as error:
        interrupted = isinstance(error.__context__, KeyboardInterrupt)  # click then writes an empty line
        if interrupted or isinstance(error, ReaderGone | BrokenPipeError):
            _discard(1, 2)  # either may have lost its reader
            return INTERRUPTED if interrupted else OK
        if error.errno in _OF_MACHINE:
            return _complain(f"the system refuses: {error.strerror}; {_LIMITS}", USAGE)
        if error.filename is None and error.errno not in _OF_OUTPUT:
            return _defect(error)
        _discard(1)
        return _complain(f"{error.filename or 'standard output'}: {error.strerror}", USAGE)
    except MemoryError:
        os._exit(_complain(NO_MEMORY, USAGE))  # Python's normal exit needs more memory
    except BaseException as error:
        return _defect(error)


def _of_click(error: click.ClickException) -> str:
    """Return click's message; if it has no remedy, add the `--help` command that lists the valid arguments."""
    complaint = error.format_message()
    refused = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    if refused or "Did you mean" in complaint or not isinstance(error, click.UsageError) or error.ctx is None:
        return complaint
    command = " ".join(("kernelmark", *error.ctx.command_path.split()[1:]))
    return f"{complaint.removesuffix('.')}; `{command} --help` lists its options and arguments"


def _stand_in_for_closed() -> None:
    """Open the null device for each closed stream. Otherwise the next file opened would get the stream's number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(getattr(sys, name), "closed", True):  # None has no such attribute
            # A bare descriptor: the interpreter warns if it has to close a file object at exit.
            null = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            setattr(sys, name, open(null, mode, closefd=False))  # noqa: SIM115


class _Whole(io.FileIO):
    """An open file whose `write` writes all data, even if the system accepts only a part at a time, or none for now.

    Python's unbuffered file (PYTHONUNBUFFERED) drops the rest; its buffered file fails on a non-blocking pipe.
    """

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        while left:
            if (written := super().write(left)) is None:
                select.select([], [self], [])
            left = left[written or 0 :]
        return len(data)


def _print_everything() -> None:
    """Make output streams write everything, as UTF-8 in any locale. Bytes of a path that are not UTF-8 are escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        if stream is getattr(sys, f"__{name}__") and isinstance(getattr(buffer, "raw", buffer), io.FileIO):
            raw = _Whole(stream.fileno(), "w", closefd=False)
            how = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
            out = raw if stream.write_through else io.BufferedWriter(raw)
            setattr(sys, name, io.TextIOWrapper(out, "utf-8", "backslashreplace", **how))


def _done(work: Callable[[], object]) -> int:
    status: int | str | None = OK
    streams = sys.stdout, sys.stderr
    try:
        work()
    except SystemExit as ending:
        status = ending.code
        if complaint := _of_plugin(ending):
            raise UsageError(complaint) from None
    except ValueError:
        if not any(stream.closed for stream in streams):
            raise
        raise UsageError("a plug-in closed standard output or standard error; expected both to stay open") from None
    finally:
        sys.stdout, sys.stderr = streams  # a plug-in may have closed or replaced them
        _stand_in_for_closed()
    sys.stdout.flush()  # a full disk makes this fail
    if isinstance(status, str):  # from sys.exit("...") in a module that a plug-in imports
        raise UsageError(status)
    return status or OK


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard(1)


def _complain(text: str, status: int) -> int:
    _flush()
    try:
        echo(one_line(f"kernelmark: {text}"), err=True)
    except OSError:
        _discard(2)
    return status


def _defect(error: BaseException) -> int:
    """Report a defect of kernelmark and save its traceback to a file. An error in a plug-in counts as bad input."""
    if complaint := _of_plugin(error) or _of_environment(error):
        return _complain(complaint, USAGE)
    what = f"{type(error).__name__}: {message(error)}"[: MOST // 3]
    return _complain(f"defect: {what}; a report for the authors is in {_saved(error)}", DEFECT)


def _of_plugin(error: BaseException) -> str | None:
    discovery = sys.modules.get("kernelmark.bench.plan.discovery")  # loaded only if there are plug-ins
    return discovery.of_plugin(error) if discovery else None


def _of_environment(error: BaseException) -> str | None:
    """Return a complaint if lack of memory, MPLBACKEND, the clock or a shadowed module caused the error, or None."""
    if isinstance(error, ImportError) and _NO_ROOM in message(error):
        return f"{NO_MEMORY} ({message(error)})"
    if message(error).startswith("Key backend:"):  # Matplotlib's message
        return f"MPLBACKEND: is {os.environ.get('MPLBACKEND')!r}, expected a backend of Matplotlib; unset it"
    if isinstance(error, OverflowError) and "timestamp" in message(error):
        return "the clock of this machine: is set past the range of Python's times, expected a date up to 2262; set it"
    return shadowed()


def _saved(error: BaseException) -> str:
    import tempfile
    import traceback

    text = (
        f"kernelmark {__version__}, Python {sys.version}\n{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n"
        f"{sys.argv}\n\n{''.join(traceback.format_exception(error))}"
    )
    try:
        fd, name = tempfile.mkstemp(".txt", "kernelmark-defect-")
        os.close(fd)
        Path(name).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as full:
        return f"not written ({full.strerror})"
    return name


def _discard(*outputs: int) -> None:
    """Discard buffered output. Otherwise the interpreter would fail to write it at exit, and end with status 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    for output in outputs:
        os.dup2(null, output)
    os.close(null)
