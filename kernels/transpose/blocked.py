"""Transpositions on the CPU that Numba compiles: out of place, and in place with little scratch."""

from typing import Any

from kernelmark import DTYPES, DeviceLimits, Launch, Prefer, Tile, kernel
from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.transpose._strips import SHARE
from kernelmark.kernels.transpose.problem import TransposeOperands, TransposeProblem

RUN = 256  # runs of up to this many bytes are allowed however short rows are
WHOLE_ROWS = {"RUN": 0, "DOWN": 0, "STREAM": 1}  # the default tile if rows of B are whole cache lines
ALONG = {"RUN": LINE_BYTES, "DOWN": 0, "STREAM": 1}  # the default tile if rows of B begin within a cache line
WHOLE = {"STRIP": 0, "SEGMENT": 256}  # the default tile of transpositions in place
_NUMBA: dict[str, Any] = {
    "provider": "numba",
    "device": "cpu",
    "numerics": "exact",
    "modules": ("numba",),
    "threaded": True,
}


def _bits(array: Any) -> Any:
    """Return the elements as a flat array of unsigned integers: only bits move, and Numba has no bfloat16."""
    return array.reshape(-1).view(f"u{array.itemsize}")


def _shape(p: TransposeProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is equivalent to a smaller one, or None."""
    if p.m <= t.DOWN:
        return f"DOWN = {t.DOWN} covers all {p.m} rows, as DOWN = 0 does"
    if t.RUN > RUN and t.RUN // DTYPES[p.dtype].itemsize >= 2 * p.n:
        return f"a run of {t.RUN} bytes is as long as two rows of {p.n} elements or more"
    return None


def _suits(p: TransposeProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is not the default, or None: ALONG is for rows that do not divide into cache lines."""
    line = LINE_BYTES // DTYPES[p.dtype].itemsize
    if (p.m % line != 0) == (vars(t) == ALONG):
        return None
    return f"a row of {p.m} elements is {'not ' if p.m % line else ''}a multiple of a cache line's {line}"


def _no_vector(p: TransposeProblem) -> str | None:
    return f"{p.m} x {p.n} is a vector, whose elements need not move in place" if 1 in (p.m, p.n) else None


def _strips(p: TransposeProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a rectangle cannot be cut into strips of STRIP, or None. Squares are not cut."""
    longer = max(p.m, p.n)
    if p.m == p.n:
        return f"{p.m} x {p.n} is not cut into strips" if vars(t) != WHOLE else None
    if t.STRIP and int(SHARE * longer) - longer % t.STRIP < t.STRIP:
        return f"a strip of {t.STRIP} and the remainder of {longer} take more than {SHARE:.0%} of the matrix"
    return None


#: RUN: bytes of a row of the source that are read before the next row, or 0 for the thread's whole part of the row;
#: DOWN: rows whose runs are read before their next runs, or 0 for all rows; STREAM: write past the caches. ALONG was
#: the fastest of 25 tiles for 3000 x 3000, 2039 x 4099 and 1021 x 26751.
@kernel(
    "transpose",
    places=("out",),
    tunables={
        "RUN": (0, 64, 128, 256, 512, 1024, 2048, 4096),
        "DOWN": (0, 64, 128, 256, 512, 1024, 4096, 16384),
        "STREAM": (0, 1),
    },
    valid=_shape,
    prefer=Prefer((WHOLE_ROWS, ALONG), _suits),
    **_NUMBA,
)
@threads_that_pay()
def blocked(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """Blocks with the side of a cache line are transposed in registers; streaming stores if rows are aligned."""
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels.transpose import _numba as moves
    from kernelmark.kernels.transpose._blocks import width

    a, b, m, n = _bits(x.a), _bits(x.b), problem.m, problem.n
    side, size = width(a.itemsize), a.itemsize
    line = LINE_BYTES // size
    # If the row length is a multiple of a cache line, all rows reach a line's border after the same number of elements.
    streaming = bool(x.tile.STREAM) and m % line == 0 and m > line and b.ctypes.data % size == 0
    run, down = x.tile.RUN // size or n, x.tile.DOWN or m
    skip = -b.ctypes.data % LINE_BYTES // size if streaming else 0

    def band(start: int, stop: int) -> Launch:
        return bind(moves.transpose_each, b, a, m, n, side, skip, streaming, run, down, start, stop)

    return in_bands(problem.batch * n, x.threads, band)


#: STRIP: elements of the longer side in a chunk, or 0 for as many as fit the cache and the scratch; SEGMENT: the most
#: moves of a cycle that one thread makes one after another.
@kernel(
    "transpose",
    places=("in",),
    batchs=(1,),
    tunables={
        "STRIP": (0, 4, 8, 16, 32, 64, 128, 256),
        "SEGMENT": (128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    },
    supports=_no_vector,
    valid=_strips,
    prefer=Prefer((WHOLE,)),
    **_NUMBA,
)
@threads_that_pay()
def tiles(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """In place: chunks follow the cycles of their grid, then strips are transposed in cache; squares swap blocks."""
    from kernelmark.kernels.transpose._tiles import rectangle, square

    return in_turn(*(square if problem.m == problem.n else rectangle)(_bits(x.a), problem, x))
