"""Epilogues on a GPU, in strict FP32, applied by the blocks that multiply or by a second launch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmark import DeviceLimits, KernelCall, Scratch, Tile, cuda_kernel
from kernelmark.kernels._cuda import ceil_div
from kernelmark.kernels.gemm import _tiles
from kernelmark.kernels.gemm._epilogue import EPILOGUES
from kernelmark.kernels.gemm._tiles import PIPELINE, pack, warps
from kernelmark.kernels.gemm.handwritten import F32, arguments, within_grid
from kernelmark.kernels.gemm.ladder import ASYNC, ASYNC_TILES, grid, piped, stages_bytes
from kernelmark.kernels.gemm.problem import GemmProblem

ROWS, COLUMNS = 8, 32  # threads along y and x in a block of the second launch
#: The types of cuda/gemm/epilogue.cuh, and the operand that each reads in addition to C, or C itself if there is none.
TYPES = {"bias-relu": ("BiasRelu", "bias"), "sigmoid": ("Sigmoid", "c"), "update": ("Update", "v")}
#: Layouts of a layer's forward pass, with weights stored as in Caffe or in TensorFlow, and of the weights' gradient.
LAYOUTS = {"bias-relu": ("NN", "NT"), "sigmoid": ("NN", "NT"), "update": ("TN",)}
FUSED = ASYNC.replace("sgemm_async<", "sgemm_async_fused<EPILOGUE, ")
NUMBERS = np.dtype([(name, np.float32) for name in ("alpha", "beta", "rate", "momentum", "decay")])
_ASYNC: dict[str, Any] = F32 | {
    "source": "gemm/async_fused.cu",
    "entry": FUSED,
    "layouts": ("NN", "NT", "TN"),
    "epilogues": EPILOGUES,
    "min_arch": 80,
    "tunables": PIPELINE,
    "valid": _tiles.pipeline,
    "prefer": ASYNC_TILES,
}


def in_layers(along_y: int) -> Callable[[GemmProblem], str | None]:
    """Return the predicate for kernels that take only the layouts of neural networks; blocks cover `along_y` rows."""
    covered = within_grid("m", along_y)

    def supports(p: GemmProblem) -> str | None:
        layouts = LAYOUTS[p.epilogue]
        if p.layout not in layouts:
            return f"the layout is {p.layout}, expected {' or '.join(layouts)} with epi-{p.epilogue}, as in networks"
        return covered(p)

    return supports


def numbers(p: GemmProblem) -> np.void:
    """Return alpha, beta and the numbers of an update, as an argument of the C++ type Numbers."""
    return np.void((p.alpha, p.beta, p.rate, p.momentum, p.decay), NUMBERS)


def stride_beside(p: GemmProblem) -> np.int64:
    """Return the stride, in elements, of the epilogue's additional operand from one product of a batch to the next."""
    operands = p.operands()[3:]  # V is a matrix, a bias a vector
    return np.int64(operands[0].elements // p.batch if operands else 0)


def named(epilogue: str, p: GemmProblem, t: Tile) -> str:
    """Return the C++ name of the product fused with the epilogue of this C++ type."""
    return piped(FUSED.replace("EPILOGUE", epilogue), p, t)


@cuda_kernel("gemm", supports=in_layers(64), **_ASYNC)
def async_fused(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """The product of cuda.async, whose blocks apply the epilogue before they store their tiles."""
    epilogue, beside = TYPES[p.epilogue]
    (_, _, _, m, n, k, _, _, *rest) = arguments(p)
    args = ("a", "b", "c", beside, m, n, k, numbers(p), *rest, stride_beside(p))
    return [KernelCall(grid(p, t), warps(t), args, stages_bytes(t), named(epilogue, p, t))]


@cuda_kernel("gemm", supports=in_layers(ROWS), **_ASYNC)
def async_two_step(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """The product of cuda.async, stored in scratch; a second launch applies the epilogue."""
    epilogue, beside = TYPES[p.epilogue]
    (_, _, c, m, n, k, _, _, lda, ldb, ldc, stride_a, stride_b, stride_c) = arguments(p)
    sums, w = Scratch("sums", 4 * p.batch * m * n), pack(p)
    strides = (stride_a, stride_b, np.int64(m * n), np.int64(0))
    product = ("a", "b", sums, sums, m, n, k, numbers(p), lda, ldb, n, *strides)
    finished = (sums, c, beside, m, n, numbers(p), ldc, stride_c, stride_beside(p))
    over_c = (ceil_div(n, COLUMNS * w), ceil_div(m, ROWS), p.batch)
    return [
        KernelCall(grid(p, t), warps(t), product, stages_bytes(t), named("Sums", p, t)),
        KernelCall(over_c, (COLUMNS, ROWS), finished, entry=f"sgemm_epilogue<{epilogue}, {w}>"),
    ]
