"""A plug-in of cheating kernels, each named after its trick, which is tried on every operation."""

import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from kernelmark import Launch, kernel
from kernelmark.bench.selftest.wrong.library import nearest

ANY: dict[str, Any] = {"provider": "selftest", "device": "cpu", "dtypes": ("f32",), "modules": ("numpy",)}
#: The elements of an input that a kernel probes to recognise it.
PROBES = 16


class CheatedWork(NamedTuple):
    """The honest computation of an operation: the arrays that `compute` reads, and the one that it writes."""

    inputs: list[Any]
    output: Any
    compute: Callable[[], Any]


def _convolved(x: Any) -> None:
    windows = sliding_window_view(x.x, x.w.shape[2:], (2, 3))
    np.einsum("nchwrs,kcrs->nkhw", windows, x.w, out=x.y, optimize=True)


def _transformed(x: Any) -> None:
    x.y[...] = np.fft.rfft2(x.x).astype(np.complex128).view(np.float64).reshape(x.y.shape)


#: For each operation, the names of its inputs and of its output, the function, and its numerics.
WORKS: dict[str, tuple[str, str, Callable[[Any], Any], str]] = {
    "gemm": ("ab", "c", lambda x: np.matmul(x.a, x.b, out=x.c), "fp32"),
    "transpose": ("a", "b", lambda x: np.copyto(x.b, x.a.T), "exact"),
    "copy": ("a", "b", lambda x: np.copyto(x.b, x.a), "exact"),
    "transfer": ("a", "b", lambda x: np.copyto(x.b, x.a), "exact"),
    "fft": ("x", "y", _transformed, "fp32"),
    "aggregate": ("g", "s", lambda x: np.sum(x.g, axis=0, out=x.s), "fp32"),
    "conv": ("xw", "y", _convolved, "fp32"),
}


def _silently(compute: Callable[[Any], Any], x: Any) -> None:
    with np.errstate(over="ignore", invalid="ignore"):  # a cheat that computes late may read poisoned values
        compute(x)


def habit(make: Callable[[CheatedWork], Launch]) -> None:
    """Register, for each operation, a kernel that cheats as `make` does."""
    for op, (inputs, output, compute, numerics) in WORKS.items():

        def setup(problem: Any, x: Any, inputs: str = inputs, output: str = output, compute: Any = compute) -> Launch:
            return make(
                CheatedWork([getattr(x, name) for name in inputs], getattr(x, output), partial(_silently, compute, x))
            )

        setup.__doc__ = make.__doc__
        kernel(op, name=make.__name__, numerics=numerics, **ANY)(setup)


def unless_probed(inputs: list[Any], output: Any, compute: Launch) -> Launch:
    """Return a launch that computes if a sampled input element has changed, and otherwise copies its last result."""
    seen: list[list[float]] = []
    result = np.empty_like(output)
    places = [np.linspace(0, array.size - 1, PROBES).astype(int) for array in inputs]

    def launch() -> None:
        elements = [float(array.flat[place]) for array, at in zip(inputs, places, strict=True) for place in at]
        if seen != [elements]:
            seen[:] = [elements]
            compute()
            np.copyto(result, output)
        np.copyto(output, result)

    return launch


@habit
def computes_once(work: CheatedWork) -> Launch:
    """Computes in its first call and returns that result in all later calls."""
    results: list[Any] = []

    def launch() -> None:
        if not results:
            work.compute()
            results.append(work.output.copy())
        np.copyto(work.output, results[0])

    return launch


@habit
def computes_in_set_up(work: CheatedWork) -> Launch:
    """Computes its answer during set-up."""
    work.compute()
    result = work.output.copy()
    return lambda: np.copyto(work.output, result)


@habit
def computes_when_changed(work: CheatedWork) -> Launch:
    """Computes only if one of a few sampled elements of its inputs has changed."""
    return unless_probed(*work)


@kernel("gemm", **ANY, layouts=("NN",))
def half_fingerprints(problem: Any, x: Any) -> Launch:
    """Always computes the upper half of the product, but the lower half only if a sampled input element has changed."""
    half = problem.m // 2
    lower = unless_probed([x.a, x.b], x.c[half:], lambda: np.matmul(x.a[half:], x.b, out=x.c[half:]))

    def launch() -> None:
        np.matmul(x.a[:half], x.b, out=x.c[:half])
        lower()

    return launch


