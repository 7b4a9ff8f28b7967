"""Convolution by oneDNN, as PyTorch's CPU build calls it."""

import math
from functools import lru_cache

from kernelmark import DTYPES, Launch, kernel
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem


def _symmetric(problem: ConvProblem) -> str | None:
    if any(pad.before != pad.after for pad in (problem.pad_h, problem.pad_w)):
        return f"pad is {problem.pad}, expected the same before and after"
    return None


def _output_bytes(problem: ConvProblem) -> int:
    """Return the bytes of PyTorch's result, which is then copied; oneDNN does not report its reordered operands."""
    return math.prod(problem.shapes()[problem.output]) * DTYPES[problem.dtype].itemsize


@lru_cache
def _implementations() -> dict[ConvProblem, str]:
    """Return the implementations that oneDNN chose for the problems that were set up in this process."""
    return {}


@kernel(
    "conv",
    provider="torch",
    device="cpu",
    dtypes=("f32", "bf16"),
    modules=("numpy", "torch"),
    threaded=True,
    supports=_symmetric,
    executed=lambda p: p.least_flop("fp32"),
    library_scratch=_output_bytes,
    library_version=lambda p: _implementations()[p],
)
def conv2d(problem: ConvProblem, x: ConvOperands) -> Launch:
    """PyTorch's convolution and its gradients, by oneDNN if PyTorch uses it.

    PyTorch cannot write a convolution to a given output: it returns a new tensor, and copying it is timed (with `out=`,
    PyTorch copies, too). Operands in nhwc are channels-last tensors. A call includes oneDNN's conversion of operands to
    its blocked layout.
    """
    from kernelmark.kernels._torch import implementation
    from kernelmark.kernels.conv.vendor._torch import convolution

    launch = convolution(problem, x)
    known = _implementations()
    if problem not in known:
        known[problem] = implementation(launch, "convolution", "PyTorch's own loops, not oneDNN")
    return launch
