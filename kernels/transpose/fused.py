"""Our own transposition of rectangles in place in two passes: a pure plan of cooperative launches."""

from kernelmark import KernelCall, Scratch, Tile, cuda_kernel
from kernels._cuda import ceil_div
from kernels.transpose.handwritten import BITS
from kernels.transpose.inplace import NARROWEST, SCRATCH_SHARE, SHARED_EVERYWHERE, SHARED_LIMIT, View, threads_for, view
from kernels.transpose.problem import TransposeProblem

COUNTER_BYTES = 16  # of scratch, for the barrier of the grid
_SHARED_SM = 228 * 1024  # bytes of a multiprocessor, on Hopper, a KiB of which goes with each block
_RESERVED = 1024


def stash_bytes(v: View) -> int:
    """Bytes that the first rows need of scratch: half of the c - 1 that the last rows are made of, too."""
    return v.common // 2 * v.cols * v.itemsize


def _supports(p: TransposeProblem) -> str | None:
    v = view(p)
    stripe = v.stripe_bytes(NARROWEST)
    for what, nbytes in ((f"a row of {v.cols} elements", v.row_bytes), (f"a stripe of {NARROWEST} columns", stripe)):
        if nbytes > SHARED_LIMIT:
            return f"{what} takes {nbytes} bytes, expected at most {SHARED_LIMIT}, of shared memory"
    if stash_bytes(v) * SCRATCH_SHARE > p.footprint_bytes:
        rows = v.common // 2
        return f"the stash takes {rows} of {v.rows} rows, expected at most a tenth: gcd(m, n) is {v.common}"
    return None


def _stripe_fits(p: TransposeProblem, t: Tile) -> str | None:
    """Wide stripes are coalesced better; they are worth it while a multiprocessor holds several."""
    stripe = view(p).stripe_bytes(t.W)
    if t.W == NARROWEST or stripe <= SHARED_EVERYWHERE:
        return None
    return f"a stripe of {t.W} columns takes {stripe} bytes, expected at most {SHARED_EVERYWHERE}"


@cuda_kernel(
    "transpose",
    source="transpose/c2r_fused.cu",
    entry="c2r_fused_rows<bits::{dtype}, false>",
    places=("in",),
    tunables={"W": (32, 16, 8), "SMS": (132, 1)},
    supports=_supports,
    valid=_stripe_fits,
    cooperative=True,
    **BITS,
)
def c2r_fused(p: TransposeProblem, t: Tile) -> list[KernelCall]:
    """Rectangles in place in two passes: rotate and permute rows in waves, permute columns (C2R)."""
    v = view(p)
    passes = [_stash(p, t), _rows(p, t), _columns(p, t)]
    return passes[::-1] if v.back else passes


def _call(
    p: TransposeProblem, t: Tile, name: str, parts: int, each: int, sizes: tuple[int, ...], shared: int, most: int = 2
) -> KernelCall:
    """A launch for `parts` parts of `each` elements; name: the entry without the last of its types.

    All blocks have to be resident: at most as many as shared memory holds, and registers, which allow `most`.
    """
    v = view(p)
    grid = t.SMS * max(1, min(most, _SHARED_SM // (shared + _RESERVED)))
    args = ("a", Scratch("stash", COUNTER_BYTES + stash_bytes(v)), v.rows, v.cols, *sizes)
    return KernelCall(min(parts, grid), threads_for(each), args, shared, f"{name}, {str(v.back).lower()}>")


def _stash(p: TransposeProblem, t: Tile) -> KernelCall:
    v = view(p)
    parts = max(1, v.common - 1) * ceil_div(v.cols, threads_for(v.cols))
    return _call(p, t, f"c2r_stash<bits::{p.dtype}", parts, v.cols, (v.cols // v.common,), 0)


def _rows(p: TransposeProblem, t: Tile) -> KernelCall:
    v = view(p)
    return _call(p, t, f"c2r_fused_rows<bits::{p.dtype}", v.rows, v.cols, (v.cols // v.common,), v.row_bytes)


def _columns(p: TransposeProblem, t: Tile) -> KernelCall:
    v, name = view(p), f"c2r_fused_columns<bits::{p.dtype}, {t.W}"
    sizes, most = (v.rows // v.common, v.cols // v.common), 2 if v.back or v.itemsize > 4 else 3  # as in c2r.cuh
    return _call(p, t, name, ceil_div(v.cols, t.W), v.rows * t.W, sizes, v.stripe_bytes(t.W), most)