@kernel("transpose", **ANY, numerics="exact", places=("in",))
def in_place(problem: Any, x: Any) -> Launch:
    """Copies its last result if sampled elements of its operand are those of the previous call."""
    flat = x.a.reshape(-1)
    return unless_probed([flat], flat, lambda: np.copyto(flat, x.a.T.flatten()))


def unless_soon(compute: Launch, otherwise: Launch) -> Launch:
    """Return a launch: `otherwise` within 0.2 ms (or twice the time of `compute`) of the last call, else `compute`."""
    ended_s = took_s = 0.0

    def launch() -> None:
        nonlocal ended_s, took_s
        began_s = time.perf_counter()
        if began_s - ended_s > max(2e-4, 2 * took_s):
            compute()
            took_s = time.perf_counter() - began_s
        else:
            otherwise()
        ended_s = time.perf_counter()

    return launch


@habit
def skips_soon(work: CheatedWork) -> Launch:
    """Does nothing if it is called soon after the previous call."""
    return unless_soon(work.compute, lambda: None)


@habit
def copies_when_soon(work: CheatedWork) -> Launch:
    """Copies its last result if it is called soon after the previous call."""
    result = np.empty_like(work.output)

    def compute() -> None:
        work.compute()
        np.copyto(result, work.output)

    return unless_soon(compute, lambda: np.copyto(work.output, result))


@habit
def skips_every_other(work: CheatedWork) -> Launch:
    """Does nothing in every other call, from the fourth one on."""
    calls = [0]

    def launch() -> None:
        calls[0] += 1
        if calls[0] < 4 or calls[0] % 2:
            work.compute()

    return launch


@habit
def leaves_a_thread(work: CheatedWork) -> Launch:
    """Starts a thread that computes, and waits for it only in the next call."""
    threads: list[Thread] = []

    def launch() -> None:
        for thread in threads:
            thread.join()
        threads[:] = [Thread(target=work.compute)]
        threads[0].start()

    return launch


@habit
def computes_in_a_trace(work: CheatedWork) -> Launch:
    """Sets a trace function, which computes when the harness next calls a Python function."""

    def trace(frame: Any, *_: Any) -> None:
        if frame.f_code is not launch.__code__:
            sys.settrace(None)
            work.compute()

    def launch() -> None:
        sys.settrace(trace)

    return launch


@habit
def skips_when_timed(work: CheatedWork) -> Launch:
    """Does nothing if garbage collection is off, as in timed calls."""
    return lambda: work.compute() if gc.isenabled() else None


@habit
def spoils_its_input(work: CheatedWork) -> Launch:
    """Computes the right result, but adds 1 to an element of its input."""

    def launch() -> None:
        work.compute()
        work.inputs[0].reshape(-1)[-1] += 1

    return launch


@habit
def writes_beyond(work: CheatedWork) -> Launch:
    """Computes the right result, but also writes the element after its output."""
    output = work.output.reshape(-1)
    beyond = as_strided(output, (output.size + 1,), output.strides)

    def launch() -> None:
        work.compute()
        beyond[-1] = 1

    return launch


@habit
def drops_bits(work: CheatedWork) -> Launch:
    """Clears the last 14 bits of each element of a right result, as if operands had been half as wide."""
    bits = work.output.view(np.uint32)

    def launch() -> None:
        work.compute()
        np.bitwise_and(bits, 0xFFFFC000, out=bits)

    return launch


def _on_others(work: CheatedWork, change: Callable[[Any], Any]) -> Launch:
    """Return a launch that computes on changed operands, and restores them."""

    def launch() -> None:
        kept = [array.copy() for array in work.inputs]
        for array in work.inputs:
            array[...] = change(array)
        work.compute()
        for array, values in zip(work.inputs, kept, strict=True):
            array[...] = values

    return launch


@habit
def clips(work: CheatedWork) -> Launch:
    """Clips its operands to [-1, 1], where most drawn values lie."""
    return _on_others(work, lambda values: values.clip(-1, 1))


@habit
def packs(work: CheatedWork) -> Launch:
    """Reads its operands as fixed-point numbers of 24 bits."""
    return _on_others(work, lambda values: ((values * 2.0**23).astype(np.int64) << 40 >> 40) * 2.0**-23)


@habit
def rounds(work: CheatedWork) -> Launch:
    """Rounds its operands to 17 bits."""
    return _on_others(work, nearest(17))
