"""Launch plans of the arithmetic ceilings in `cuda/roofline`."""

from typing import Any

from kernelmark import DeviceLimits, KernelCall, Tile, cuda_kernel
from kernelmark.kernels._cuda import INT_LIMIT, ceil_div
from kernelmark.kernels.fma.problem import FmaProblem

THREADS = 256
CHAINS, FED_SUMS = 8, 128  # accumulators per thread of ffma.cu and of ffma_fed.cu
MMA_TILES, WGMMA_TILES = 8, 32  # tiles of 16 x 8 accumulators per warp of mma.cu and of wgmma.cu


def _c_int(p: FmaProblem) -> str | None:
    return None if p.n <= INT_LIMIT else f"n is {p.n}, expected at most {INT_LIMIT}: it is a C int"


TENSOR_CORES: dict[str, Any] = {
    "dtypes": ("f16", "bf16", "f32"),
    "units": ("mma",),
    "numerics": {"f32": "tf32", "f16": "f16", "bf16": "bf16"},
    "supports": _c_int,
}


def _call(p: FmaProblem, each: int) -> list[KernelCall]:
    """Return the launch of blocks of THREADS threads, with `each` accumulators per thread."""
    return [KernelCall(ceil_div(p.n, THREADS * each), THREADS, ("x", "a", "b", "d", p.n, p.k))]


@cuda_kernel(
    "fma", source="roofline/ffma.cu", entry="ffma<{ctype}>", dtypes=("f32", "f64"), units=("fma",), supports=_c_int
)
def ffma(p: FmaProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Fused multiply-adds on eight chains per thread."""
    return _call(p, CHAINS)


@cuda_kernel("fma", source="roofline/ffma_fed.cu", entry="ffma_fed", dtypes=("f32",), units=("fed",), supports=_c_int)
def ffma_fed(p: FmaProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Fused multiply-adds with factors from shared memory, 6 reads of 16 bytes per 128 multiply-adds."""
    return _call(p, FED_SUMS)


@cuda_kernel("fma", source="roofline/mma.cu", entry="mma_sync<{ctype}>", min_arch=80, **TENSOR_CORES)
def mma(p: FmaProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Tensor cores by mma.sync, with fragments in registers."""
    return _call(p, 4 * MMA_TILES)


@cuda_kernel("fma", source="roofline/wgmma.cu", entry="wgmma_slabs<{ctype}>", archs=("sm_90a",), **TENSOR_CORES)
def wgmma(p: FmaProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Hopper's tensor cores by wgmma, with operands in shared memory."""
    return _call(p, 4 * WGMMA_TILES)
