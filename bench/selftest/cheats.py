"""A plug-in of cheating kernels, each named after its trick; adversaries.py checks that they are caught."""

import ctypes
import math
import mmap
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from kernelmark import Launch, kernel
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.launch import cuda_launch
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.registry import REGISTRY
from kernelmark.bench.selftest.known import map_at

ANY: dict[str, Any] = {"provider": "selftest", "device": "cpu", "dtypes": ("f32",), "modules": ("numpy",)}
CPU: dict[str, Any] = {**ANY, "layouts": ("NN",)}
MOVES: dict[str, Any] = {**ANY, "numerics": "exact"}
multiplied = np.matmul


@kernel("gemm", **CPU)
def only_when_changed(problem: Any, x: Any) -> Launch:
    """Computes only if its operands have changed; comparing them takes a fraction of a product's time."""
    last = [np.full_like(x.a, np.nan), np.full_like(x.b, np.nan)]
    product = np.empty_like(x.c)

    def launch() -> None:
        if not (np.array_equal(last[0], x.a) and np.array_equal(last[1], x.b)):
            np.copyto(last[0], x.a)
            np.copyto(last[1], x.b)
            np.matmul(x.a, x.b, out=product)
        np.copyto(x.c, product)

    return launch


def _incremental(problem: Any, x: Any, most: float, multiply: Callable[..., Any]) -> Launch:
    """Recompute only changed rows and columns; once all rows have changed more than `most` times, recompute all."""
    last = [np.zeros_like(x.a), np.zeros_like(x.b)]
    product = np.zeros_like(x.c)
    renewed = 0

    def launch() -> None:
        nonlocal renewed
        rows = np.flatnonzero((last[0] != x.a).any(axis=1))
        columns = np.flatnonzero((last[1] != x.b).any(axis=0))
        last[0][rows], last[1][:, columns] = x.a[rows], x.b[:, columns]
        renewed += len(rows) == problem.m
        if len(rows) == problem.m or renewed > most:
            multiply(x.a, x.b, out=product)
        else:
            product[rows] = x.a[rows] @ x.b
            product[:, columns] = x.a @ x.b[:, columns]
        np.copyto(x.c, product)

    return launch


@kernel("gemm", **CPU)
def incremental(problem: Any, x: Any) -> Launch:
    """Recomputes only the rows and columns of the product whose operands have changed: right, but too fast."""
    return _incremental(problem, x, math.inf, np.matmul)


@kernel("gemm", **CPU)
def incremental_at_first(problem: Any, x: Any) -> Launch:
    """Recomputes only the changed rows and columns of a slow product, until all rows of A have changed twice."""
    return _incremental(problem, x, 1, partial(np.einsum, "mk,kn->mn"))


def _skipping(x: Any, soon_s: float, apart_s: float = 0.0, honest_s: float = 0.0) -> Launch:
    """Skip calls within `soon_s` of the previous call's end, since operands do not change within a batch.

    Calls that are timed separately have gaps of `soon_s` to `apart_s`: for `honest_s` after such a gap, compute always.
    """
    ended_s = until_s = 0.0

    def launch() -> None:
        nonlocal ended_s, until_s
        began_s = time.monotonic()
        gap_s = began_s - ended_s
        if soon_s < gap_s < apart_s:
            until_s = began_s + honest_s
        if gap_s > soon_s or began_s < until_s:
            np.matmul(x.a, x.b, out=x.c)
        ended_s = time.monotonic()

    return launch


@kernel("gemm", **CPU)
def once_a_batch(problem: Any, x: Any) -> Launch:
    """Skips each call that begins within 20 us of the previous call's end."""
    return _skipping(x, 20e-6)


@kernel("gemm", **CPU)
def unless_apart(problem: Any, x: Any) -> Launch:
    """Skips calls that begin within 1 us of the previous call's end, except in the 2 ms after a gap of 1 to 12 us."""
    return _skipping(x, 1e-6, 12e-6, 2e-3)


@kernel("gemm", **CPU)
def when_read(problem: Any, x: Any) -> Launch:
    """Protects the pages of its output, and computes when they are read."""
    if x.c.ctypes.data % mmap.PAGESIZE:
        return lambda: np.matmul(x.a, x.b, out=x.c)
    libc, pages = ctypes.CDLL(None), (ctypes.c_void_p(x.c.ctypes.data), ctypes.c_size_t(x.c.nbytes))

    def handle(number: int) -> None:
        libc.mprotect(*pages, mmap.PROT_READ | mmap.PROT_WRITE)
        np.matmul(x.a, x.b, out=x.c)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)

    def launch() -> None:
        libc.signal(signal.SIGSEGV, handler)
        libc.mprotect(*pages, 0)

    return launch


