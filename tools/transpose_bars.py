"""What our CPU transpositions promise, measured: rows of (promise, found, holds) for `make bars`."""

from collections.abc import Iterator
from statistics import median

from hot_rows import hot, median_s

ROUNDS = 15


def transpose_bars() -> Iterator[tuple[str, str, bool]]:
    """Our CPU transpositions on the founding operands, hot on 2 threads: a run of the worker for each bar and shape.

    In place OpenBLAS's imatcopy shares the job, so its ratio comes from samples taken in turn. A copy is another
    operation: short jobs of both alternate, and the ratio is the median over rounds. The copy is the best of the
    suite's, on two threads. Hot, since 110 and 220 MB are beyond most last-level caches anyway.
    """
    ours, theirs = "transpose/numba.tiles", "transpose/openblas.imatcopy"
    for m in (1024, 2048):
        full = "transpose/openblas.omatcopy_and_back"
        rows = hot(f"transpose/m{m}n26752/f32/in", theirs, ours, full)
        tiles = rows[1]
        assert tiles.ratio is not None
        times = ", ".join(f"{row.kernel} {median_s(row) * 1e3:.1f} ms" for row in rows)
        share, speedup = (tiles.scratch_bytes or 0) / (m * 26752 * 4), tiles.ratio.median
        spread = f"[{tiles.ratio.low:.2f}, {tiles.ratio.high:.2f}]"
        found, faster = f"{speedup:.2f}x {spread}, {share:.1%} scratch; {times}", median_s(tiles) < median_s(rows[2])
        shape = f"{m}x26752 f32 in place"
        yield f"{shape}, 5 % scratch: 4.5x imatcopy", found, speedup >= 4.5 and share <= 0.05
        promise = f"{shape}, 15 % scratch: 5.5x imatcopy, faster than a full copy and back"
        yield promise, found, speedup >= 5.5 and share <= 0.15 and faster
    for m in (1024, 2048):
        rounds = [_shares_of_copy(m) for _ in range(ROUNDS)]
        own, openblas = (median(found) for found in zip(*rounds, strict=True))
        spread = f"[{min(found[0] for found in rounds):.0%}, {max(found[0] for found in rounds):.0%}]"
        found = f"{own:.0%} {spread} of copy over {ROUNDS} rounds; omatcopy on 2 threads {openblas:.0%}"
        yield f"{m}x26752 f32 out of place: 95 % of the best threaded copy", found, own >= 0.95


def _shares_of_copy(m: int) -> list[float]:
    """What our transposition and OpenBLAS's reach of the best copy that is measured beside them.

    Each is measured in a job of its own: of what others leave in a last-level cache of this size, some would be slower.
    """
    copies = [_alone_s(f"copy/m{m}n26752/f32", name) for name in ("copy/numpy.threaded", "copy/numba.streaming")]
    names = ("transpose/numba.blocked", "transpose/openblas.omatcopy_threaded")
    return [min(copies) / _alone_s(f"transpose/m{m}n26752/f32/out", name) for name in names]


def _alone_s(problem: str, kernel: str) -> float:
    (row,) = hot(problem, kernel, max_time_s=0.5)
    return median_s(row)
