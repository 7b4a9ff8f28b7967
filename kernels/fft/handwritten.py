"""Launch plan of the small transforms in cuda/fft/small.cu, which the tiled convolution uses."""

import math

from kernelmark import DTYPES, DeviceLimits, KernelCall, Tile, cuda_kernel
from kernelmark.kernels._cuda import INT_LIMIT, ceil_div
from kernelmark.kernels.fft.problem import FftProblem

THREADS = {"f32": 128, "f64": 64}
SIDES = (8, 16, 32)


def shape(p: FftProblem) -> tuple[str, int] | None:
    """Return a tile's shape (PLANE, ROWS or LINE) and side, or None if the transform does not fill a tile."""
    if p.h == p.w and p.w in SIDES:
        return "PLANE", p.w
    if p.h == 1 and p.w in SIDES:
        return "ROWS", p.w
    if p.h == 1 and math.isqrt(p.w) in SIDES and math.isqrt(p.w) ** 2 == p.w and p.dtype == "f32":
        return "LINE", math.isqrt(p.w)
    return None


def _supports(p: FftProblem) -> str | None:
    if p.b > INT_LIMIT:
        return f"b is {p.b}, expected at most {INT_LIMIT}: sizes are C ints"
    if shape(p):
        return None
    lines = "1 x 64, 1 x 256, 1 x 1024" if p.dtype == "f32" else "in f32 1 x 64, 1 x 256, 1 x 1024"
    return f"h x w is {p.h} x {p.w}, expected 8 x 8, 16 x 16, 32 x 32, 1 x 8, 1 x 16, 1 x 32 or {lines}"


@cuda_kernel("fft", source="fft/small.cu", entry="fft_small_{kind}", supports=_supports)
def small(p: FftProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Powers of two up to 32 x 32: columns and rows in registers, exchanged in shared memory."""
    form, side = shape(p) or ("PLANE", SIDES[0])
    together = (side if form == "ROWS" else 1) * (1 if p.kind == "c2c" else 2)
    blocks = ceil_div(p.b, together * THREADS[p.dtype] // side)
    inverse = f", {str(p.direction == 'inverse').lower()}" if p.kind == "c2c" else ""
    entry = f"fft_small_{p.kind}<{DTYPES[p.dtype].ctype}, {side}, Shape::{form}{inverse}>"
    return [KernelCall(blocks, THREADS[p.dtype], ("x", "y", p.b), entry=entry)]
