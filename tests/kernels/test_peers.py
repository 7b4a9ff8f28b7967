"""Sums between GPUs in every order that their streams and events allow: copies and sums are run in a drawn order."""

import ctypes
import random
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from kernelmark.bench.measure.cuda import Addressed
from kernelmark.kernels.aggregate import peers
from kernelmark.kernels.aggregate.problem import LR, AggregateProblem

STRATEGIES = ("device", "stripes", "tree", "ring")
SIZES = ((2, 1), (2, 70), (3, 1031), (4, 17), (5, 333), (8, 1056))


class Stream:
    """Work in the order in which it was queued; each piece waits for those of other streams that it comes after."""

    every: ClassVar[list["Stream"]] = []

    def __init__(self, non_blocking=True):
        self.work, self.done, self.ptr = [], 0, self
        Stream.every.append(self)

    def queue(self, run, after=None):
        """Add what is to be run after all that is queued here, and after as many pieces of another stream."""
        self.work.append((after or (self, 0), run))

    def wait_event(self, event):
        self.queue(lambda: None, event.at)

    def ready(self):
        """Return whether the next piece can be run."""
        if self.done == len(self.work):
            return False
        other, count = self.work[self.done][0]
        return other.done >= count


class Event:
    def __init__(self, disable_timing=True):
        self.at = None

    def record(self, stream):
        stream.queue(lambda: None)
        self.at = stream, len(stream.work)


def copy_between(target, to, source, at, nbytes, stream):
    stream.queue(lambda: ctypes.memmove(target, source, nbytes))


def array(*shape):
    return np.full(shape, np.nan).view(Addressed)


class Operands:
    """Operands in the host's memory, and the sums that strategies launch on streams."""

    def __init__(self, problem, timed, rng):
        self.stream, self.chosen = timed, {}
        self.g = [rng.random(problem.n).view(Addressed) for _ in range(problem.w)]
        self.weights, self.s = rng.random(problem.n).view(Addressed), array(problem.n)
        self.replicas = [array(problem.n) for _ in range(problem.w)]

    def scratch(self, shape, dtype, gpu=0):
        return array(*shape)

    def chose(self, **settings):
        self.chosen |= settings

    def launch(self, kernel, problem, stream, g, s=None, weights=None, replicas=None):
        asked = AggregateProblem.parse(problem.partition("/")[2])
        assert g.shape == (asked.w, asked.n)
        assert g.flags.c_contiguous
        assert kernel == "aggregate/cuda.device" or asked.w == 2
        run = (lambda: np.copyto(s, sum(g))) if asked.step == "sum" else (lambda: step(g, weights, replicas))
        return lambda: stream.queue(run)


def step(g, weights, replicas):
    weights -= LR * sum(g)
    replicas[:] = weights


@pytest.fixture
def timed(monkeypatch):
    """The stream that the events stand on; CuPy is what strategies ask of it."""
    Stream.every = []
    cuda = SimpleNamespace(Device=lambda gpu: nullcontext(), Stream=Stream, Event=Event)
    cuda.runtime = SimpleNamespace(memcpyPeerAsync=copy_between)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    return Stream()


def run(timed, order):
    """Run pieces in a drawn order until the timed stream has none; return how many the others have left.

    One stream is late: it runs a piece where no other can.
    """
    late = order.choice(Stream.every)
    while timed.done < len(timed.work):
        ready = [stream for stream in Stream.every if stream.ready()]
        stream = order.choice([stream for stream in ready if stream is not late] or ready)
        stream.work[stream.done][1]()
        stream.done += 1
    return sum(len(stream.work) - stream.done for stream in Stream.every)


@pytest.mark.parametrize("step", ["sum", "update"])
@pytest.mark.parametrize(("w", "n"), SIZES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_gradients_are_summed_whatever_runs_first(timed, name, w, n, step):
    problem = AggregateProblem(w=w, n=n, dtype="f64", step=step)
    for seed in range(8):
        x = Operands(problem, timed, np.random.default_rng(seed))
        launch, want, order = getattr(peers, name)(problem, x), 2 * sum(x.g), random.Random(seed)
        weights = x.weights - 2 * LR * want
        timed.queue(lambda x=x: [np.copyto(g, 2 * g) for g in x.g])
        launch()  # begins where the gradients may still be the old ones
        launch()  # begins where the first may still be under way
        assert run(timed, order) == 0
        for row in [x.s] if step == "sum" else [x.weights, *x.replicas]:
            np.testing.assert_allclose(row, want if step == "sum" else weights, rtol=1e-14, atol=1e-14)
        assert x.chosen == {"devices": w}
