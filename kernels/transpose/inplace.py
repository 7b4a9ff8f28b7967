"""Our own transpositions of rectangles in place: pure plans of launches over a bounded stage."""

import math
from typing import NamedTuple

from kernelmark import DTYPES, KernelCall, Scratch, Tile, cuda_kernel
from kernels._cuda import ceil_div
from kernels.transpose.handwritten import BITS
from kernels.transpose.problem import TransposeProblem

SHARED_LIMIT = 227 * 1024  # bytes a block may have at most, on Hopper; less elsewhere, which the launcher refuses
SHARED_EVERYWHERE = 64 * 1024  # on every compute capability; three such blocks share a multiprocessor of Hopper
SCRATCH_SHARE = 10  # scratch is at most this part of the matrix
BLOCKS = 264  # that have a part of the scratch each, at most: two for each multiprocessor of an H100
NARROWEST = 8  # columns of a stripe: a sector of 32 bytes, in f32
_THREADS, _WARP = 512, 32
_EACH = 16  # elements a thread moves before a block gets more threads


class View(NamedTuple):
    """The buffer as c2r.cu sees it, the longer side along the rows; back: m > n, the steps are inverted."""

    rows: int
    cols: int
    itemsize: int
    back: bool

    @property
    def common(self) -> int:
        """The greatest common divisor of the sides."""
        return math.gcd(self.rows, self.cols)

    @property
    def row_bytes(self) -> int:
        """A row in shared memory: whole groups of 32, within which elements are spread over the banks."""
        return ceil_div(self.cols, 32) * 32 * self.itemsize

    def stripe_bytes(self, width: int) -> int:
        """A stripe of columns."""
        return self.rows * width * self.itemsize

    @property
    def row_blocks(self) -> int:
        """Blocks that a tenth of the matrix gives a row of scratch each, 0 where it holds none."""
        return min(BLOCKS, self.rows // SCRATCH_SHARE)

    def stripe_blocks(self, width: int) -> int:
        """Blocks that a tenth of the matrix gives a stripe of scratch each, 0 where it holds none."""
        return min(BLOCKS, self.cols // SCRATCH_SHARE // width)

    def row_is_shared(self, t: Tile) -> bool:
        """Whether rows are staged in shared memory."""
        return not t.SCRATCH and self.row_bytes <= SHARED_LIMIT

    def stripe_is_shared(self, t: Tile) -> bool:
        """Whether stripes are staged in shared memory."""
        return not t.SCRATCH and self.stripe_bytes(t.W) <= SHARED_LIMIT

    def scratch(self, t: Tile) -> Scratch:
        """The one buffer that both kinds of passes stage through."""
        rows = 0 if self.row_is_shared(t) else self.row_blocks * self.cols * self.itemsize
        stripes = 0 if self.stripe_is_shared(t) else self.stripe_blocks(t.W) * self.stripe_bytes(t.W)
        return Scratch("stage", max(rows, stripes))


def view(p: TransposeProblem) -> View:
    """The view of a problem's buffer."""
    return View(min(p.m, p.n), max(p.m, p.n), DTYPES[p.dtype].itemsize, p.m > p.n)


def _fits(p: TransposeProblem, t: Tile) -> str | None:
    v = view(p)
    return _row_fits(v, t) or _stripe_fits(v, t)


def _row_fits(v: View, t: Tile) -> str | None:
    if v.rows == 1 or v.row_is_shared(t) or v.row_blocks:
        return None
    return (
        f"a row of {v.cols} elements takes {v.row_bytes} bytes, more than the {SHARED_LIMIT} of shared memory and "
        f"than a tenth of the matrix: it has {v.rows} rows, expected at least {SCRATCH_SHARE}"
    )


def _stripe_fits(v: View, t: Tile) -> str | None:
    """Wide stripes are coalesced better; they are worth it while enough blocks can have one."""
    if v.stripe_is_shared(t):
        fits = t.W == NARROWEST or v.stripe_bytes(t.W) <= SHARED_EVERYWHERE
    else:
        fits = v.stripe_blocks(t.W) >= (1 if t.W == NARROWEST else BLOCKS // 2)
    return None if fits else f"{v.rows} x {v.cols}: too few blocks can stage {t.W} columns each"


@cuda_kernel(
    "transpose",
    source="transpose/c2r.cu",
    entry="c2r_rows<bits::{dtype}, false>",
    places=("in",),
    tunables={"SCRATCH": (0, 1), "W": (32, 16, 8)},
    valid=_fits,
    **BITS,
)
def c2r(p: TransposeProblem, t: Tile) -> list[KernelCall]:
    """Rectangles in place: rotate columns, permute rows, permute columns (C2R, backwards where m > n)."""
    v = view(p)
    passes = [_columns(p, t, "PERMUTE")]
    if v.rows > 1:  # else it is a vector, and nothing moves
        passes.insert(0, _rows(p, t))
    if v.common > 1 and v.rows > 1:
        passes.insert(0, _columns(p, t, "ROTATE"))
    return passes[::-1] if v.back else passes


def _rows(p: TransposeProblem, t: Tile) -> KernelCall:
    v = view(p)
    threads = threads_for(v.cols)
    types = f"<bits::{p.dtype}, {str(v.back).lower()}>"
    sizes = (v.rows, v.cols, v.cols // v.common)
    if v.row_is_shared(t):
        return KernelCall(v.rows, threads, ("a", *sizes), v.row_bytes, f"c2r_rows{types}")
    return KernelCall(v.row_blocks, threads, ("a", v.scratch(t), *sizes), 0, f"c2r_rows_by_scratch{types}")


def _columns(p: TransposeProblem, t: Tile, step: str) -> KernelCall:
    v = view(p)
    block = threads_for(v.rows * t.W)
    types = f"<bits::{p.dtype}, {t.W}, Step::{step}, {str(v.back).lower()}>"
    sizes = (v.rows, v.cols, v.rows // v.common, v.cols // v.common)
    if v.stripe_is_shared(t):
        shared = v.stripe_bytes(t.W)
        return KernelCall(ceil_div(v.cols, t.W), block, ("a", *sizes), shared, f"c2r_columns{types}")
    return KernelCall(v.stripe_blocks(t.W), block, ("a", v.scratch(t), *sizes), 0, f"c2r_columns_by_scratch{types}")


def threads_for(elements: int) -> int:
    """Threads of a block that moves that many: whole warps, up to what a block may have."""
    return min(_THREADS, ceil_div(elements, _WARP * _EACH) * _WARP)
