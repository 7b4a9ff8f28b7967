"""What a child prints: kept in a file without a name as far as it is shown, and shown as plain text."""

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import TextIO

from kernelmark.bench.plan.text import one_line, plain

#: Bytes that are shown of what was printed during one job; the rest is given up.
MOST = 64 * 1024
#: The file may grow to this before it is cut, so that it is seldom touched.
_GROWN = 16 * MOST
#: Characters of the last words.
_WORDS = 200


def trim(fd: int) -> None:
    """Give the disk back what would not be shown; the worker goes on writing where it was."""
    if os.fstat(fd).st_size > _GROWN:
        os.ftruncate(fd, MOST)


def relay(fd: int, out: TextIO) -> None:
    """Pass on what was printed, to where complaints go and not among the tables, and forget it."""
    size = os.fstat(fd).st_size
    if not size:
        return
    out.write(plain(os.pread(fd, MOST, 0).decode(errors="replace")))
    if size > MOST:
        out.write(f"\n(a job printed {size / 1e6:.3g} MB, of which {MOST // 1024} kB are shown)\n")
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)  # of the worker too, which shares the position


def last_words(fd: int) -> str:
    """Return the last line that is not empty, on one line of bounded length."""
    start = max(0, os.fstat(fd).st_size - MOST)
    lines = plain(os.pread(fd, MOST, start).decode(errors="replace")).split("\n")
    return next((one_line(line.strip()[:_WORDS]) for line in reversed(lines) if line.strip()), "")


def end_in_a_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what ends a child, and where it was raised, as one line: its parent gives it as the reason."""
    frames = traceback.extract_tb(trace)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    sys.stderr.write(f"{kind.__name__}: {' '.join(str(error).split())}{where}\n")