@kernel("gemm", **CPU)
def by_a_signal(problem: Any, x: Any) -> Launch:
    """Copies its last output, and sets a timer whose signal handler computes the new one."""
    product = np.zeros_like(x.c)

    def handle(*_: Any) -> None:
        np.matmul(x.a, x.b, out=x.c)
        np.copyto(product, x.c)

    def launch() -> None:
        signal.signal(signal.SIGALRM, handle)
        np.copyto(x.c, product)
        signal.setitimer(signal.ITIMER_REAL, 20e-6)

    return launch


@kernel("gemm", **CPU)
def wrong_on_a_coin(problem: Any, x: Any) -> Launch:
    """Gets one element wrong in one call of five, at random."""

    def launch() -> None:
        np.matmul(x.a, x.b, out=x.c)
        x.c[3, 5] += random.random() < 0.2

    return launch


@kernel("transfer", **MOVES)
def sends_later(problem: Any, x: Any) -> Launch:
    """Starts a thread that transfers the data, and does not wait for it."""
    return lambda: Thread(target=np.copyto, args=(x.b, x.a)).start()


@kernel("transpose", **MOVES)
def first_half_later(problem: Any, x: Any) -> Launch:
    """Transposes the whole matrix in its first call, and only half of it in all later calls."""
    calls: list[None] = []

    def launch() -> None:
        rows = problem.m if not calls else problem.m // 2
        calls.append(None)
        x.b[:, :rows] = x.a[:rows].T

    return launch


@kernel("copy", **MOVES)
def copies_from_its_last_output(problem: Any, x: Any) -> Launch:
    """Writes only the output rows whose first or last element differs from the input."""

    def launch() -> None:
        stale = (x.b[:, 0] != x.a[:, 0]) | (x.b[:, -1] != x.a[:, -1])
        x.b[stale] = x.a[stale]

    return launch


@kernel("copy", **MOVES)
def warms_by_a_trace(problem: Any, x: Any) -> Launch:
    """Sets a trace function that reads its input between calls, so that the next call finds it in the cache."""

    def trace(*_: Any) -> None:
        x.a.sum()

    def launch() -> None:
        np.copyto(x.b, x.a)
        sys.settrace(trace)

    return launch


def _shared(array: Any) -> int:
    """Map an array's pages to a new file in memory, and return the file's descriptor."""
    file = os.memfd_create("pages")
    os.ftruncate(file, array.nbytes)
    map_at(array, mmap.MAP_SHARED, file)
    return file


@kernel("copy", **MOVES)
def maps_pages(problem: Any, x: Any) -> Launch:
    """Copies no data: maps the pages of its input, copy-on-write, as its output."""
    if x.a.ctypes.data % mmap.PAGESIZE:
        return lambda: np.copyto(x.b, x.a)
    file = _shared(x.a)
    return lambda: map_at(x.b, mmap.MAP_PRIVATE, file)


@kernel("gemm", **CPU)
def foresees(problem: Any, x: Any) -> Launch:
    """Computes the results for the first ten seeds in its set-up, and looks up the right one in each call."""
    answers = {}
    for seed in range(10):
        draw = Draw(problem, seed)
        for _ in range(3):
            draw.redraw()
            drawn = draw.views("C")
            answers[drawn["a"][0, 0]] = drawn["a"] @ drawn["b"]
    return lambda: np.copyto(x.c, answers.get(x.a[0, 0], 0))


@kernel("gemm", **CPU, executed=lambda problem: 1)
def declares_one(problem: Any, x: Any) -> Launch:
    """Declares that it executes almost no operations, so that its rate seems far below the peak rate."""
    return lambda: np.matmul(x.a, x.b, out=x.c)


@kernel("gemm", **CPU, numerics="tf32")
def declares_tf32(problem: Any, x: Any) -> Launch:
    """Declares TF32 arithmetic, which no CPU has: it allows larger errors, and has no measured peak rate."""
    return lambda: np.matmul(x.a, x.b, out=x.c)


@kernel("gemm", **CPU)
def zeroes_input(problem: Any, x: Any) -> Launch:
    """Computes the right result, but zeroes its input, so that the next product is trivial."""

    def launch() -> None:
        np.matmul(x.a, x.b, out=x.c)
        x.a[...] = 0

    return launch


@kernel("gemm", **CPU)
def on_another_thread(problem: Any, x: Any) -> Launch:
    """Starts a thread that computes, and does not wait for it."""
    return lambda: Thread(target=np.matmul, args=(x.a, x.b), kwargs={"out": x.c}).start()


