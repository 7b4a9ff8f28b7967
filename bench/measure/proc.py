"""Files of /proc and /sys, read often, and while something is measured."""

import os
from pathlib import Path

_PIECE_BYTES = 2**16
#: Held since before a plug-in could replace them.
_open, _read, _close, _list = os.open, os.read, os.close, os.listdir


def contents(path: Path | str) -> bytes:
    """Return what a file holds, in half the time of Path.read_text. Raises OSError."""
    fd, found = _open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while piece := _read(fd, _PIECE_BYTES):
            found += piece
    finally:
        _close(fd)
    return found


def names(folder: Path | str) -> list[str]:
    """Return the names in a folder, without the paths that Path.iterdir makes of them; none where it is not there."""
    try:
        return _list(folder)
    except OSError:
        return []
