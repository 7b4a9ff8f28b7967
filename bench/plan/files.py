"""What can be read or written as a file: no folder, and nothing that would wait for another process."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelmark.bench.plan.errors import UsageError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_file(path: Path) -> None:
    """Raise UsageError for what is there and is no file; what is not there, or hidden, is left to whoever opens it."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError):
        return
    if kind != stat.S_IFREG:
        raise UsageError(f"{path}: is {_KINDS.get(kind, 'of an unknown kind')}, expected a file")


@contextmanager
def only_utf8() -> Iterator[None]:
    """Raise UsageError where a text that a run records is not UTF-8, which names of files need not be."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object}: is not UTF-8, expected a name that a run can record; rename it") from None
