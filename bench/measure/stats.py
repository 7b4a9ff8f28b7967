"""Medians with intervals that hold under autocorrelation and optional stopping."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array

ALPHA = 0.05
#: The fewest samples whose order statistics form a 95 % interval: 1 - 2 * (1/2)^6 = 96.9 %, with five only 93.8 %.
MIN_SAMPLES = 6
#: Up to this even number of lags, autocovariances are computed one by one, which is faster than by FFT.
_LAGS = 16
#: With fewer samples no correlation can be estimated.
_CORRELATED = 16


class Interval(msgspec.Struct, frozen=True):
    """A median with its interval; low and high are NaN if the samples are too few or scatter too much."""

    median: float
    low: float
    high: float

    @property
    def relative_width(self) -> float:
        """Return the full width over the median; infinite without an interval."""
        width = (self.high - self.low) / self.median if self.median else math.inf
        return width if math.isfinite(width) else math.inf


def median_interval(samples: Sequence[float], alpha: float = ALPHA) -> Interval:
    """Return the sample median, and two order statistics that enclose the true median with probability 1 - alpha.

    This inverts the sign test: the number of samples below the true median is distributed like heads in n coin tosses.
    Correlated samples count as fewer tosses, n / tau with tau the integrated autocorrelation time of the signs, so the
    spread of the count grows by sqrt(tau). If too few tosses remain, the interval is the whole range of the samples.
    """
    n = len(samples)
    ordered = sorted(samples) if n < _CORRELATED else np.sort(np.asarray(samples, dtype=np.float64))
    median = _middle(ordered)
    if n < MIN_SAMPLES:
        return Interval(median, math.nan, math.nan)
    tau = correlation_time(np.asarray(samples, dtype=np.float64), median)
    rank = _lower_rank(n, tau, alpha)
    return Interval(median, float(ordered[rank]), float(ordered[n - 1 - rank]))


def _middle(ordered: Sequence[float] | Array) -> float:
    """Return the median of sorted values. A report computes 100,000 medians; this is 20 times as fast as np.median."""
    half, odd = divmod(len(ordered), 2)
    if not len(ordered):
        return math.nan
    return float(ordered[half]) if odd else (float(ordered[half - 1]) + float(ordered[half])) / 2


def _lower_rank(n: int, tau: float, alpha: float) -> int:
    """Return the zero-based rank of the interval's lower end; 0, the lowest, if no higher rank reaches 1 - alpha."""
    if 2 * 0.5 ** (n / tau) > alpha:
        return 0
    if tau == 1 and n <= 40:
        return _binomial_rank(n, alpha)
    z = NormalDist().inv_cdf(1 - alpha / 2)
    return max(0, math.floor(n / 2 - z * math.sqrt(n * tau) / 2 - 0.5))


@lru_cache
def _binomial_rank(n: int, alpha: float) -> int:
    """Return the largest r with P(Binomial(n, 1/2) <= r) <= alpha / 2, which exists if 2 * (1/2)^n <= alpha."""
    tail, rank = 0.5**n, 0
    while (more := tail + math.comb(n, rank + 1) * 0.5**n) <= alpha / 2:
        tail, rank = more, rank + 1
    return rank


def correlation_time(values: Array, median: float) -> float:
    """Return the integrated autocorrelation time of the signs about the median, at least 1.

    Geyer's initial positive sequence (Statistical Science 7, 1992): sums of neighbouring autocorrelations are added
    while they stay positive. With fewer than 16 samples no estimate is possible, and the result is 1.
    """
    n = len(values)
    if n < _CORRELATED:
        return 1.0
    signs = np.sign(values - median)
    signs -= signs.mean()
    variance = float(signs @ signs)
    if variance <= 0:
        return 1.0
    total = 0.0
    for pair in _pairs(signs):
        if pair <= 0:
            break
        total += pair / variance
    return max(1.0, 2 * total - 1)


def _pairs(signs: Array) -> Iterator[float]:
    """Yield sums of neighbouring autocovariances up to half the length; most series need only the first two."""
    n = len(signs)
    lags = n // 2 // 2 * 2
    for lag in range(0, min(lags, _LAGS), 2):
        yield float(signs[: n - lag] @ signs[lag:] + signs[: n - lag - 1] @ signs[lag + 1 :])
    if lags > _LAGS:
        spectrum = np.fft.rfft(signs, 2 * n)
        covariance = np.fft.irfft(spectrum * np.conj(spectrum))[_LAGS:lags]
        yield from covariance.reshape(-1, 2).sum(axis=1).tolist()


class Looks:
    """The schedule by which the interval is examined ("looks"), and the error probability allotted to each look.

    If sampling stops as soon as the interval is narrow, the median lies in it in less than 95 % of runs. So looks are
    spaced geometrically, and the j-th gets alpha / (j (j + 1)), which sums to at most alpha for any number of looks.
    """

    def __init__(self) -> None:
        self._next, self._count = 8, 0

    def due(self, n: int) -> bool:
        """Return whether the interval should be examined after n samples; if so, count this look."""
        if n < self._next:
            return False
        self._next = math.ceil(max(self._next, n) * 1.5)
        self._count += 1
        return True

    @property
    def alpha(self) -> float:
        """Return the error probability of the present look, or ALPHA if time was up before any look."""
        return ALPHA / (self._count * (self._count + 1)) if self._count else ALPHA


def pooled_interval(groups: Sequence[Sequence[float]], alpha: float = ALPHA) -> Interval:
    """Return the median of positive values of several processes, with an interval that holds for the next process.

    Processes differ by more than the samples of one process show, in memory placement, neighbours and time of day. So
    the processes, not the samples, are treated as independent draws: the interval is Student's over the logarithms of
    their medians (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013), set around the median of
    all samples, in which each process weighs the same. One group gives `median_interval`.
    """
    if len(groups) == 1:
        return median_interval(groups[0], alpha)
    from scipy.special import stdtrit

    median = _pooled_median(groups)
    logs = np.log([np.median(group) for group in groups])
    quantile = float(stdtrit(len(groups) - 1, 1 - alpha / 2))  # of Student's t
    half = quantile * float(logs.std(ddof=1)) / math.sqrt(len(groups))
    if half > 700:  # exp of a slightly larger double overflows
        return Interval(median, math.nan, math.nan)
    return Interval(median, median * math.exp(-half), median * math.exp(half))


def _pooled_median(groups: Sequence[Sequence[float]]) -> float:
    """Return the weighted median of all samples, in which every group has the same total weight."""
    values = np.concatenate([np.asarray(group, dtype=np.float64) for group in groups])
    weights = np.concatenate([np.full(len(group), 1 / len(group)) for group in groups])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    at = np.searchsorted(below, below[-1] / 2)
    return float(values[order[min(at, len(order) - 1)]])


def outliers(samples: Sequence[float]) -> int:
    """Return the number of samples more than three interquartile ranges outside the quartiles (Tukey 1977)."""
    ordered = sorted(samples)
    low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = 3 * (high - low)
    return bisect_left(ordered, low - reach) + len(ordered) - bisect_right(ordered, high + reach)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values by linear interpolation, as np.quantile does."""
    at, beyond = divmod(share * (len(ordered) - 1), 1)
    low = ordered[int(at)]
    return low + beyond * (ordered[int(at) + 1] - low) if beyond else low
