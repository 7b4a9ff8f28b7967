"""Plans of launches of the simplest SGEMMs in `cuda/gemm`, and declarations that other kernels share."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmark import DeviceLimits, KernelCall, Tile, cuda_kernel
from kernelmark.kernels._cuda import GRID_LIMIT, INT_LIMIT, ceil_div
from kernelmark.kernels.gemm.problem import GemmProblem

LAYOUTS = ("NN", "NT", "TN", "TT")
F32: dict[str, Any] = {"dtypes": ("f32",), "layouts": LAYOUTS, "numerics": "fp32"}
#: 16-bit operands, whose products tensor cores sum in FP32.
HALF: dict[str, Any] = {
    "dtypes": ("f16", "bf16", "f16.f32", "bf16.f32"),
    "layouts": LAYOUTS,
    "numerics": {"f16": "f16", "bf16": "bf16"},
}


def within_grid(along_y: str, width: int) -> Callable[[GemmProblem], str | None]:
    """Return the predicate for kernels whose blocks cover `width` rows or columns along y, and a batch along z."""

    def supports(p: GemmProblem) -> str | None:
        limit = GRID_LIMIT * width
        if getattr(p, along_y) > limit:
            return (
                f"{along_y} is {getattr(p, along_y)}, expected at most {limit}: a grid has {GRID_LIMIT} blocks along y"
            )
        if p.batch > GRID_LIMIT:
            return f"batch is {p.batch}, expected at most {GRID_LIMIT}: a grid has {GRID_LIMIT} blocks along z"
        return within_ints(p)

    return supports


def within_ints(p: GemmProblem) -> str | None:
    """Return why a kernel whose sizes are C ints cannot take `p`, or None."""
    return None if p.largest <= INT_LIMIT else f"a size is {p.largest}, expected at most {INT_LIMIT}: sizes are C ints"


def arguments(p: GemmProblem) -> tuple[Any, ...]:
    """Return arguments that GEMM kernels share: a, b, c, m, n, k, alpha, beta, leading dimensions, batch strides."""
    operands = p.operands()[:3]
    strides = (np.int64(operand.shape[-2] * operand.ld) for operand in operands)
    kind = {"f64": np.float64, "s8.s32": int}.get(p.dtype, float)
    return ("a", "b", "c", p.m, p.n, p.k, kind(p.alpha), kind(p.beta), *(operand.ld for operand in operands), *strides)


@cuda_kernel(
    "gemm",
    source="gemm/naive.cu",
    entry="sgemm_naive<Op::{op_a}, Op::{op_b}>",
    supports=within_grid("n", 8),
    **F32,
)
def naive(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """One thread per element of C, a warp down a column."""
    return [KernelCall((ceil_div(p.m, 32), ceil_div(p.n, 8), p.batch), (32, 8), arguments(p))]


@cuda_kernel(
    "gemm",
    source="gemm/coalesced.cu",
    entry="sgemm_coalesced<Op::{op_a}, Op::{op_b}>",
    supports=within_grid("m", 8),
    **F32,
)
def coalesced(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """One thread per element of C, a warp along a row."""
    return [KernelCall((ceil_div(p.n, 32), ceil_div(p.m, 8), p.batch), (32, 8), arguments(p))]


@cuda_kernel(
    "gemm",
    source="gemm/tiled.cu",
    entry="sgemm_tiled<{T}, Op::{op_a}, Op::{op_b}>",
    tunables={"T": (32, 16)},
    supports=within_grid("m", 16),
    **F32,
)
def tiled(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """One thread per element of C, tiles of A and B staged through shared memory."""
    return [KernelCall((ceil_div(p.n, t.T), ceil_div(p.m, t.T), p.batch), (t.T, t.T), arguments(p))]
