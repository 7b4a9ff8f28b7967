"""Judge outputs by the error of each element, by the rms error of all elements, and by weighted sums of elements."""

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import DTYPES, Array, bits_dtype

#: The share of right results that all rms checks of one kind in a verdict may reject together.
_RMS_FALSE_ALARMS = 1e-7
#: The share of right results that all weighted sums of a verdict may reject together. For outputs of timed calls, all
#: sums of _VERDICTS outputs share it.
_FALSE_ALARMS, _VERDICTS = 1e-6, 2**20
#: The factor by which a row's rms error may exceed the sample's, in addition to an algorithm's known unevenness.
_UNEVEN = 4.0
#: The smallest error that is assumed, as a share of the allowed error, even if the errors of a sample are smaller.
_FLOOR = 1 / 256
_BLOCK_ELEMENTS, _CACHED_ELEMENTS = 2**20, 2**14


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on outputs. reason: why they are wrong; None if they are right.

    max_error: the absolute error of the element whose error is closest to its bound. error_bound: that element's bound.
    compression_error: for compressed gradients, the squared norm of the unsent part over that of the whole gradient.
    """

    max_error: float | None = None
    error_bound: float | None = None
    reason: str | None = None
    compression_error: float | None = None


class Bound(NamedTuple):
    """The bounds on the errors of a right result relative to its float64 reference.

    largest, rms: the maximum and the root mean square of an element's absolute error before it is stored, in units of
    `unit`. unit: the magnitude of each element's operands, a number or an array that broadcasts to the output. stored:
    the storage type of the results. roundings: a lower bound on the number of independent rounding errors; if it is
    small, the rms error scatters more. uneven: the rms error of an algorithm's least accurate elements, divided by that
    of all elements. comparisons: the number of comparisons of this kind in a verdict; together they cause no more false
    alarms than one. own: the absolute rms error of a function applied to the sum; its largest error is four times
    `own`. rounding: the mean square of the error of rounding an element to `stored`, in squared rounding steps.
    """

    largest: float
    rms: float
    stored: str
    roundings: int = 2**31
    uneven: float = 1.0
    unit: float | Array = 1.0
    comparisons: int = 1
    own: float = 0.0
    rounding: float = 1 / 12

    def of(self, part: Any, shape: tuple[int, ...]) -> "Bound":
        """Return the bound for one part of an output whose shape is `shape`."""
        return self._replace(unit=np.broadcast_to(self.unit, shape)[part]) if np.ndim(self.unit) else self

    def limits(self, want: Array) -> Array:
        """Return the largest absolute error that each stored element may have."""
        dtype = DTYPES[self.stored]
        before = (self.largest * self.unit + 4 * self.own) * (1 + dtype.roundoff)
        limits: Array = before + dtype.roundoff * np.abs(want) + dtype.underflow
        return limits

    def variance(self, want: Array) -> Array:
        """Return the variance of rounding each element to its storage type, by default (rounding step)**2 / 12."""
        dtype = DTYPES[self.stored]
        step = np.maximum(np.ldexp(dtype.roundoff, np.frexp(want)[1]), 2 * dtype.underflow)
        variance: Array = step**2 * self.rounding
        return variance

    def share(self, error: Array, want: Array) -> float:
        """Return the sum of error**2 / variance over all elements; elements without variance add 0 (see `limits`)."""
        variance = np.square(self.rms * self.unit) + self.own**2 + self.variance(want)
        return float(np.sum(np.divide(error * error, variance, out=np.zeros(error.shape), where=variance > 0)))

    def rms_limit(self, count: int) -> float:
        """Return a limit on (rms error) / `rms`. The chance that right outputs exceed it in any comparison is 1e-7."""
        quantile = -NormalDist().inv_cdf(_RMS_FALSE_ALARMS / self.comparisons)
        dof = max(1.0, min(count, self.roundings) / 4)  # only a quarter, since variances differ between elements
        spread = 2 / (9 * dof)  # Wilson and Hilferty's approximation of the chi-square distribution
        return math.sqrt((1 - spread + quantile * math.sqrt(spread)) ** 3)


class Errors:
    """The errors of one output, collected block by block."""

    def __init__(self) -> None:
        self.count = self.wrong = 0
        self.squares = 0.0
        self.largest = self.limit = 0.0
        self.nan = False
        self.first: tuple[int, ...] | None = None
        self._closest = -1.0

    def add(self, error: Array, limits: Array, start: tuple[int, ...]) -> None:
        """Add a block whose first element has the index `start`. NaN counts as a wrong element."""
        right = error <= limits  # False for NaN, which is why it is not written as ~(error > limits)
        if not right.all():
            first = tuple(int(i) + s for i, s in zip(np.argwhere(~right)[0], start, strict=True))
            self.first = min(self.first or first, first)
            self.wrong += int((~right).sum())
        self.count += error.size
        self.nan |= math.isnan(float(np.sum(error)))
        share = np.where(error > 0, error, 0) / np.maximum(limits, np.finfo(float).tiny)
        if (closest := float(share.max())) > self._closest:
            place = np.unravel_index(int(share.argmax()), error.shape)
            self._closest, self.largest = closest, float(error[place])
            self.limit = float(np.broadcast_to(limits, error.shape)[place])


def compare(name: str, got: Array, want: Array, bound: float | Array | Bound, dtype: str) -> Verdict:
    """Check that each element is within its bound of `want`, and for a Bound, that the rms error is within its limit.

    The reason names the first wrong element, and distinguishes NaN from an unwritten element.
    """
    errors = Errors()
    for block, start in _blocks(want.shape):
        expected = want[block]
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(got[block].astype(np.float64) - expected)
            if isinstance(bound, Bound):
                part = bound.of(block, want.shape)
                limits = part.limits(expected)
                errors.squares += part.share(error, expected)
            else:
                limits = np.broadcast_to(bound, want.shape)[block]
            errors.add(error, limits, start)
    if errors.first is not None:
        return _wrong(name, got, want, bound, dtype, errors)
    reason = None
    if isinstance(bound, Bound) and errors.count:
        rms, most = math.sqrt(errors.squares / errors.count), bound.rms_limit(errors.count)
        if not rms <= most:  # also for NaN
            times = f"{rms:.3g} times that of the declared arithmetic"
            reason = f"{name} has an rms error {times}, expected at most {most:.3g}"
    return Verdict(errors.largest, errors.limit, reason)


def moved(name: str, got: Array, want: Array, dtype: str) -> Verdict:
    """Check that each moved element has its original bits, so that -0.0 differs from 0.0."""
    bits = bits_dtype(dtype)
    if equal(got.view(bits), want.view(bits)):
        return Verdict(0.0, 0.0)
    verdict = compare(name, got, want.astype(np.float64), 0.0, dtype)
    if verdict.reason:
        return verdict
    places = np.argwhere(got.view(bits) != want.view(bits)).tolist()
    if not places:
        return Verdict(0.0, 0.0, f"{name} changed while it was compared")
    where = tuple(places[0])
    reason = f"{name}[{', '.join(map(str, where))}] is {float(got[where])}, expected {float(want[where])}"
    return Verdict(0.0, 0.0, reason)


def equal(got: Array, want: Array) -> bool:
    """Return whether two arrays of the same shape are equal, comparing by blocks to save memory and time."""
    return all(np.array_equal(got[block], want[block]) for block, _ in _blocks(want.shape))


def _blocks(
    shape: tuple[int, ...], elements: int = _BLOCK_ELEMENTS
) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """Yield slices along the longest axis with about `elements` elements, and the index where each begins."""
    if 0 in shape:
        return
    axis = int(np.argmax(shape))
    step = max(1, elements * shape[axis] // math.prod(shape))
    for first in range(0, shape[axis], step):
        block = [slice(None)] * len(shape)
        block[axis] = slice(first, first + step)
        yield tuple(block), tuple(first if i == axis else 0 for i in range(len(shape)))


def _wrong(name: str, got: Array, want: Array, bound: float | Array | Bound, dtype: str, errors: Errors) -> Verdict:
    where = errors.first
    assert where is not None
    if isinstance(bound, Bound):
        limit = bound.of(where, want.shape).limits(want[where])
    else:
        limit = np.broadcast_to(bound, want.shape)[where]
    unwritten = got.view(bits_dtype(dtype))[where] == DTYPES[dtype].poison
    number = ".10g" if got.dtype.kind == "i" else ".9g"
    value = "was not written" if unwritten else f"is {float(got[where]):{number}}"
    count = f"{errors.wrong} of {errors.count} elements wrong"
    index = ", ".join(map(str, where))
    reason = f"{name}[{index}] {value}, expected {float(want[where]):{number}} within {float(limit):.3g} ({count})"
    return Verdict(None if errors.nan else errors.largest, errors.limit, reason)


def error_variance(got: Array, want: Array, bound: Bound, length: int) -> float:
    """Return the error variance of an element before it is stored, estimated from sampled sums over `length` elements.

    Its unit is the square of `bound.unit`. The estimate hardly exceeds the variance that the arithmetic allows. It is
    never 0, since a single element may have a much larger error than most, and a sample may contain only sums of zeros.
    """
    likely = (bound.uneven * bound.rms) ** 2
    if want.size and likely and np.any(bound.unit):
        stored = bound.variance(want)
        weights = 1 / np.maximum(np.square(bound.rms * bound.unit) + stored, np.finfo(float).tiny)
        beyond = float(np.sum((np.square(got.astype(np.float64) - want) - stored) * weights))
        seen = beyond / max(float(np.sum(np.square(bound.unit) * weights)), np.finfo(float).tiny)
        likely = min(likely, max((_UNEVEN * bound.uneven) ** 2 * seen, (_FLOOR * bound.rms) ** 2))
    return likely + (bound.largest / length) ** 2


def sum_weights(rng: "np.random.Generator", shape: int | tuple[int, ...]) -> Array:
    """Draw weights for sums of outputs: magnitudes from 1 to 1.25, so that each element counts, and random signs."""
    return np.copysign(rng.uniform(1, 1.25, shape), rng.uniform(-1, 1, shape))


def sums_limit(variance: Array, own_error: float | Array, verdicts: int = 1) -> Array:
    """Return limits on weighted sums of errors with this variance; the chance that right results exceed one is 1e-6.

    Signs of weights are drawn independently of the errors, so the limits hold however errors depend on each other
    (Hoeffding, 1963). own_error: the standard deviation of the error of computing the sums in float64. verdicts: the
    number of verdicts that share this chance.
    """
    quantile = math.sqrt(2 * math.log(2 * verdicts * max(1, variance.size) / _FALSE_ALARMS))
    limits: Array = quantile * np.sqrt(variance + own_error**2)
    return limits


def summed(
    name: str,
    got: Array,
    want: Array,
    bound: Bound,
    length: int,
    squares: Array,
    weights: float | Array,
    own_error: float | Array,
    stored: Callable[[], Array],
) -> str | None:
    """Return why sums, in float64, of `length` weighted elements of a timed output are wrong, or None.

    squares: sums of (weight * unit)**2 with the elements' units, as in `Bound`. weights: sums of weight**2. own_error:
    as in `sums_limit`. stored: returns sums of (weight * element)**2, for the error of storing the elements; it reads
    all elements again, so it is called only if errors are large.
    """
    kind = DTYPES[bound.stored]
    # One large product may dominate a sum, so a few elements may have the largest errors.
    unstored = _UNEVEN**2 * (bound.rms**2 + (bound.largest / length) ** 2)
    variance = unstored * squares + kind.underflow**2 * weights
    with np.errstate(invalid="ignore", over="ignore"):
        if (np.abs(got - want) <= sums_limit(variance, own_error, _VERDICTS)).all():
            return None
        variance = variance + kind.roundoff**2 / 3 * np.nan_to_num(stored())
    return compare(name, got, want, sums_limit(variance, own_error, _VERDICTS), "f64").reason


def within(got: Array, want: Array, bound: Bound) -> Array:
    """Return for each element whether it is within the bound, as in `compare`, without the check of the rms."""
    right = np.empty(want.shape, bool)
    for block, _ in _blocks(want.shape, _CACHED_ELEMENTS):
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(np.subtract(got[block], want[block], dtype=np.float64))
        np.less_equal(error, bound.of(block, want.shape).limits(want[block]), out=right[block])
    return right
