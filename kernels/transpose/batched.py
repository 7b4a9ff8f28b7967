"""Plan of a launch that transposes many matrices, such as images between NCHW and NHWC."""

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Tile, cuda_kernel
from kernelmark.kernels._cuda import INT_LIMIT, beyond_static, ceil_div
from kernelmark.kernels.transpose.handwritten import BITS, within_ints
from kernelmark.kernels.transpose.problem import TransposeProblem

VECTOR, LINE, WORD = 16, 128, 4  # bytes that a lane moves at once, bytes across all banks, bytes of one bank


def tiles(p: TransposeProblem, t: Tile) -> int:
    """Return the number of blocks, one for each tile of each matrix."""
    return p.batch * ceil_div(p.m, t.TILE) * ceil_div(p.n, t.TILE)


def widths(p: TransposeProblem) -> tuple[int, int]:
    """Return how many elements of A and of B are moved at once: a vector if all rows begin at vector boundaries."""
    vector = VECTOR // DTYPES[p.dtype].itemsize
    a, b = (vector if length % vector == 0 else 1 for length in (p.n, p.m))
    return a, b


def _valid(p: TransposeProblem, t: Tile, _: DeviceLimits) -> str | None:
    size = DTYPES[p.dtype].itemsize
    if t.TILE * size % LINE:
        return f"a row of a tile has {t.TILE * size} bytes, expected a multiple of {LINE}"
    if t.TILE % (down := t.THREADS // (4 if size < WORD else 8)):
        return f"{t.THREADS} threads cover {down} lines at a time, expected a divisor of TILE = {t.TILE}"
    if (count := tiles(p, t)) > INT_LIMIT:
        return f"{count} tiles, expected at most {INT_LIMIT}: a grid has no more blocks along x"
    return beyond_static(t.TILE * (t.TILE * size + max(size, WORD)))


def _empty(p: TransposeProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return why a later tile is preferred, or None: at least half of this tile would lie past the matrices."""
    if 2 * min(p.m, p.n) <= t.TILE and t.TILE * DTYPES[p.dtype].itemsize > LINE:
        return f"at least half of {t.TILE} rows or columns lie past matrices of {p.m} x {p.n}"
    return None


@cuda_kernel(
    "transpose",
    source="transpose/batched.cu",
    entry="transpose_batched<bits::{dtype}, {TILE}, {THREADS}, {WA}, {WB}>",
    places=("out",),
    tunables={"TILE": (16, 32, 64, 128), "THREADS": (64, 128, 256, 512)},
    supports=within_ints,
    valid=_valid,
    prefer=Prefer(({"TILE": 64, "THREADS": 256}, {"TILE": 32, "THREADS": 256}, {"TILE": 16, "THREADS": 128}), _empty),
    **{name: value for name, value in BITS.items() if name != "batchs"},
)
def batched(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """A batch of matrices through a padded tile, with vector accesses to the matrix whose rows are aligned."""
    a, b = widths(p)
    entry = f"transpose_batched<bits::{p.dtype}, {t.TILE}, {t.THREADS}, {a}, {b}>"
    return [KernelCall(tiles(p, t), t.THREADS, ("a", "b", p.m, p.n), entry=entry)]
