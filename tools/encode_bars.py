"""What compressed aggregation promises on the CPU, measured: rows of (promise, found, holds) for `make bars`.

Each byte that encoding has to move counts once: a worker's gradient and residual are read, the residual is written, and
so is what is sent. A copy counts what it reads and what it writes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.measure.devices import get_device
from bench.plan.discovery import discover
from kernels._host import in_bands
from kernels.aggregate import _plans
from kernels.aggregate._formats import FORMATS
from kernels.aggregate._threads import on_threads
from rounds import Contender, prepared, share_of
from throughput_bars import main

ELEMENTS, WORKERS, THREADS = 25_600_000, 2, 2
LEAST = 0.7
PROBLEM = f"aggregate/w{WORKERS}n{ELEMENTS}/f32/ef"


def encode_bars() -> Iterator[tuple[str, str, bool]]:
    """Encode 25.6 million elements of each of two workers in each format, in turn with copies of them by NumPy."""
    for name in FORMATS:
        found, share = share_of(*_contenders(name))
        promise = f"{PROBLEM}: encode to {name} at {LEAST:.0%} of copyto's bytes a second on {THREADS} threads"
        yield promise, found, share >= LEAST


def _contenders(name: str) -> tuple[Contender, Contender]:
    """Return the phases of a strategy in which workers encode, and a copy of both gradients, on the same pages."""
    registry, device = discover(), get_device("cpu")
    kernel: Any = registry.kernels[f"aggregate/cpu.{name}"]
    problem: Any = registry.problem(PROBLEM)
    x = prepared(kernel, problem, THREADS)
    plan = _plans.compressed(problem, name)
    encode = on_threads(problem, x, plan._replace(phases=[p for p in plan.phases if p[0].function == "send"]))
    nbytes = WORKERS * (3 * 4 * ELEMENTS + FORMATS[name].nbytes(ELEMENTS))
    pages = device.host_memory(kernel.host_memory)
    source, target = (np.asarray(array).reshape(-1) for array in (x.g, pages.bytes(4 * WORKERS * ELEMENTS).view("f4")))
    copy = in_bands(source.size, THREADS, lambda i, j: lambda: np.copyto(target[i:j], source[i:j]))
    return Contender(encode, nbytes), Contender(copy, 2 * source.nbytes)


if __name__ == "__main__":
    main(encode_bars)
