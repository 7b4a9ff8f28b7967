"""The steps of an epilogue as NumPy operations, each on all rows that it is given."""

from typing import NamedTuple

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.gemm._epilogue import DECAY, MOMENTUM, RATE, Epilogue


class Rows(NamedTuple):
    """Rows of an epilogue's operands: x (the scaled product), C, and either V or the bias, which all rows share.

    x and C are the same array, except in an update, which overwrites a separate x and needs the scratch `room`.
    """

    x: Array
    c: Array
    bias: Array | None = None
    v: Array | None = None
    room: Array | None = None


def finish(epilogue: Epilogue, rows: Rows) -> Launch:
    """Return a launch that performs an epilogue's steps."""
    x, c, bias, v, room = rows
    if epilogue == "bias-relu":
        assert bias is not None
        below = bias[..., None, :]  # each product of a batch has its own bias
        return in_turn(lambda: np.add(x, below, out=c), lambda: np.maximum(c, 0, out=c))
    if epilogue == "sigmoid":
        return lambda: _sigmoid(x, c)
    assert v is not None
    assert room is not None

    def update() -> None:
        np.multiply(c, DECAY, out=room)
        np.add(x, room, out=x)
        np.multiply(x, RATE, out=x)
        np.multiply(v, MOMENTUM, out=v)
        np.subtract(v, x, out=v)
        np.add(c, v, out=c)

    return update


def _sigmoid(x: Array, c: Array) -> None:
    np.negative(x, out=c)
    with np.errstate(over="ignore"):  # if exp is infinite, C is 0
        np.exp(c, out=c)
    np.add(c, 1, out=c)
    np.reciprocal(c, out=c)
