"""Plans of launches that transpose rectangles in place with bounded scratch."""

import math
from typing import NamedTuple

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Scratch, Tile, cuda_kernel
from kernelmark.kernels._cuda import BLOCK_THREADS, ceil_div
from kernelmark.kernels.transpose.handwritten import BITS, within_ints
from kernelmark.kernels.transpose.problem import TransposeProblem

SHARED_EVERYWHERE = 64 * 1024  # bytes, on every compute capability; three such blocks share a multiprocessor of Hopper
SCRATCH_SHARE = 10  # scratch is at most a tenth of the matrix
BLOCKS_PER_SM = 2  # the most blocks per multiprocessor that have a part of the scratch
NARROWEST = 8  # the fewest columns of a stripe: in f32, a sector of 32 bytes
LONG_RUN = 128  # columns: half of the part of a run that a warp moves at once
CP_ASYNC_BYTES, CP_ASYNC_CAPABILITY = 4, 80  # the fewest bytes that cp.async moves, and the capability that it needs
_THREADS, _WARP = 512, 32
_EACH = 16  # elements a thread moves before a block gets more threads


class View(NamedTuple):
    """The buffer as c2r.cu sees it, with rows along the longer side. back: m > n, so inverse steps run, last first."""

    rows: int
    cols: int
    itemsize: int
    back: bool

    @property
    def common(self) -> int:
        """Return the greatest common divisor of the numbers of rows and columns."""
        return math.gcd(self.rows, self.cols)

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row in shared memory: whole groups of 32 elements, which are spread over the banks."""
        return ceil_div(self.cols, 32) * 32 * self.itemsize

    @property
    def has_long_runs(self) -> bool:
        """Return whether runs in step 2 (permute rows) are so long that a warp moves a part of a run at a time."""
        return self.cols // self.common >= LONG_RUN

    def stripe_bytes(self, width: int, stages: int = 1) -> int:
        """Return the bytes of the stripes of columns, one for each stage."""
        return self.rows * width * self.itemsize * stages

    def stripe_threads(self, width: int, stages: int) -> int:
        """Return the threads of a block for stripes. A block with a ring has more, since often no second block fits."""
        return threads_for(self.rows * width, _THREADS if stages == 1 else BLOCK_THREADS)


def view(p: TransposeProblem) -> View:
    """Return a problem's buffer as c2r.cu sees it."""
    return View(min(p.m, p.n), max(p.m, p.n), DTYPES[p.dtype].itemsize, p.m > p.n)


