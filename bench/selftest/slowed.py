"""A plug-in with a product that is slower by a known share."""

from time import perf_counter
from typing import Any

import numpy as np

from kernelmark import Launch, kernel
from kernelmark.bench.selftest.known import SLOWED


@kernel("gemm", provider="selftest", device="cpu", dtypes=("f32",), layouts=("NN",), modules=("numpy",), threaded=True)
def slowed(problem: Any, x: Any) -> Launch:
    """NumPy matmul, and then idle for 5 % of the time that it has just taken."""
    a, b, c = x.a, x.b, x.c

    def launch() -> None:
        start = perf_counter()
        np.matmul(a, b, out=c)
        stop = start + SLOWED * (perf_counter() - start)
        while perf_counter() < stop:
            pass

    return launch
