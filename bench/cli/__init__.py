"""The command `kernelmark`: it reads arguments, prints and sets the exit status; other packages do the work."""

import gc
import os
import sys

NO_MEMORY = "memory: none is left for this command; `ulimit -a` shows the limits"


def main() -> None:
    """Run the command. Each error is one line on standard error, and each kind of error has its own exit status.

    While the commands are imported, a signal ends the process at once, since an exception could print a traceback.
    """
    gc.set_threshold(100_000)  # imports create no garbage, and collecting it took a tenth of `kernelmark list`
    try:
        from kernelmark.bench.plan.signals import take

        taken = take(_leave)
        from kernelmark.bench.cli.commands import call
    except Exception as error:
        if not (complaint := NO_MEMORY if isinstance(error, MemoryError) else shadowed()):
            raise
        os.write(2, f"kernelmark: {complaint}\n".encode())
        os._exit(2)
    status = call(taken)
    gc.freeze()  # so that the interpreter collects no garbage at exit either
    raise SystemExit(status)


def shadowed() -> str | None:
    """Return a complaint about a file that hides one of Python's own modules from imports, or None."""
    library = os.path.dirname(os.__file__)  # noqa: PTH120 # such a file may break pathlib
    folders = sys.path[: sys.path.index(library)] if library in sys.path else []
    for folder in filter(os.path.isdir, folders):
        for file in os.listdir(folder):  # noqa: PTH208
            name, _, end = file.partition(".")
            if end == "py" and name in sys.stdlib_module_names:
                return f"{folder}/{file}: is imported instead of Python's own {name}; remove its folder from PYTHONPATH"
    return None


def _leave(number: int, _: object) -> None:
    try:
        if sys.__stderr__ is not None:  # if standard error is closed, another file may have its number
            os.write(sys.__stderr__.fileno(), b"kernelmark: interrupted\n")
    finally:
        os._exit(128 + number)
