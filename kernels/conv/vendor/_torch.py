"""PyTorch's convolution on our operands, and what oneDNN reports to have run; PyTorch is imported when set up."""

import ctypes
import os
import re
import sys
import tempfile
from importlib import import_module
from typing import Any

from kernelmark import Array, Launch
from kernels.conv._sizes import as_nchw
from kernels.conv.problem import ConvOperands, ConvProblem

#: `onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,...`, with versions that have `v1` or not.
_LINE = re.compile(r"^(?:onednn|dnnl)_verbose,.*\bexec,cpu,convolution,([^,]+),", re.MULTILINE)


def convolution(problem: ConvProblem, x: ConvOperands) -> Launch:
    """A launch on `x.threads` threads, whatever other kernels have set meanwhile."""
    torch: Any = import_module("torch")
    images, filters, y = (_tensor(torch, array, problem.layout) for array in (x.x, x.w, x.y))
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

    run = {"fprop": fprop, "dgrad": dgrad, "wgrad": wgrad}[problem.direction]

    def launch() -> None:
        if torch.get_num_threads() != x.threads:
            torch.set_num_threads(x.threads)
        run()

    return launch


def _tensor(torch: Any, array: Array, layout: str) -> Any:
    return torch.from_numpy(as_nchw(array, layout))


def implementation(launch: Launch) -> str:
    """`oneDNN 3.12.0 brg_conv_fwd:avx512_core`: what this launch runs on, by oneDNN's own words."""
    torch: Any = import_module("torch")
    mkldnn = torch.backends.mkldnn
    if not mkldnn.is_available():
        return "PyTorch without oneDNN"
    with mkldnn.verbose(mkldnn.VERBOSE_ON):
        ran = list(dict.fromkeys(_LINE.findall(_printed(launch))))
    if not ran:
        return "PyTorch's own loops, not oneDNN"
    version = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
    return " ".join(["oneDNN", *(version.groups() if version else ()), *ran])


def _printed(run: Launch) -> str:
    """Return what C code writes to file descriptor 1 while it runs."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            run()
        finally:
            libc.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")
