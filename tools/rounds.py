"""Launches on the CPU that take turns, so that what drifts on the machine falls on both sides of their ratio."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench.measure.devices import get_device
from bench.measure.draw import Draw
from bench.measure.operands import Operands, OperandSet, Scratch
from bench.measure.stats import speedup
from bench.plan.discovery import discover

ROUNDS = 40


class Contender(NamedTuple):
    """A launch and the bytes that it has to move."""

    launch: Callable[[], Any]
    nbytes: int


def prepared(kernel: Any, problem: Any, threads: int) -> Any:
    """Return drawn operands of a problem, as a kernel gets them."""
    device = get_device("cpu")
    operands = OperandSet(problem, device, kernel.host_memory)
    draw = Draw(problem, 0)
    draw.redraw()
    operands.load(draw)
    return Operands(operands, "C", device, threads, Scratch(device, kernel.host_memory))


def contender(kernel: str, problem: str, threads: int) -> Contender:
    """Return a registered kernel on a problem, and the bytes that every kernel has to move for that."""
    registry = discover()
    chosen: Any = registry.kernels[kernel]
    parsed: Any = registry.problem(problem)
    return Contender(chosen.launch(parsed, prepared(chosen, parsed, threads)), parsed.traffic_bytes)


def share_of(own: Contender, other: Contender) -> tuple[str, float]:
    """Return one's bytes a second over another's, in words and as the median of the rounds."""
    times = _in_turn(own, other)
    mine, others = ([each / one.nbytes for each in found] for one, found in zip((own, other), times, strict=True))
    ratio = speedup([others], [mine])
    assert ratio is not None
    rates = ", ".join(f"{1e-9 / float(np.median(each)):.3g}" for each in (mine, others))
    found = f"{ratio.median:.0%} [{ratio.low:.0%}, {ratio.high:.0%}] over {ROUNDS} rounds ({rates} GB/s)"
    return found, ratio.median


def _in_turn(*contenders: Contender) -> list[list[float]]:
    """Return the seconds of each call, forward and backward by turns, after one that is not counted."""
    times: list[list[float]] = [[] for _ in contenders]
    for one in contenders:
        one.launch()
    for turn in range(ROUNDS):
        for one, found in list(zip(contenders, times, strict=True))[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            one.launch()
            found.append(time.perf_counter() - start)
    return times
