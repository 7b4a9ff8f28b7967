"""Check three properties of compressed aggregation with error feedback, which hold for any order of sums and any ties.

Conservation: nothing is lost, so the delivered sum plus the new residuals equals the gradients plus the old residuals.
Contraction: the residual of each block is no larger than the error of the format's rounding. Compression: the values
sent for each block are values of the format. Sending nothing would conserve everything, but would not contract. The
first two are checked on all elements, the third on every block of randomly drawn parts.
"""

import math
from collections.abc import Iterator

import numpy as np

from kernelmark import DTYPES, Array, Arrays, Verdict
from kernelmark.kernels.aggregate._formats import FORMATS

#: Elements that are checked at a time, so that temporary arrays stay in a cache; a multiple of every block.
PART = 2**13
#: The most parts whose values are checked: a million elements of each row.
PARTS = 128
#: The relative amount by which a residual's squared norm may exceed that of the format's rounding; a bias of 2 % of a
#: step adds more.
_SLACK = 1e-3
#: The number of roundings of a value that a worker adds to its residual, quantises and keeps.
_WORKER = 4
_TINY = math.ulp(0.0)


def drawn_parts(n: int, rng: "np.random.Generator") -> Array:
    """Return the index of the first element of each part to check: of all parts, or of PARTS random ones."""
    starts = np.arange(0, n, PART)
    return starts if len(starts) <= PARTS else rng.choice(starts, PARTS, replace=False)


def rounded(w: int, dtype: str) -> float:
    """Return a bound on the rounding errors of a sum of w workers' messages, in units of the sum of all magnitudes.

    Sums of w + 1 terms are rounded, and so are residuals and messages.
    """
    return (w + _WORKER) * DTYPES[dtype].roundoff


class _Wrong(Exception):
    """Raised with the reason if a result is wrong."""


class Compressed:
    """Checks the residuals `e` and the result: the sum `s`, or the `weights` after a step with learning rate `lr`."""

    def __init__(self, name: str, dtype: str, lr: float, drawn: Arrays, outputs: Arrays) -> None:
        self._name, self._block = name, FORMATS[name].block
        self._drawn, self._outputs, self._lr = drawn, outputs, lr
        self._w, self._n = drawn["g"].shape
        self._dtype, self._u = dtype, DTYPES[dtype].roundoff
        self._residual = self._offered = 0.0

    def verdict(self) -> Verdict:
        """Return a verdict with the delivered sum's largest error, its bound, and the workers' compression error."""
        drawn = set(self._drawn["parts"].tolist())
        try:
            errors = [self._judge_part(start, start in drawn) for start in range(0, self._n, PART)]
        except _Wrong as wrong:
            return Verdict(None, None, str(wrong))
        worst, limit = max(errors, key=lambda pair: pair[0] / max(pair[1], _TINY))
        return Verdict(worst, limit, compression_error=self._residual / max(self._offered, _TINY))

    def _judge_part(self, start: int, closely: bool) -> tuple[float, float]:
        """Check the residuals of each worker and the owner, then the delivered sum; closely: also the sent values."""
        part, drawn, left = slice(start, start + PART), self._drawn, self._outputs["e"]
        received = drawn["e"][self._w, part].astype(np.float64)
        size = np.abs(received)
        for i in range(self._w):
            x = drawn["g"][i, part].astype(np.float64)
            x += drawn["e"][i, part]
            residual = left[i, part].astype(np.float64)
            self._judge_row(x, residual, _WORKER * self._u * np.abs(x), i, start, closely)
            self._residual += float(np.vdot(residual, residual))
            self._offered += float(np.vdot(x, x))
            received += x
            received -= residual
            size += np.abs(x)
            size += np.abs(residual)
        residual = left[self._w, part].astype(np.float64)
        errors = rounded(self._w, self._dtype) * (size + np.abs(residual))
        self._judge_row(received, residual, errors, self._w, start, closely)
        return self._judge_sum(received - residual, errors, start)

    def _judge_sum(self, want: Array, errors: Array, start: int) -> tuple[float, float]:
        part, name = slice(start, start + PART), "s"
        if name not in self._outputs:
            name, weights = "weights", self._drawn["weights"][part]
            want = weights - self._lr * want
            errors = self._lr * errors + 2 * self._u * (np.abs(weights) + np.abs(want))
        error = np.abs(self._outputs[name][part] - want)
        right = error <= errors
        if not right.all():
            at = int(right.argmin())
            difference = f"{name}[{start + at}] is {float(self._outputs[name][part][at]):.9g}, expected {want[at]:.9g}"
            raise _Wrong(f"{difference} within {errors[at]:.3g}: the drawn values minus the residuals")
        at = int(np.argmax(error / np.maximum(errors, _TINY)))
        return float(error[at]), float(errors[at])

    def _judge_row(self, x: Array, residual: Array, errors: Array, row: int, start: int, closely: bool) -> None:
        """Check the blocks of a worker or owner, which had x to send and kept `residual`.

        errors: bounds on the rounding errors of elements. The largest bound in a block is used for all its elements,
        since they share a scale.
        """
        blocks = (_blocks(values, self._block) for values in (x, residual, errors))
        for (whole, at), (rest, _), (error, _) in zip(*blocks, strict=True):
            tolerance = error.max(1)
            least, much = _LEAST[self._name](whole), np.einsum("ij,ij->i", rest, rest)
            allowed = (np.sqrt((1 + _SLACK) * least) + math.sqrt(whole.shape[1]) * tolerance) ** 2
            strays = _STRAYS[self._name](whole - rest) if closely else np.zeros(len(whole))
            right = (much <= allowed) & (strays <= 2 * tolerance)
            if right.all():
                continue
            i = int(right.argmin())
            first = start + at + i * self._block
            block = f"e[{row}, {first}:{first + whole.shape[1]}]"
            if much[i] <= allowed[i]:
                difference = f"a sent value differs by {strays[i]:.3g} from {_VALUES[self._name]}"
                raise _Wrong(f"{block}: {difference}, expected at most {2 * tolerance[i]:.3g}")
            size = max(float(np.vdot(whole[i], whole[i])), _TINY)
            expected = f"expected at most {allowed[i] / size:.3g} in {self._name}"
            raise _Wrong(f"{block} has {much[i] / size:.3g} of the squared norm of the values to be sent, {expected}")


