"""Transfers within the host's memory by one process: NumPy's copy on pages of each kind, and streaming stores."""

from typing import Any

import numpy as np

from kernelmark import Launch, kernel
from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.transfer._pages import bind_to_node, give_back
from kernelmark.kernels.transfer.problem import TransferOperands, TransferProblem

H2H: dict[str, Any] = {"device": "cpu", "numerics": "exact", "directions": ("h2h",), "works": (0,), "threaded": True}


def copied(x: TransferOperands, node: int | None) -> Launch:
    """Return a launch that copies in bands, one per thread, from pages that are bound to the NUMA node `node`."""
    bind_to_node(x.a, node)
    return in_bands(x.a.size, x.threads, lambda i, j: lambda: np.copyto(x.b[i:j], x.a[i:j]))


@kernel("transfer", provider="numpy", modules=("numpy",), **H2H)
@threads_that_pay(compiled=False)
def copyto(problem: TransferProblem, x: TransferOperands) -> Launch:
    """NumPy copyto in bands, one per thread; pages as NumPy allocates them."""
    return copied(x, problem.node)


@kernel("transfer", provider="numpy", modules=("numpy",), host_memory="small", **H2H)
@threads_that_pay(compiled=False)
def small_pages(problem: TransferProblem, x: TransferOperands) -> Launch:
    """NumPy copyto between pages of the smallest size."""
    return copied(x, problem.node)


@kernel("transfer", provider="numpy", modules=("numpy",), host_memory="huge", **H2H)
@threads_that_pay(compiled=False)
def huge_pages(problem: TransferProblem, x: TransferOperands) -> Launch:
    """NumPy copyto between huge pages, which are requested from the system."""
    return copied(x, problem.node)


@kernel("transfer", provider="numpy", modules=("numpy",), host_memory="shared", **H2H)
@threads_that_pay(compiled=False)
def shared_pages(problem: TransferProblem, x: TransferOperands) -> Launch:
    """NumPy copyto between pages that processes can share."""
    return copied(x, problem.node)


@kernel("transfer", provider="numpy", modules=("numpy",), host_memory="small", **H2H)
@threads_that_pay(compiled=False)
def fresh_pages(problem: TransferProblem, x: TransferOperands) -> Launch:
    """NumPy copyto to pages that were released before, so that the first store to each is a page fault."""
    return in_turn(give_back(x.b), copied(x, problem.node))


@kernel("transfer", provider="numpy", modules=("numpy",), host_memory="huge", **H2H)
@threads_that_pay(compiled=False)
def fresh_huge_pages(problem: TransferProblem, x: TransferOperands) -> Launch:
    """NumPy copyto to huge pages that were released before."""
    return in_turn(give_back(x.b), copied(x, problem.node))


@kernel("transfer", provider="numba", modules=("numba",), **H2H)
@threads_that_pay()
def streaming(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Streaming stores; each thread copies a band of bytes."""
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels.copy._numba import stream

    bind_to_node(x.a, problem.node)
    a, b = x.a.view("u1"), x.b.view("u1")

    def band(start: int, stop: int) -> Launch:
        to = b[start:stop]
        skip = min(to.size, -to.ctypes.data % LINE_BYTES)
        return bind(stream, to, a[start:stop], skip, (0,), (0,), 0, True)

    return in_bands(b.size, x.threads, band)
