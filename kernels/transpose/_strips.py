"""Cut the longer side of a matrix into strips for transposition in place; pure arithmetic."""

from typing import NamedTuple

SHARE = 0.08  # limit of scratch for strips and the remainder, relative to the matrix; saved chunks add less than 2 %


class Strips(NamedTuple):
    """Strips of width `size` (T). workers: how many threads get scratch for a strip. rest: the longer side modulo T."""

    size: int
    workers: int
    rest: int


def strips(longer: int, line_bytes: int, threads: int, cache_bytes: int, wanted: int = 0) -> Strips:
    """Return strips of the largest width T for which scratch (SHARE of the matrix) holds a strip for each thread.

    If T is above 32, a strip must fit in the second-level cache of `cache_bytes`; if T is above 64, the strip and a
    copy of it must fit. If T is 16 or less, long chunks matter more than threads, and scratch for one strip is enough.
    wanted: use this T, with fewer threads if SHARE has no room for all of them.
    """
    for size in (128, 64, 32, 16, 8, 4, 2) if not wanted else ():
        if size > 32 and size * line_bytes * (2 if size > 64 else 1) > cache_bytes:
            continue
        rest = longer % size
        workers = min(threads, (int(SHARE * longer) - rest) // size)
        if workers == threads or (workers > 0 and size <= 16):
            return Strips(size, workers, rest)
    if wanted:
        room = (int(SHARE * longer) - longer % wanted) // wanted
        return Strips(wanted, min(threads, room), longer % wanted)
    return Strips(1, threads, 0)
