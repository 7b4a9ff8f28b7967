"""Plan of cooperative launches that transpose a rectangle in place in two passes."""

from kernelmark import DeviceLimits, KernelCall, Prefer, Scratch, Tile, cuda_kernel
from kernelmark.kernels._cuda import ceil_div, multiprocessors
from kernelmark.kernels.transpose.handwritten import BITS
from kernelmark.kernels.transpose.inplace import (
    NARROWEST,
    SCRATCH_SHARE,
    SHARED_EVERYWHERE,
    View,
    flag,
    resident,
    ring_fits,
    threads_for,
    view,
)
from kernelmark.kernels.transpose.problem import TransposeProblem


def stash_bytes(v: View) -> int:
    """Return the bytes of scratch for saved rows; the number of rows is half the greatest common divisor of m and n."""
    return v.common // 2 * v.cols * v.itemsize


def _supports(p: TransposeProblem) -> str | None:
    v = view(p)
    if stash_bytes(v) * SCRATCH_SHARE > p.footprint_bytes:
        rows = v.common // 2
        return f"the stash takes {rows} of {v.rows} rows, expected at most a tenth: gcd(m, n) is {v.common}"
    return None


def _fits(p: TransposeProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return why a row or a stripe cannot be staged, or None."""
    v, limit = view(p), device.block_shared_bytes
    stripes = ((f"a stripe of {width} columns", v.stripe_bytes(width)) for width in (NARROWEST, t.W))
    for what, nbytes in ((f"a row of {v.cols} elements", v.row_bytes), *stripes):
        if nbytes > limit:
            return f"{what} takes {nbytes} bytes of shared memory, expected at most {limit}"
    return ring_fits(v, t, device)


def _wide(p: TransposeProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a narrower stripe is preferred, or None: wide ones are coalesced better, but several must fit."""
    stripe = view(p).stripe_bytes(t.W)
    if t.W == NARROWEST or stripe <= SHARED_EVERYWHERE:
        return None
    return f"a stripe of {t.W} columns takes {stripe} bytes, expected at most {SHARED_EVERYWHERE}"


@cuda_kernel(
    "transpose",
    source="transpose/c2r_fused.cu",
    entry="c2r_fused_rows<bits::{dtype}, false, 0, false>",
    places=("in",),
    tunables={"W": (32, 16, 8), "SMS": (multiprocessors, 1), "STAGES": (1, 2, 3), "ORDERED": (0, 1)},
    supports=_supports,
    valid=_fits,
    prefer=Prefer(
        (
            *(
                {"W": width, "SMS": sms, "STAGES": 1, "ORDERED": 0}
                for width in (32, 16, 8)
                for sms in (multiprocessors, 1)
            ),
            {"W": 8, "SMS": 1, "STAGES": 2, "ORDERED": 1},  # for the tests, as in inplace.py
        ),
        _wide,
    ),
    cooperative=True,
    **BITS,
)
def c2r_fused(p: TransposeProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Rectangles in place in two passes: rotate and permute rows in waves, permute columns (C2R)."""
    v = view(p)
    passes = [_stash(p, t, device), _rows(p, t, device), _columns(p, t, device)]
    return passes[::-1] if v.back else passes


def _call(
    p: TransposeProblem, name: str, parts: int, threads: int, sizes: tuple[int, ...], most: int, shared: int
) -> KernelCall:
    """Return a launch of one block per part, but at most `most` blocks. name: the entry without its last argument."""
    v = view(p)
    args = ("a", Scratch("stash", ceil_div(v.rows, 4) * 16 + stash_bytes(v)), v.rows, v.cols, *sizes)
    return KernelCall(min(parts, most), threads, args, shared, f"{name}, {flag(v.back)}>")


def _resident(t: Tile, device: DeviceLimits, threads: int, shared: int, registers: int = 2) -> int:
    """Return the largest number of blocks in a cooperative launch: all its blocks must be resident at once.

    registers: the most blocks per multiprocessor that registers allow.
    """
    on_each = min(registers, device.sm_threads // threads, device.blocks_by_shared(shared))
    return int(t.SMS * max(1, on_each))


def _stash(p: TransposeProblem, t: Tile, device: DeviceLimits) -> KernelCall:
    v = view(p)
    threads = threads_for(v.cols)
    parts = max(1, v.common - 1) * ceil_div(v.cols, threads)
    most = _resident(t, device, threads, 0)
    return _call(p, f"c2r_stash<bits::{p.dtype}", parts, threads, (v.cols // v.common,), most, 0)


def _rows(p: TransposeProblem, t: Tile, device: DeviceLimits) -> KernelCall:
    v, threads = view(p), threads_for(view(p).cols)
    most = _resident(t, device, threads, v.row_bytes)
    name = f"c2r_fused_rows<bits::{p.dtype}, {flag(v.has_long_runs)}, {t.ORDERED}"
    return _call(p, name, v.rows, threads, (v.cols // v.common,), most, v.row_bytes)


def _columns(p: TransposeProblem, t: Tile, device: DeviceLimits) -> KernelCall:
    v = view(p)
    shared, threads = v.stripe_bytes(t.W, t.STAGES), v.stripe_threads(t.W, t.STAGES)
    sizes = (v.rows // v.common, v.cols // v.common)
    if t.STAGES == 1:
        name, registers = (
            f"c2r_fused_columns<bits::{p.dtype}, {t.W}",
            2 if v.back or v.itemsize > 4 else 3,
        )  # as in c2r.cuh
        most = _resident(t, device, threads, shared, registers)
    else:
        name, most = f"c2r_fused_columns_by_ring<bits::{p.dtype}, {t.W}, {t.STAGES}", t.SMS * resident(v, t, device)
    return _call(p, name, ceil_div(v.cols, t.W), threads, sizes, most, shared)
