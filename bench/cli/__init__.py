"""The command `kernelmark`: it reads arguments, prints and sets the exit status; other packages do the work."""

import gc
import os
import sys

from kernelmark.bench.plan.signals import take


def main() -> None:
    """Run the command; each error is one line on standard error, and each kind of error has its own exit status.

    While the commands are imported a signal ends the process at once, because an exception could print a traceback.
    """
    gc.set_threshold(100_000)  # imports create no garbage, and collecting it took a tenth of `kernelmark list`
    taken = take(_leave)
    from kernelmark.bench.cli.commands import call

    status = call(taken)
    gc.freeze()  # so that the interpreter collects no garbage at exit either
    raise SystemExit(status)


def _leave(number: int, _: object) -> None:
    try:
        if sys.__stderr__ is not None:  # if standard error is closed, another file may have its number
            os.write(sys.__stderr__.fileno(), b"kernelmark: interrupted\n")
    finally:
        os._exit(128 + number)
