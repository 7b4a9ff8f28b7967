"""PyTorch's convolution on kernelmark's operands; PyTorch is imported at set-up."""

from importlib import import_module
from typing import Any

from kernelmark import Launch, Unsupported
from kernelmark.kernels._torch import on_threads, tensor
from kernelmark.kernels.conv._sizes import as_nchw
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem


def convolution(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Return a launch on `x.threads` threads, whatever number of threads other kernels set in PyTorch.

    Raises Unsupported for gradients in bfloat16 without oneDNN: PyTorch's own loops keep partial sums in bfloat16, and
    their results are wrong.
    """
    torch: Any = import_module("torch")
    if problem.dtype == "bf16" and problem.direction != "fprop" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise Unsupported(f"oneDNN has no bf16 {problem.direction} on this CPU; expected one with AVX-512")
    images, filters, y = (tensor(as_nchw(array, problem.layout)) for array in (x.x, x.w, x.y))
    geometry = (
        [problem.stride_h, problem.stride_w],
        [problem.pad_h.before, problem.pad_w.before],
        [problem.dilation_h, problem.dilation_w],
        False,  # not transposed
        [0, 0],
        problem.groups,
    )
    forward, backward = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default

    def fprop() -> None:
        y.copy_(forward(images, filters, None, *geometry))

    def dgrad() -> None:
        images.copy_(backward(y, images, filters, None, *geometry, [True, False, False])[0])

    def wgrad() -> None:
        filters.copy_(backward(y, images, filters, None, *geometry, [False, True, False])[1])

    return on_threads({"fprop": fprop, "dgrad": dgrad, "wgrad": wgrad}[problem.direction], x.threads)
