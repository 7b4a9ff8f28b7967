"""Intervals of medians and ratios, against published tables and simulated truth."""

import math

import numpy as np
import pytest

from bench.measure.stats import Looks, correlation_time, median_interval, speedup


def test_six_samples_give_their_range() -> None:
    interval = median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
    assert (interval.median, interval.low, interval.high) == (3.5, 1.0, 6.0)


def test_five_samples_give_no_interval() -> None:
    interval = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert math.isnan(interval.low)
    assert interval.relative_width == math.inf


@pytest.mark.parametrize(
    ("n", "rank"),
    # Conover, Practical Nonparametric Statistics, 3rd ed., table A3, p = 0.5: the r-th smallest and r-th largest of n
    # samples hold the median with at least 95 %.
    [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10), (40, 14)],
)
def test_ranks_are_those_of_the_sign_test(n: int, rank: int) -> None:
    # 1, -1, 2, -2, ... alternates about the median, so no autocorrelation widens the interval.
    values = [float(i // 2 + 1) * (-1) ** i for i in range(n)]
    interval = median_interval(values)
    assert interval.low == sorted(values)[rank - 1]
    assert interval.high == sorted(values)[n - rank]


def test_correlation_time_of_an_autoregression_is_found() -> None:
    # Signs of a Gaussian AR(1) correlate as 2/pi asin(rho^k) (Sheppard, 1899): tau = 1 + 2 sum_k of that.
    rho, n = 0.7, 20_000
    rng = np.random.default_rng(1)
    values = np.zeros(n)
    for i in range(1, n):
        values[i] = rho * values[i - 1] + rng.normal()
    expected = 1 + 2 * sum(2 / math.pi * math.asin(rho**k) for k in range(1, 60))
    assert correlation_time(values) == pytest.approx(expected, rel=0.15)


def test_independent_samples_have_correlation_time_near_one() -> None:
    assert correlation_time(np.random.default_rng(2).normal(size=5000)) < 1.3


def _bursts(rng: np.random.Generator, n: int) -> np.ndarray:
    """A machine that is 5 % slower in bursts of ten samples on average, a fifth of the time."""
    state, slow = np.zeros(n), False
    for i in range(n):
        slow = rng.random() < (0.9 if slow else 0.025)
        state[i] = slow
    return 1 + 0.02 * rng.random(n) + 0.05 * state


@pytest.mark.parametrize("kind", ["independent", "skewed", "autocorrelated", "bursts"])
def test_interval_keeps_its_coverage_when_it_stops_the_run(kind: str) -> None:
    rng = np.random.default_rng(3)
    truth = {"skewed": 1 + 0.03 * math.log(2), "bursts": float(np.median(_bursts(rng, 300_000)))}.get(kind, 1.0)
    hits, runs = 0, 200
    for _ in range(runs):
        samples = _draw(kind, rng, 500)
        looks = Looks()
        for n in range(6, len(samples) + 1):
            if looks.due(n) and median_interval(samples[:n], looks.alpha).relative_width < 0.02:
                break
        interval = median_interval(samples[:n], looks.alpha)
        hits += interval.low <= truth <= interval.high
    assert hits / runs >= 0.92


def _draw(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    if kind == "bursts":
        return _bursts(rng, n)
    if kind == "skewed":
        return 1 + 0.03 * rng.exponential(size=n)
    noise = rng.normal(size=n)
    if kind == "autocorrelated":
        for i in range(1, n):
            noise[i] = 0.8 * noise[i - 1] + 0.6 * noise[i]
    return 1 + 0.03 * noise


def test_looks_spend_no_more_than_five_per_cent_in_all() -> None:
    looks, spent = Looks(), 0.0
    for n in range(1, 100_000):
        if looks.due(n):
            spent += looks.alpha
    assert 0.03 < spent < 0.05


def test_speedup_of_drifting_contenders_is_exact_by_quads() -> None:
    # Both slow down linearly and take turns forward and backward: kernel twice as fast as the baseline throughout.
    clock = 0.0
    base, own = [], []
    for turn in range(40):
        for name in ("base", "own") if turn % 2 == 0 else ("own", "base"):
            clock += 1
            (base if name == "base" else own).append((2.0 if name == "base" else 1.0) * (1 + 0.001 * clock))
    ratio = speedup([base], [own])
    assert ratio is not None
    assert ratio.method == "abba-quads"
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((2, 2, 2), rel=1e-5)


def test_speedup_uses_only_rounds_that_both_have() -> None:
    ratio = speedup([[2.0] * 6], [[1.0] * 6 + [100.0] * 50])
    assert ratio is not None
    assert (ratio.median, ratio.method) == (2.0, "rounds")


def test_speedup_needs_six_rounds() -> None:
    assert speedup([[1.0] * 5], [[1.0] * 5]) is None
