"""Cut the longer side of a matrix into strips for transposition in place; pure arithmetic."""

from typing import NamedTuple

SHARE = 0.08  # limit of scratch for strips and the remainder, relative to the matrix; saved chunks add less than 2 %


class Strips(NamedTuple):
    """size: T, the width of strips. workers: threads with a strip in scratch. rest: the longer dimension modulo T."""

    size: int
    workers: int
    rest: int


def strips(longer: int, line_bytes: int, threads: int, cache_bytes: int, wanted: int = 0) -> Strips:
    """Return the largest T for which SHARE has room for a strip per thread; above 32, strips must fit the cache.

    If T is above 64, a strip takes at most half of the cache, so that its copy fits, too. For T of 16 or less, long
    chunks matter more than threads, and one strip is enough. cache_bytes: size of the second-level cache. wanted: use
    this T, with fewer threads if SHARE has no room for all of them.
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