def _blocks(x: Array, block: int) -> Iterator[tuple[Array, int]]:
    """Yield the whole blocks as rows, then a short block at the end, each with the index of the first element."""
    whole = x.size // block * block
    if whole:
        yield x[:whole].reshape(-1, block), 0
    if whole < x.size:
        yield x[whole:].reshape(1, -1), whole


def _least_of_onebit(x: Array) -> Array:
    """Return each block's squared residual norm if elements >= 0 are replaced by their mean, the others by theirs."""
    squares, total, size = np.einsum("ij,ij->i", x, x), x.sum(1), np.abs(x).sum(1)
    high = (x >= 0).sum(1)
    low = x.shape[1] - high
    mean_squares = ((size + total) / 2) ** 2 / np.maximum(high, 1) + ((size - total) / 2) ** 2 / np.maximum(low, 1)
    norms: Array = np.maximum(squares - mean_squares, 0.0)
    return norms


def _least_of_int8(x: Array) -> Array:
    """Return each block's squared residual norm if elements are rounded to multiples of its largest magnitude / 127."""
    rest, step = _off_grid(x)
    norms: Array = np.einsum("ij,ij->i", rest, rest) * step**2
    return norms


def _off_grid(x: Array) -> tuple[Array, Array]:
    """Return the distances of numbers from multiples of their block's step (largest / 127), in steps, and the steps."""
    step = np.maximum(np.abs(x).max(1) / 127, _TINY)
    rest = x / step[:, None]
    rest -= np.rint(rest)
    return rest, step


def _strays_of_onebit(sent: Array) -> Array:
    """Return, for each block, the largest distance of a value from the nearer of the block's minimum and maximum."""
    low, high = sent.min(1, keepdims=True), sent.max(1, keepdims=True)
    distances: Array = np.minimum(sent - low, high - sent).max(1)
    return distances


def _strays_of_int8(sent: Array) -> Array:
    """Return, for each block, the largest distance of a value from the nearest multiple of the scale."""
    rest, step = _off_grid(sent)
    distances: Array = np.abs(rest).max(1) * step
    return distances


_LEAST = {"onebit": _least_of_onebit, "int8": _least_of_int8}
_STRAYS = {"onebit": _strays_of_onebit, "int8": _strays_of_int8}
_VALUES = {"onebit": "the two values of a block", "int8": "multiples of the block's scale"}
