"""Sums in slices: each slice writes partial results to scratch, and a separate launch adds them in order."""

import numpy as np

from kernelmark import KernelCall, Scratch
from kernelmark.kernels._cuda import ceil_div
from kernelmark.kernels.conv._geometry import elements
from kernelmark.kernels.conv.problem import ConvProblem

THREADS = 256


def partials(p: ConvProblem, slices: int) -> str | Scratch:
    """Return where slices write their partial sums: to scratch, or to the output itself if there is one slice."""
    return Scratch("partials", 4 * slices * elements(p, p.output)) if slices > 1 else p.output


def added(p: ConvProblem, slices: int, entry: str) -> list[KernelCall]:
    """Return the launch that adds the slices' partial sums, or no launch if there is only one slice."""
    if slices == 1:
        return []
    count = elements(p, p.output)
    arguments = (partials(p, slices), p.output, np.int64(count), slices)
    return [KernelCall(ceil_div(count, THREADS), THREADS, arguments, entry=entry)]
