"""Test whether two runs differ: Welch's test on the logarithms of their processes' medians, for many cases at once.

Processes, not samples, are the independent observations: placement in memory, other load and the time of day make
processes differ by more than the samples of one process do.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from kernelmark.bench.plan.dtypes import Array

ALPHA = 0.05
#: The power of the test at the difference that `detectable` returns.
POWER = 0.8
#: Smaller differences between means of logarithms are rounding errors and count as 0.
_ROUNDING = 1e-12
Groups = Sequence[Sequence[float]]


class Welch(NamedTuple):
    """NEW's time over BASE's for each case, with its 95 % interval, and the two-sided p-value of a ratio of 1.

    error: standard error of the ratio's logarithm; freedom: Welch and Satterthwaite's degrees of freedom. low, high,
    p and error are NaN if a run has only one process, or a median that is not a positive number.
    """

    ratio: Array
    low: Array
    high: Array
    p: Array
    error: Array
    freedom: Array


def welch(base: Groups, new: Groups) -> Welch:
    """Apply Welch's test (Biometrika 34, 1947) to many cases at once.

    base, new: for each case, the medians of its processes in seconds. If a case has no variance in either run, any
    difference is certain.
    """
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        (base_mean, base_error, base_count), (new_mean, new_error, new_count) = _moments(base), _moments(new)
        variance = base_error + new_error
        spread = base_error**2 / (base_count - 1) + new_error**2 / (new_count - 1)
        freedom = np.where(variance > 0, variance**2 / spread, base_count + new_count - 2.0)
        difference, error = new_mean - base_mean, np.sqrt(variance)
        difference = np.where(np.abs(difference) < _ROUNDING, 0, difference)
        # 0 / 0: if all medians of both runs are equal to the last digit, there is no difference.
        t = np.where((difference == 0) & (variance == 0), 0, np.abs(difference) / error)
    half = two_sided(freedom, ALPHA) * error
    low, high = np.exp(difference - half), np.exp(difference + half)
    return Welch(np.exp(difference), low, high, 2 * stdtr(freedom, -t), error, freedom)


def _moments(groups: Groups) -> tuple[Array, Array, Array]:
    counts = np.fromiter(map(len, groups), np.int64, len(groups))
    logs = np.log(np.fromiter(chain.from_iterable(groups), np.float64, counts.sum()))
    group = np.repeat(np.arange(len(groups)), counts)
    mean = np.bincount(group, logs, len(groups)) / counts
    squares = np.bincount(group, (logs - mean[group]) ** 2, len(groups))
    return mean, squares / (counts - 1) / counts, counts


def two_sided(freedom: Array, alpha: float) -> Array:
    """Return the two-sided quantile of Student's t for probability alpha."""
    from scipy.special import stdtrit

    quantile: Array = stdtrit(freedom, 1 - alpha / 2)
    return quantile


def holm(p: Array) -> Array:
    """Adjust the p-values of many tests (Holm, Scandinavian Journal of Statistics 6, 1979); NaN stays NaN.

    The probability of any false alarm among the adjusted values below alpha is at most alpha.
    """
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(factors * p[order]))
    return adjusted


def detectable(error: Array, freedom: Array, alpha: float = ALPHA) -> Array:
    """Return the difference, as a fraction, that is detected with probability `POWER` at this standard error."""
    from scipy.special import stdtrit

    difference: Array = np.expm1((two_sided(freedom, alpha) + stdtrit(freedom, POWER)) * error)
    return difference
