"""Three properties of a compressed aggregation with error feedback, whatever its order of sums and its ties.

Conservation: nothing is lost, so the sum that is delivered and the residuals that are left are the gradients and the
residuals that were there. Contraction: what is left of each block is no more than what the format's own rounding
leaves. Compressed: what was sent of each block are values that the format has. Sending nothing conserves everything,
and does not contract.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from kernelmark import DTYPES, Array, Arrays, Verdict
from kernels.aggregate._formats import FORMATS

#: Elements that are judged at a time: the temporary arrays stay in a cache.
_CHUNK = 2**16
#: How much more than the format's own rounding leaves may be left: a bias of 2 % of a step leaves more.
_SLACK = 1e-3


def check_compressed(
    name: str, outputs: Arrays, drawn: Arrays, target: str, lr: float, dtype: str, chunk: int = _CHUNK
) -> Verdict:
    """Judge `e` and the sum `s` (or the `weights` after a step of `lr`) against what was drawn."""
    n = drawn["g"].shape[1]
    worst, limit = 0.0, 0.0
    for start in range(0, n, chunk):
        part = slice(start, min(n, start + chunk))
        try:
            error, bound = _judge(name, outputs, drawn, target, lr, part, DTYPES[dtype].roundoff)
        except _Wrong as wrong:
            return Verdict(None, None, str(wrong))
        if error * max(limit, math.ulp(0.0)) >= worst * bound:
            worst, limit = error, bound
    return Verdict(worst, limit)


def compression_error(name: str, values: Array) -> float:
    """Return |x - Q(x)|^2 / |x|^2 of the format: 1 for what sends nothing."""
    x = values.astype(np.float64)
    blocks = list(_blocks(x, FORMATS[name].block))
    left = sum(float(_LEAST[name](block).sum()) for block in blocks)
    return left / max(float(np.vdot(x, x)), math.ulp(0.0))


class _Wrong(Exception):
    """Why the result is wrong."""


def _judge(
    name: str, outputs: Arrays, drawn: Arrays, target: str, lr: float, part: slice, u: float
) -> tuple[float, float]:
    """Return the largest error of the delivered sum in this part, and its bound. Raises _Wrong."""
    w = len(drawn["g"])
    left = outputs["e"]
    received = drawn["e"][w, part].astype(np.float64)
    for i in range(w):
        x = drawn["g"][i, part].astype(np.float64)
        x += drawn["e"][i, part]
        received += _sent(name, x, left[i, part], 8 * u, f"e[{i}", part.start)
    # Up to 4 each of the workers' last residuals, and sums of up to 2 from each worker in any order.
    tolerance = u * (8 * w + (w + 1) * (w + 2))
    delivered = _sent(name, received, left[w, part], tolerance, f"e[{w}", part.start)
    if target == "weights":
        delivered *= -lr
        delivered += drawn["weights"][part]
        tolerance = lr * tolerance + 2 * u * (1 + 2 * lr * (w + 1))
    error = np.abs(outputs[target][part] - delivered)
    wrong = ~(error <= tolerance)
    if wrong.any():
        at = int(wrong.argmax())
        found, want = float(outputs[target][part][at]), float(delivered[at])
        raise _Wrong(
            f"{target}[{part.start + at}] is {found:.9g}, expected {want:.9g} within {tolerance:.3g}: "
            f"what was drawn less what the residuals keep ({int(wrong.sum())} of {error.size} elements wrong)"
        )
    return float(error.max()), tolerance


def _sent(name: str, x: Array, left: Array, tolerance: float, row: str, start: int) -> Array:
    """Return what a party with x to send has sent if it left this, by blocks that hold what a format has."""
    block = FORMATS[name].block
    kept = left.astype(np.float64)
    sent = x - kept
    at = start
    for values, rest, whole in zip(_blocks(sent, block), _blocks(kept, block), _blocks(x, block), strict=True):
        least = _LEAST[name](whole)
        much = np.einsum("ij,ij->i", rest, rest)
        allowed = (1 + _SLACK) * least + values.shape[1] * tolerance**2
        _require(much <= allowed, lambda i: _too_much(name, row, at + i * block, much[i], least[i], whole[i]))  # noqa: B023
        strays = _STRAYS[name](values)
        _require(
            strays <= 2 * tolerance,
            lambda i: (
                f"{row}, {at + i * block}] and on: what was sent of the block has "  # noqa: B023
                f"values off by {strays[i]:.3g}, expected {_VALUES[name]} within {2 * tolerance:.3g}"  # noqa: B023
            ),
        )
        at += values.size
    return sent


def _too_much(name: str, row: str, at: int, much: float, least: float, whole: Array) -> str:
    size = max(float(np.vdot(whole, whole)), math.ulp(0.0))
    return (
        f"{row}, {at}] and on: the residual of the block is {much / size:.3g} of what was to be sent (squared norms), "
        f"expected at most {least / size:.3g} of {name}"
    )


def _require(holds: Array, why: Callable[[int], str]) -> None:
    if not holds.all():  # False for NaN
        raise _Wrong(why(int((~holds).argmax())))


def _blocks(values: Array, block: int) -> Iterator[Array]:
    """Yield the whole blocks as rows, then the short one at the end."""
    whole = values.size // block * block
    if whole:
        yield values[:whole].reshape(-1, block)
    if whole < values.size:
        yield values[whole:].reshape(1, -1)


def _least_of_onebit(x: Array) -> Array:
    """Squared norms of what two means a block leave, of the elements from 0 on and of the others."""
    squares, total, size = np.einsum("ij,ij->i", x, x), x.sum(1), np.abs(x).sum(1)
    high = (x >= 0).sum(1)
    low = x.shape[1] - high
    mean_squares = ((size + total) / 2) ** 2 / np.maximum(high, 1) + ((size - total) / 2) ** 2 / np.maximum(low, 1)
    found: Array = np.maximum(squares - mean_squares, 0.0)
    return found


def _least_of_int8(x: Array) -> Array:
    """Squared norms of what rounding to the nearest multiple of the largest magnitude over 127 leaves."""
    step = np.maximum(np.abs(x).max(1, keepdims=True) / 127, math.ulp(0.0))
    rest = x / step
    rest -= np.rint(rest)
    rest *= step
    found: Array = np.einsum("ij,ij->i", rest, rest)
    return found


def _strays_of_onebit(q: Array) -> Array:
    """How far the value that is furthest from both the lowest and the highest lies."""
    low, high = q.min(1, keepdims=True), q.max(1, keepdims=True)
    found: Array = np.minimum(q - low, high - q).max(1)
    return found


def _strays_of_int8(q: Array) -> Array:
    """How far the value that is furthest from a multiple of the largest over 127 lies."""
    step = np.maximum(np.abs(q).max(1, keepdims=True) / 127, math.ulp(0.0))
    rest = q / step
    rest -= np.rint(rest)
    found: Array = np.abs(rest).max(1) * step[:, 0]
    return found


_LEAST = {"onebit": _least_of_onebit, "int8": _least_of_int8}
_STRAYS = {"onebit": _strays_of_onebit, "int8": _strays_of_int8}
_VALUES = {"onebit": "at most 2 values", "int8": "multiples of one scale, at most 255 values"}
