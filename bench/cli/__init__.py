"""The command `kernelmark`: reads arguments, prints, sets the exit status; the work is done elsewhere."""

import gc
import os
import signal
import sys


def main() -> None:
    """Entry point: every complaint is one line on standard error, with an exit status of its own.

    An interrupt ends the process at once while the commands are imported, where an exception could leave a traceback.
    """
    gc.set_threshold(100_000)  # imports make objects and no garbage: looking for it took a tenth of `kernelmark list`
    # A shell lets what it starts in the background ignore interrupts.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    from kernelmark.bench.cli.commands import call

    status = call(interruptible)
    gc.freeze()  # nor need the interpreter look for garbage as it ends
    raise SystemExit(status)


def _leave(*_: object) -> None:
    try:
        if sys.__stderr__ is not None:  # where standard error is closed, its number may be another file's
            os.write(sys.__stderr__.fileno(), b"kernelmark: interrupted\n")
    finally:
        os._exit(128 + signal.SIGINT)
