"""The speedup of a kernel over a baseline: the ratio of their times, with an interval, from samples taken in turn."""

from collections.abc import Sequence

import msgspec
import numpy as np

from kernelmark.bench.measure.stats import ALPHA, MIN_SAMPLES, pooled_interval
from kernelmark.bench.plan.dtypes import Array


class BaselineRatio(msgspec.Struct, frozen=True):
    """The ratio of the baseline's time to the kernel's, and its interval. minima: the ratio of the fastest samples."""

    median: float
    low: float
    high: float
    method: str
    minima: float | None = None


def speedup(
    baseline: Sequence[Sequence[float]], samples: Sequence[Sequence[float]], alpha: float = ALPHA
) -> BaselineRatio | None:
    """Return a kernel's speedup over the baseline from samples of several processes, or None if there are too few.

    In each process, the i-th samples of kernel and baseline are from the i-th round. Rounds alternate in order (ABBA),
    so the ratio of sums over two neighbouring rounds is free of linear drift. An interval needs six such pairs; with
    fewer than 12 rounds, single rounds are used. The ratio of the fastest, undisturbed samples is a cross-check.
    """
    rounds = min((min(len(b), len(s)) for b, s in zip(baseline, samples, strict=True)), default=0)
    if rounds < MIN_SAMPLES:
        return None
    quads = rounds >= 2 * MIN_SAMPLES
    interval = pooled_interval([_ratios(b, s, quads).tolist() for b, s in zip(baseline, samples, strict=True)], alpha)
    minima = min(min(group) for group in baseline) / min(min(group) for group in samples)
    return BaselineRatio(interval.median, interval.low, interval.high, "abba-quads" if quads else "rounds", minima)


def _ratios(baseline: Sequence[float], samples: Sequence[float], quads: bool) -> Array:
    rounds = min(len(baseline), len(samples))
    base, times = np.asarray(baseline[:rounds]), np.asarray(samples[:rounds])
    if quads:
        even = rounds // 2 * 2
        base, times = base[:even].reshape(-1, 2).sum(axis=1), times[:even].reshape(-1, 2).sum(axis=1)
    ratios: Array = base / times
    return ratios