class Stages(NamedTuple):
    """Decides where a device stages rows and stripes of a view: in shared memory or in scratch."""

    view: View
    tile: Tile
    device: DeviceLimits

    @property
    def most_blocks(self) -> int:
        """Return the most blocks among which the scratch is divided."""
        return BLOCKS_PER_SM * self.device.multiprocessors

    @property
    def row_blocks(self) -> int:
        """Return how many blocks can stage a row each if scratch is a tenth of the matrix; 0 if no row fits."""
        return min(self.most_blocks, self.view.rows // SCRATCH_SHARE)

    @property
    def stripe_blocks(self) -> int:
        """Return how many blocks can stage a stripe each if scratch is a tenth of the matrix; 0 if no stripe fits."""
        return min(self.most_blocks, self.view.cols // SCRATCH_SHARE // int(self.tile.W))

    @property
    def row_is_shared(self) -> bool:
        """Return whether rows are staged in shared memory."""
        return not self.tile.SCRATCH and self.view.row_bytes <= self.device.block_shared_bytes

    @property
    def stripe_is_shared(self) -> bool:
        """Return whether stripes are staged in shared memory."""
        nbytes = self.view.stripe_bytes(self.tile.W, self.tile.STAGES)
        return not self.tile.SCRATCH and nbytes <= self.device.block_shared_bytes

    @property
    def scratch(self) -> Scratch:
        """Return the scratch for rows and stripes that do not fit in shared memory; both use the same scratch."""
        v = self.view
        rows = 0 if self.row_is_shared else self.row_blocks * v.cols * v.itemsize
        stripes = 0 if self.stripe_is_shared else self.stripe_blocks * v.stripe_bytes(self.tile.W)
        return Scratch("stage", max(rows, stripes))


def _fits(p: TransposeProblem, t: Tile, device: DeviceLimits) -> str | None:
    stages = Stages(view(p), t, device)
    if t.STAGES > 1 and t.SCRATCH:
        return f"a ring of {t.STAGES} stripes lies in shared memory, not in scratch"
    return ring_fits(stages.view, t, device) or _row_fits(stages) or _stripe_fits(stages)


def ring_fits(v: View, t: Tile, device: DeviceLimits) -> str | None:
    """Return why a block cannot hold several stripes at once, or None."""
    if t.STAGES == 1:
        return None
    if v.itemsize < CP_ASYNC_BYTES or device.capability < CP_ASYNC_CAPABILITY:
        return f"cp.async needs compute capability 8.0 and elements of {CP_ASYNC_BYTES} bytes or more"
    if (nbytes := v.stripe_bytes(t.W, t.STAGES)) <= device.block_shared_bytes:
        return None
    return f"{t.STAGES} stripes of {t.W} columns take {nbytes} bytes, expected at most {device.block_shared_bytes}"


def resident(v: View, t: Tile, device: DeviceLimits) -> int:
    """Return how many blocks fit on a multiprocessor, given its shared memory and a total of BLOCK_THREADS threads."""
    threads = v.stripe_threads(t.W, t.STAGES)
    return max(1, min(BLOCK_THREADS // threads, device.blocks_by_shared(v.stripe_bytes(t.W, t.STAGES))))


def _row_fits(stages: Stages) -> str | None:
    v = stages.view
    if v.rows == 1 or stages.row_is_shared or stages.row_blocks:
        return None
    return (
        f"a row of {v.row_bytes} bytes fits neither in {stages.device.block_shared_bytes} bytes of shared memory nor "
        f"in a tenth of the matrix, which has {v.rows} rows, expected at least {SCRATCH_SHARE}"
    )


def _stripe_fits(stages: Stages) -> str | None:
    v, width = stages.view, stages.tile.W
    if stages.stripe_is_shared or stages.stripe_blocks:
        return None
    return f"{v.rows} x {v.cols}: too few blocks can stage {width} columns each"


def _wide(p: TransposeProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return why a narrower stripe is preferred, or None: wide stripes are coalesced better but leave fewer blocks."""
    stages, v = Stages(view(p), t, device), view(p)
    if stages.stripe_is_shared:
        enough = v.stripe_bytes(t.W) <= SHARED_EVERYWHERE
    else:
        enough = stages.stripe_blocks >= stages.most_blocks // 2
    return None if enough or t.W == NARROWEST else f"{v.rows} x {v.cols}: too few blocks stage {t.W} columns each"


@cuda_kernel(
    "transpose",
    source="transpose/c2r.cu",
    entry="c2r_rows<bits::{dtype}, false, false>",
    places=("in",),
    tunables={"SCRATCH": (0, 1), "W": (32, 16, 8), "STAGES": (1, 2, 3)},
    supports=within_ints,
    valid=_fits,
    prefer=Prefer(
        (
            *({"SCRATCH": scratch, "W": width, "STAGES": 1} for scratch in (0, 1) for width in (32, 16, 8)),
            {"SCRATCH": 0, "W": 8, "STAGES": 2},  # for the tests, which run every tile listed here; others fit, too
        ),
        _wide,
    ),
    **BITS,
)
def c2r(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Rectangles in place: rotate columns, permute rows, permute columns (C2R, backwards if m > n)."""
    stages = Stages(view(p), t, device)
    v = stages.view
    passes = [_columns(p, stages, "PERMUTE")]
    if v.rows > 1:  # otherwise it is a vector, and nothing moves
        passes.insert(0, _rows(p, stages))
    if v.common > 1 and v.rows > 1:
        passes.insert(0, _columns(p, stages, "ROTATE"))
    return passes[::-1] if v.back else passes


def _rows(p: TransposeProblem, stages: Stages) -> KernelCall:
    v = stages.view
    threads = threads_for(v.cols)
    types = f"<bits::{p.dtype}, {flag(v.back)}, {flag(v.has_long_runs)}>"
    sizes = (v.rows, v.cols, v.cols // v.common)
    if stages.row_is_shared:
        return KernelCall(v.rows, threads, ("a", *sizes), v.row_bytes, f"c2r_rows{types}")
    return KernelCall(stages.row_blocks, threads, ("a", stages.scratch, *sizes), 0, f"c2r_rows_by_scratch{types}")


def _columns(p: TransposeProblem, stages: Stages, step: str) -> KernelCall:
    v, t = stages.view, stages.tile
    block, shared, stripes = v.stripe_threads(t.W, t.STAGES), v.stripe_bytes(t.W, t.STAGES), ceil_div(v.cols, t.W)
    types = f"bits::{p.dtype}, {t.W}, Step::{step}, {flag(v.back)}"
    sizes = (v.rows, v.cols, v.rows // v.common, v.cols // v.common)
    if t.STAGES > 1:
        grid = min(stripes, resident(v, t, stages.device) * stages.device.multiprocessors)
        return KernelCall(grid, block, ("a", *sizes), shared, f"c2r_columns_by_ring<{types}, {t.STAGES}>")
    if stages.stripe_is_shared:
        return KernelCall(stripes, block, ("a", *sizes), shared, f"c2r_columns<{types}>")
    return KernelCall(stages.stripe_blocks, block, ("a", stages.scratch, *sizes), 0, f"c2r_columns_by_scratch<{types}>")


def flag(value: bool) -> str:
    """Return the C++ spelling of a boolean."""
    return str(value).lower()


def threads_for(elements: int, most: int = _THREADS) -> int:
    """Return the threads, in whole warps, of a block that moves this many elements."""
    return min(most, ceil_div(elements, _WARP * _EACH) * _WARP)