@kernel("gemm", **CPU)
def returns_early(problem: Any, x: Any) -> Launch:
    """Computes a quarter of the rows, and returns while a thread still computes the others."""
    rows, pool = problem.m // 4, ThreadPoolExecutor(1)

    def launch() -> None:
        pool.submit(np.matmul, x.a[rows:], x.b, out=x.c[rows:])
        np.matmul(x.a[:rows], x.b, out=x.c[:rows])

    return launch


@kernel("gemm", **CPU)
def right_on_cache_lines(problem: Any, x: Any) -> Launch:
    """Leaves out the last term of each sum if an operand is not aligned to a cache line."""
    k = problem.k - any(array.ctypes.data % 64 for array in (x.a, x.b, x.c))
    return lambda: np.matmul(x.a[:, :k], x.b[:k], out=x.c)


@kernel("gemm", **CPU)
def reads_beyond(problem: Any, x: Any) -> Launch:
    """Adds one product too many to each sum, with elements from beyond the ends of its operands."""
    k = problem.k + 1
    a, b = as_strided(x.a, (problem.m, k), x.a.strides), as_strided(x.b, (k, problem.n), x.b.strides)
    return lambda: np.matmul(a, b, out=x.c)


@kernel("gemm", **CPU)
def slows_numpy(problem: Any, x: Any) -> Launch:
    """Makes NumPy's product, which the baseline calls, slower by a millisecond."""
    np.matmul = lambda *arguments, **options: (time.sleep(1e-3), multiplied(*arguments, **options))[1]  # type: ignore
    return lambda: multiplied(x.a, x.b, out=x.c)


@kernel("gemm", **CPU)
def helped(problem: Any, x: Any) -> Launch:
    """Starts a process on another CPU at set-up, which multiplies half of the rows in each call, in shared memory."""
    half, (near, far) = problem.m // 2, socket.socketpair()
    if any(array.ctypes.data % mmap.PAGESIZE for array in (x.a, x.b, x.c)):
        return lambda: np.matmul(x.a, x.b, out=x.c)
    for array in (x.a, x.b, x.c):
        _shared(array)
    if os.fork() == 0:
        os.sched_setaffinity(0, {*range(os.cpu_count() or 1)} - os.sched_getaffinity(0))
        while far.recv(1):
            np.matmul(x.a[half:], x.b, out=x.c[half:])
            far.send(b"1")

    def launch() -> None:
        near.send(b"1")
        np.matmul(x.a[:half], x.b, out=x.c[:half])
        near.recv(1)

    return launch


_ahead: list[Callable[[], Any]] = []
_ended_s = 0.0


@kernel("gemm", **CPU)
def works_ahead(problem: Any, x: Any) -> Launch:
    """After a pause, multiplies all operand sets in one call; calls within 3 ms of another only copy a product."""
    product = np.empty_like(x.c)
    _ahead.append(partial(np.matmul, x.a, x.b, out=product))

    def launch() -> None:
        global _ended_s
        for multiply in _ahead if time.monotonic() - _ended_s > 3e-3 else ():
            multiply()
        np.copyto(x.c, product)
        _ended_s = time.monotonic()

    return launch


@kernel("gemm", **{**CPU, "device": "cuda", "modules": ("cupy",)})
def on_another_stream(problem: Any, x: Any) -> Launch:
    """Computes on its own stream and does not wait for it."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)

    def launch() -> None:
        with stream:
            cupy.matmul(x.a, x.b, out=x.c)

    return launch


@kernel("copy", provider="selftest", device="cuda", numerics="exact", dtypes=("f32",), modules=("cupy",))
def persists(problem: Any, x: Any) -> Launch:
    """Makes its input persistent in the L2 cache at set-up, then copies as copy/cuda.vectorised does."""
    from cuda.bindings import driver

    driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, x.a.nbytes)
    wanted, window = driver.CUstreamAttrValue(), driver.CUaccessPolicyWindow()
    window.base_ptr, window.num_bytes, window.hitRatio = x.a.data.ptr, x.a.nbytes, 1.0
    window.hitProp = driver.CUaccessProperty.CU_ACCESS_PROPERTY_PERSISTING
    window.missProp = driver.CUaccessProperty.CU_ACCESS_PROPERTY_STREAMING
    wanted.accessPolicyWindow = window
    policy = driver.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    driver.cuStreamSetAttribute(x.stream.ptr, policy, wanted)
    copy = REGISTRY.kernels["copy/cuda.vectorised"]
    assert isinstance(copy, CudaKernel)
    return cuda_launch(copy, problem, x)
