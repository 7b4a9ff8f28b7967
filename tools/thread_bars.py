"""What a second thread gains on the layers of ResNet-50, measured: rows of (promise, found, holds) for `make bars`.

A virtual machine may have its CPUs on cores of their own in one second, and on the two threads of one core in the next.
So each layer is timed hot on one thread and on two in turn, between as many multiply-adds in registers, the ceiling
that bounds layers of this size. Rounds count in which the ceiling, before and after, gained nearly as much as it can
here; where these are too few, all do. What else disturbs some seconds is in one round of many layers, since each passes
through all layers of a kernel, and what counts is the median over rounds. A layer whose intervals still reach to both
sides of a bar takes part in further rounds: of some 200 layers, the least by a few rounds is the one that was
disturbed. A run with `--threads 1,2` times one after the other (`thread_gains.py`). Each kernel is verified on the
layer first.

`python tools/thread_bars.py` prints the gain and the share of every kernel on every layer.
"""

from collections.abc import Iterator, Sequence
from statistics import geometric_mean, median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from hot_rows import hot
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import Operands, OperandSet, Scratch
from kernelmark.bench.measure.stats import Interval, median_interval
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import Kernel, Launch
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.suites import find_suite

SUITE, CEILING = "resnet50", ("fma/n12288k8192/f32", "fma/numba.fma")
ROUNDS, MOST_ROUNDS, LEAST_CALLS, LEAST_S = 9, 45, 3, 4e-3
#: Which of the ceiling's gains, in per cent of them all, is what it can gain, and the share of that in a quiet round.
BEST, QUIET = 90, 0.9
GAIN, LEAST_FLOP, SHARE = 1.0, 50e6, 0.9


class Round(NamedTuple):
    """How many times as fast as on one thread a kernel is on two, and the ceiling before and after it."""

    gain: float
    before: float
    after: float

    @property
    def share(self) -> float:
        """The part of the ceiling's gain that the kernel has."""
        return 2 * self.gain / (self.before + self.after)


class Scaling(NamedTuple):
    """What a second thread gains a kernel on a layer, round by round."""

    kernel: str
    problem: Problem
    rounds: tuple[Round, ...]

    @property
    def gain(self) -> Interval:
        return median_interval([each.gain for each in self.rounds])

    @property
    def share(self) -> Interval:
        return median_interval([each.share for each in self.rounds])

    @property
    def has_share(self) -> bool:
        """Whether the layer is large enough for a share to be promised."""
        return self.problem.flop >= LEAST_FLOP

    @property
    def is_settled(self) -> bool:
        """Whether there are rounds enough, and no interval reaches to both sides of what is promised."""
        bars = [(self.gain, GAIN), (self.share, SHARE)][: 1 + self.has_share]
        return len(self.rounds) >= ROUNDS and not any(found.low < bar <= found.high for found, bar in bars)

    def quiet(self, ceilings: Sequence[float]) -> "Scaling":
        """Only the rounds in which the ceiling gained nearly as much as it can, by all that it was found to gain."""
        least = QUIET * np.percentile(ceilings, BEST) if ceilings else 0.0
        return self._replace(rounds=tuple(each for each in self.rounds if min(each.before, each.after) >= least))


def thread_bars() -> Iterator[tuple[str, str, bool]]:
    """The least gain, and the least share of what the ceiling gains, of all kernels of ours."""
    found = list(scalings())
    gains = {each: each.gain for each in found}
    yield "ResNet-50, one image: two threads as fast as one", *_least(gains, GAIN)
    shares = {each: each.share for each in found if each.has_share}
    yield f"of them from {LEAST_FLOP / 1e6:g} MFLOP on: {SHARE:g} of what multiply-adds gain", *_least(shares, SHARE)


class Pair(NamedTuple):
    """A kernel set up for one thread and for two on the same operands; both use the memory that is held here."""

    one: Launch
    two: Launch
    operands: OperandSet
    scratch: tuple[Scratch, Scratch]

    def gain(self) -> float:
        """Return how many times as fast it is on two threads now."""
        return _typical_s(self.one) / _typical_s(self.two)


def scalings() -> Iterator[Scaling]:
    """Every kernel of ours that compiles on every layer that it takes."""
    registry = discover()
    problem, name = CEILING
    ceiling = pair(registry.kernels[name], registry.problem(problem))
    ceilings = list[float]()
    problems = [entry.problem for entry in find_suite(SUITE, registry).entries()]
    for kernel in registry.kernels.values():
        compiles = kernel.device == "cpu" and kernel.provider in ("numba", "cpu")
        layers = [each for each in problems if compiles and kernel.op == each.op and kernel.refuses(each) is None]
        for layer in layers:
            hot(layer.id, kernel.id, max_time_s=0.01)
        pairs = [pair(kernel, layer) for layer in layers]
        found = [Scaling(kernel.id, layer, ()) for layer in layers]
        for _ in range(MOST_ROUNDS):
            for i, each in enumerate(found):
                if not each.quiet(ceilings).is_settled:
                    before, gain, after = ceiling.gain(), pairs[i].gain(), ceiling.gain()
                    ceilings += before, after
                    found[i] = each._replace(rounds=(*each.rounds, Round(gain, before, after)))
        for each in found:
            quiet = each.quiet(ceilings)
            yield quiet if len(quiet.rounds) >= ROUNDS else each


def pair(kernel: Kernel, problem: Problem) -> Pair:
    """Set a kernel up for both, and call each once."""
    device, draw = get_device("cpu"), Draw(problem, 1)
    operands, scratch = OperandSet(problem, device, kernel.host_memory), (Scratch(device), Scratch(device))
    draw.redraw()
    operands.load(draw)
    one, two = (
        kernel.launch(problem, Operands(operands, kernel.order, device, threads, own))
        for threads, own in enumerate(scratch, 1)
    )
    one()
    two()
    return Pair(one, two, operands, scratch)


def _typical_s(launch: Launch) -> float:
    """Return the median of as many calls as take LEAST_S, after one that fills the caches.

    There are LEAST_CALLS at least, so that one disturbed call of a long kernel counts no more than one of the ceiling.
    """
    launch()
    found: list[float] = []
    while sum(found) < LEAST_S or len(found) < LEAST_CALLS:
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
