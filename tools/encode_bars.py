"""What compressed aggregation promises on the CPU, measured: rows of (promise, found, holds) for `make bars`.

Each byte that encoding has to move counts once: a worker's gradient and residual are read, the residual is written, and
so is what is sent. A copy counts what it reads and what it writes.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import Operands, OperandSet, Scratch
from kernelmark.bench.measure.stats import speedup
from kernelmark.bench.plan.discovery import discover
from kernelmark.kernels._launches import in_bands
from kernelmark.kernels.aggregate import _plans
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate._threads import on_threads
from throughput_bars import main

ELEMENTS, WORKERS, THREADS, ROUNDS = 25_600_000, 2, 2, 40
LEAST = 0.7
PROBLEM = f"aggregate/w{WORKERS}n{ELEMENTS}/f32/ef"


class Contender(NamedTuple):
    """A launch and the bytes that it has to move."""

    launch: Callable[[], Any]
    nbytes: int


def encode_bars() -> Iterator[tuple[str, str, bool]]:
    """Encode 25.6 million elements of each of two workers in each format, in turn with copies of them by NumPy."""
    for name in FORMATS:
        encode, copy = _contenders(name)
        times = _in_turn(encode, copy)
        own, copies = ([each / contender.nbytes for each in found] for contender, found in times.items())
        ratio = speedup([copies], [own])
        assert ratio is not None
        rates = ", ".join(f"{1e-9 / float(np.median(each)):.3g}" for each in (own, copies))
        found = f"{ratio.median:.0%} [{ratio.low:.0%}, {ratio.high:.0%}] over {ROUNDS} rounds ({rates} GB/s)"
        promise = f"{PROBLEM}: encode to {name} at {LEAST:.0%} of copyto's bytes a second on {THREADS} threads"
        yield promise, found, ratio.median >= LEAST


def _contenders(name: str) -> tuple[Contender, Contender]:
    """Return the phases of a strategy in which workers encode, and a copy of both gradients, on the same pages."""
    registry, device = discover(), get_device("cpu")
    kernel: Any = registry.kernels[f"aggregate/cpu.{name}"]
    problem: Any = registry.problem(PROBLEM)
    operands = OperandSet(problem, device, kernel.host_memory)
    draw = Draw(problem, 0)
    draw.redraw()
    operands.load(draw)
    x: Any = Operands(operands, "C", device, THREADS, Scratch(device, kernel.host_memory))
    plan = _plans.compressed(problem, name)
    encode = on_threads(problem, x, plan._replace(phases=[p for p in plan.phases if p[0].function == "send"]))
    nbytes = WORKERS * (3 * 4 * ELEMENTS + FORMATS[name].nbytes(ELEMENTS))
    pages = device.host_memory(kernel.host_memory)
    source, target = (np.asarray(array).reshape(-1) for array in (x.g, pages.bytes(4 * WORKERS * ELEMENTS).view("f4")))
    copy = in_bands(source.size, THREADS, lambda i, j: lambda: np.copyto(target[i:j], source[i:j]))
    return Contender(encode, nbytes), Contender(copy, 2 * source.nbytes)


def _in_turn(*contenders: Contender) -> dict[Contender, list[float]]:
    """Return the seconds of each call, forward and backward by turns, after one that is not counted."""
    times: dict[Contender, list[float]] = {contender: [] for contender in contenders}
    for contender in contenders:
        contender.launch()
    for turn in range(ROUNDS):
        for contender in contenders[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            contender.launch()
            times[contender].append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    main(encode_bars)
