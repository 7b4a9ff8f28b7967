"""Cut the longer side of a matrix into strips for transposition in place; pure arithmetic."""

from typing import NamedTuple

SHARE = 0.08  # of the matrix, for strips and what is left over; chunks saved from long cycles are below two per cent


class Strips(NamedTuple):
    """T, the number of threads that have a strip in scratch, and the rest of the longer dimension modulo T."""

    size: int
    workers: int
    rest: int


def strips(longer: int, line_bytes: int, threads: int, cache_bytes: int, wanted: int = 0) -> Strips:
    """Return the largest T that leaves every thread a strip within SHARE, one of half the cache if T is above 64.

    From 16 down long chunks matter more than threads, and one strip is enough; up to 64 they matter more than a cache
    that has room for a strip's copy, and a strip may fill it. cache_bytes: of the second-level cache. wanted: the T to
    take, with fewer threads if SHARE has no room for all.
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
