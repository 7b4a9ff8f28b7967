"""Intervals of medians and ratios, against published tables and simulated truth."""

import math

import numpy as np
import pytest

from kernelmark.bench.measure.ratio import speedup
from kernelmark.bench.measure.stats import Interval, Looks, correlation_time, median_interval, outliers, pooled_interval


def test_six_samples_give_their_range_and_five_no_interval():
    assert median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == Interval(3.5, 1.0, 6.0)
    interval = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert math.isnan(interval.low)
    assert interval.relative_width == math.inf


@pytest.mark.parametrize(
    ("n", "rank"),
    # Conover, Practical Nonparametric Statistics, 3rd ed., table A3, p = 0.5: the median lies between the r-th smallest
    # and the r-th largest of n samples with a probability of at least 95 %.
    [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10), (40, 14)],
)
def test_ranks_are_those_of_the_sign_test(n, rank):
    # 1, -1, 2, -2, ... alternates about the median, so no autocorrelation widens the interval.
    values = [float(i // 2 + 1) * (-1) ** i for i in range(n)]
    interval = median_interval(values)
    assert interval.low == sorted(values)[rank - 1]
    assert interval.high == sorted(values)[n - rank]


def test_correlation_time_of_an_autoregression_is_found():
    # Signs of a Gaussian AR(1) have the autocorrelation r_k = 2/pi asin(rho^k) (Sheppard, 1899): tau = 1 + 2 sum_k r_k.
    rho, n = 0.7, 20_000
    rng = np.random.default_rng(1)
    values = np.zeros(n)
    for i in range(1, n):
        values[i] = rho * values[i - 1] + rng.normal()
    expected = 1 + 2 * sum(2 / math.pi * math.asin(rho**k) for k in range(1, 60))
    assert correlation_time(values, float(np.median(values))) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("n", [64, 400, 401])
def test_correlation_time_sums_pairs_of_lags_until_one_is_not_positive(n):
    steps = np.random.default_rng(n).normal(size=n)
    values = np.convolve(steps, np.ones(40), "same")  # correlated over more lags than are summed one by one
    signs = np.sign(values - np.median(values))
    signs -= signs.mean()
    covariance = [float(sum(signs[i] * signs[i + lag] for i in range(n - lag))) for lag in range(n // 2 // 2 * 2)]
    pairs = [(even + odd) / covariance[0] for even, odd in zip(covariance[::2], covariance[1::2], strict=True)]
    stop = next((i for i, pair in enumerate(pairs) if pair <= 0), len(pairs))
    assert stop > 8
    assert correlation_time(values, float(np.median(values))) == pytest.approx(max(1.0, 2 * sum(pairs[:stop]) - 1))


def _bursts(rng, n):
    """Return times of a machine that is 5 % slower for a fifth of the time, in bursts of ten samples on average."""
    state, slow = np.zeros(n), False
    for i in range(n):
        slow = rng.random() < (0.9 if slow else 0.025)
        state[i] = slow
    return 1 + 0.02 * rng.random(n) + 0.05 * state


@pytest.mark.parametrize("kind", ["independent", "skewed", "autocorrelated", "bursts"])
def test_interval_keeps_its_coverage_when_it_stops_the_run(kind):
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


def _draw(kind, rng, n):
    return _bursts(rng, n) if kind == "bursts" else 1 + 0.03 * _noise(kind, rng, 1, n)[0]


def _noise(kind, rng, count, samples):
    """Return rows of noise: normal, skewed (one-tailed), or autocorrelated."""
    noise = rng.normal(size=(count, samples))
    if kind == "skewed":
        noise = rng.exponential(size=(count, samples))
    if kind == "autocorrelated":
        for i in range(1, samples):
            noise[:, i] = 0.8 * noise[:, i - 1] + 0.6 * noise[:, i]
    return noise


def test_looks_spend_no_more_than_five_per_cent_in_all():
    looks, spent = Looks(), 0.0
    for n in range(1, 100_000):
        if looks.due(n):
            spent += looks.alpha
    assert 0.03 < spent < 0.05


def test_speedup_of_drifting_contenders_is_exact_by_quads():
    # Both slow down linearly and are sampled in ABBA order; the kernel is always twice as fast as the baseline.
    clock = 0.0
    base, contender = [], []
    for turn in range(40):
        for name in ("base", "own") if turn % 2 == 0 else ("own", "base"):
            clock += 1
            (base if name == "base" else contender).append((2.0 if name == "base" else 1.0) * (1 + 0.001 * clock))
    ratio = speedup([base], [contender])
    assert ratio.method == "abba-quads"
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((2, 2, 2), rel=1e-5)


PROCESSES, SAMPLES, RUNS = 5, 100, 300
KINDS = ("normal", "skewed", "autocorrelated", "bursts")


def _processes(kind, rng, count):
    """Return a row of samples for each process; the processes' levels are lognormal with a deviation of 2 %."""
    noise = _noise(kind, rng, count, SAMPLES)
    if kind == "bursts":
        noise = (np.array([_bursts(rng, SAMPLES) for _ in range(count)]) - 1) / 0.01
    return np.exp(0.02 * rng.normal(size=(count, 1))) * (1 + 0.01 * noise)


@pytest.fixture(scope="module", params=KINDS)
def simulated(request):
    """Return the true median, over thousands of processes, and many runs of five processes."""
    rng = np.random.default_rng(KINDS.index(request.param))
    truth = float(np.median(_processes(request.param, rng, 4000)))
    return truth, [_processes(request.param, rng, PROCESSES) for _ in range(RUNS)]


def test_five_processes_cover_the_median_of_all_that_there_could_be_and_one_far_too_seldom(simulated):
    """This is the reason for several processes: one process's samples do not show the variation between processes."""
    truth, runs = simulated
    five, one = map(pooled_interval, runs), (median_interval(run[0]) for run in runs)
    assert np.mean([interval.low <= truth <= interval.high for interval in five]) >= 0.92
    assert np.mean([interval.low <= truth <= interval.high for interval in one]) < 0.8


def test_speedups_of_five_processes_cover_a_ratio_of_noisy_ones(simulated):
    """Both contenders share the process's level; each also has its own, with a deviation of 1 % between processes."""
    _, runs = simulated
    rng, hits = np.random.default_rng(9), []
    for run in runs:
        placed = np.exp(0.01 * rng.normal(size=(2, PROCESSES, 1)))
        base = 2.0 * run * placed[0] * (1 + 0.01 * rng.random(run.shape))
        contender = run * placed[1] * (1 + 0.01 * rng.random(run.shape))
        ratio = speedup(base.tolist(), contender.tolist())
        hits.append(ratio.low <= 2.0 <= ratio.high)
    assert sum(hits) / len(hits) >= 0.92


def test_processes_weigh_the_same_however_many_samples_each_has():
    """The first process has a hundred times the samples, so an unweighted median would be its median."""
    assert pooled_interval([[1.0] * 1000, [2.0] * 10, [3.0] * 10]).median == 2.0


def test_the_interval_between_processes_is_students():
    samples = np.random.default_rng(4).normal(1, 0.01, 50)
    assert pooled_interval([samples]) == median_interval(samples)
    assert pooled_interval([[1.0, 2.0, 3.0]] * 5) == Interval(2.0, 2.0, 2.0)
    scattered = pooled_interval([[1e-3], [10.0]], 0.003)  # the upper end overflows
    assert np.isnan([scattered.low, scattered.high]).all()
    # The medians' logarithms are 0, 1, 2: mean 1, standard deviation 1; t(0.975, 2) = 4.3027 (any table).
    interval = pooled_interval([[1.0], [math.e], [math.e**2]])
    halves = [math.log(interval.high / interval.median), math.log(interval.median / interval.low)]
    assert halves == pytest.approx([4.3027 / math.sqrt(3)] * 2, rel=1e-4)


def test_speedup_over_processes_pairs_samples_within_each():
    """Both contenders get slower from process to process; ratios across processes would vary from 0.5 to 8."""
    base = [[2.0 * scale] * 12 for scale in (1.0, 2.0, 4.0)]
    contender = [[scale] * 12 for scale in (1.0, 2.0, 4.0)]
    ratio = speedup(base, contender)
    assert (ratio.low, ratio.median, ratio.high, ratio.method) == (2.0, 2.0, 2.0, "abba-quads")
    assert ratio.minima == 2.0


def test_only_rounds_that_both_have_count_and_minima_are_those_of_all_processes():
    ratio = speedup([[2.0] * 6], [[1.0] * 6 + [100.0] * 50])
    assert (ratio.median, ratio.method) == (2.0, "rounds")
    assert speedup([[4.0] * 6, [3.0] * 5 + [2.0]], [[1.0] * 6, [0.5] + [1.0] * 5]).minima == 4.0


@pytest.mark.parametrize("rounds", [[5], [12, 5]])
def test_a_process_with_fewer_than_six_rounds_leaves_no_ratio(rounds):
    assert speedup([[1.0] * count for count in rounds], [[1.0] * 12 for _ in rounds]) is None


@pytest.mark.parametrize(
    ("samples", "count"),
    [
        # The quartiles of 1 to 5 are 2 and 4, so outliers are beyond 2 - 3 * 2 = -4 and 4 + 3 * 2 = 10.
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0),
        ([1.0, 2.0, 3.0, 4.0, 10.0], 0),
        ([1.0, 2.0, 3.0, 4.0, 10.1], 1),
        ([-4.1, 2.0, 3.0, 4.0, 10.1], 2),
        ([1.0] * 9 + [1.1], 1),
        ([1.0], 0),
    ],
)
def test_outliers_lie_three_interquartile_ranges_outside(samples, count):
    assert outliers(samples) == count
