"""Copies on the CPU."""

import numpy as np

from kernelmark import Launch, Prefer, kernel
from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._launches import in_bands
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.copy.problem import CopyOperands, CopyProblem


@kernel("copy", provider="numpy", device="cpu", numerics="exact", modules=("numpy",))
def copyto(problem: CopyProblem, x: CopyOperands) -> Launch:
    """NumPy copyto on one thread."""
    return lambda: np.copyto(x.b, x.a)


@kernel("copy", provider="numpy", device="cpu", numerics="exact", modules=("numpy",), threaded=True)
@threads_that_pay(compiled=False)
def threaded(problem: CopyProblem, x: CopyOperands) -> Launch:
    """NumPy copyto in bands of rows, one per thread."""
    return in_bands(problem.m, x.threads, lambda i, j: lambda: np.copyto(x.b[i:j], x.a[i:j]))


#: LINES: cache lines that are loaded before any is stored; WAYS: places of a band that are copied in turn; AHEAD: bytes
#: by which data are prefetched; STREAM: store past the caches. For operands larger than the caches, a copy from four
#: places in turn was faster than one from a single place.
@kernel(
    "copy",
    provider="numba",
    device="cpu",
    numerics="exact",
    modules=("numba",),
    threaded=True,
    tunables={
        "LINES": (1, 2, 4, 8),
        "WAYS": (1, 2, 4, 8, 16),
        "AHEAD": (0, 256, 512, 1024, 2048, 4096, 8192, 16384),
        "STREAM": (0, 1),
    },
    prefer=Prefer(({"LINES": 1, "WAYS": 4, "AHEAD": 0, "STREAM": 1},)),
)
@threads_that_pay()
def streaming(problem: CopyProblem, x: CopyOperands) -> Launch:
    """Streaming stores, which do not read lines of B before writing them; each thread copies a band of bytes."""
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels.copy._numba import stream

    t = x.tile
    shape = (0,) * t.LINES, (0,) * t.WAYS, t.AHEAD, bool(t.STREAM)
    a, b = x.a.reshape(-1).view("u1"), x.b.reshape(-1).view("u1")

    def band(start: int, stop: int) -> Launch:
        to = b[start:stop]
        return bind(stream, to, a[start:stop], min(to.size, -to.ctypes.data % LINE_BYTES), *shape)

    return in_bands(b.size, x.threads, band)
