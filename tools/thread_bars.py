"""What a second thread gains on the layers of ResNet-50, measured: rows of (promise, found, holds) for `make bars`.

A virtual machine may have its CPUs on cores of their own in one second, and on the two threads of one core in the next.
So each layer is timed hot on one thread and on two in turn with as many multiply-adds in registers, the ceiling that
bounds layers of this size; what counts is the median over rounds. A run with `--threads 1,2` times one after the other
(`thread_gains.py`). Each kernel is verified on the layer first.

`python tools/thread_bars.py` prints the gain and the share of every kernel on every layer.
"""

from collections.abc import Iterator
from statistics import geometric_mean, median
from time import perf_counter
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from bench.measure.stats import Interval, median_interval
from bench.plan.discovery import discover
from bench.plan.kernel import Kernel, Launch
from bench.plan.operation import Problem
from bench.plan.suites import find_suite
from hot_rows import hot

SUITE, CEILING = "resnet50", ("fma/n12288k8192/f32", "fma/numba.fma")
ROUNDS, LEAST_S = 9, 4e-3
LEAST_FLOP, SHARE = 50e6, 0.9


class Scaling(NamedTuple):
    """A kernel on a layer: how many times as fast as on one thread it and the ceiling are on two, round by round."""

    kernel: str
    problem: Problem
    gains: tuple[float, ...]
    ceilings: tuple[float, ...]

    @property
    def gain(self) -> Interval:
        return median_interval(self.gains)

    @property
    def share(self) -> Interval:
        return median_interval([gain / ceiling for gain, ceiling in zip(self.gains, self.ceilings, strict=True)])


def thread_bars() -> Iterator[tuple[str, str, bool]]:
    """The least gain, and the least share of what the ceiling gains, of all kernels of ours."""
    found = list(scalings())
    gains = {each: each.gain for each in found}
    yield "ResNet-50, one image: two threads as fast as one", *_least(gains, 1)
    shares = {each: each.share for each in found if each.problem.flop >= LEAST_FLOP}
    yield f"of them from {LEAST_FLOP / 1e6:g} MFLOP on: {SHARE:g} of what multiply-adds gain", *_least(shares, SHARE)


def scalings() -> Iterator[Scaling]:
    """Every kernel of ours that compiles on every layer that it takes."""
    registry = discover()
    problem, kernel = CEILING
    ceiling = _both(registry.kernels[kernel], registry.problem(problem))
    for entry in find_suite(SUITE, registry).entries():
        for own in registry.kernels.values():
            compiles = own.device == "cpu" and own.provider in ("numba", "cpu")
            if compiles and own.op == entry.problem.op and own.refuses(entry.problem) is None:
                hot(entry.problem.id, own.id, max_time_s=0.01)
                launches = _both(own, entry.problem)
                rounds = [(_gain(launches), _gain(ceiling)) for _ in range(ROUNDS)]
                yield Scaling(own.id, entry.problem, *zip(*rounds, strict=True))


def _both(kernel: Kernel, problem: Problem) -> list[Launch]:
    """Set it up for one thread and for two, on the same operands."""
    rng = np.random.default_rng(1)
    arrays = {o.name: rng.uniform(-1, 1, o.shape).astype(np.float32) for o in problem.operands()}
    launches = [
        kernel.launch(problem, SimpleNamespace(threads=threads, scratch=_scratch, chose=lambda **_: None, **arrays))
        for threads in (1, 2)
    ]
    for launch in launches:
        launch()
    return launches


def _scratch(shape: tuple[int, ...], _: str) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _gain(launches: list[Launch]) -> float:
    one, two = (_typical_s(launch) for launch in launches)
    return one / two


def _typical_s(launch: Launch) -> float:
    """Return the median of as many calls as take LEAST_S, after one that fills the caches."""
    launch()
    found: list[float] = []
    while sum(found) < LEAST_S:
        start = perf_counter()
        launch()
        found.append(perf_counter() - start)
    return median(found)


def _least(found: dict[Scaling, Interval], bar: float) -> tuple[str, bool]:
    worst = min(found, key=lambda each: found[each].median)
    medians = [value.median for value in found.values()]
    below, typical = sum(value < bar for value in medians), geometric_mean(medians)
    shown = f"{typical:.2f} on the whole, at least {_shown(found[worst])} ({worst.kernel} on {worst.problem.id})"
    return f"{shown}, {below} of {len(found)} less", below == 0


def _shown(found: Interval) -> str:
    return f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


if __name__ == "__main__":
    for each in scalings():
        print(_shown(each.gain), _shown(each.share), each.kernel, each.problem.id, flush=True)
