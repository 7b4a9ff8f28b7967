"""A plug-in with kernels whose tunables change nothing, or change the time by 5 %."""

from typing import Any

import numpy as np

from kernelmark import Launch, kernel

CPU: dict[str, Any] = {"provider": "mine", "device": "cpu", "numerics": "exact"}


@kernel("copy", tunables={"NOTHING": tuple(range(12))}, **CPU)
def equal(problem: Any, x: Any) -> Launch:
    """Copy twenty times, whatever the tile."""
    return lambda: _copies(x, 20)


@kernel("copy", tunables={"PLANTED": tuple(range(12))}, **CPU)
def planted(problem: Any, x: Any) -> Launch:
    """Copy twenty times, but nineteen times with one of the tiles."""
    number = 19 if x.tile.PLANTED == 7 else 20
    return lambda: _copies(x, number)


@kernel("copy", tunables={"NOTHING": tuple(range(400))}, **CPU)
def noop(problem: Any, x: Any) -> Launch:
    """Copy once, with any of 400 tiles."""
    return lambda: np.copyto(x.b, x.a)


def _copies(x: Any, number: int) -> None:
    for _ in range(number):
        np.copyto(x.b, x.a)
