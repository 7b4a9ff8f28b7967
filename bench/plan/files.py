"""What can be read or written as a file: no folder, and nothing that would wait for another process."""

import stat
from pathlib import Path

from bench.plan.errors import UsageError

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
