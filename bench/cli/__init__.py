"""The command `kernelmark`: reads arguments, prints, sets the exit status; the work is done elsewhere."""

import gc
import os
import sys

from kernelmark.bench.plan.signals import take


def main() -> None:
    """Run the command: every complaint is one line on standard error, with an exit status of its own.

    A signal ends the process at once while the commands are imported, where an exception could leave a traceback.
    """
    gc.set_threshold(100_000)  # imports make objects and no garbage: looking for it took a tenth of `kernelmark list`
    taken = take(_leave)
    from kernelmark.bench.cli.commands import call

    status = call(taken)
    gc.freeze()  # nor need the interpreter look for garbage as it ends
    raise SystemExit(status)


def _leave(number: int, _: object) -> None:
    try:
        if sys.__stderr__ is not None:  # where standard error is closed, its number may be another file's
            os.write(sys.__stderr__.fileno(), b"kernelmark: interrupted\n")
    finally:
        os._exit(128 + number)
