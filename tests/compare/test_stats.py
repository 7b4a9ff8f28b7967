"""Welch's test on process medians, Holm's correction, and the difference that can be found."""

import math

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_ind

from kernelmark.bench.compare.stats import detectable, holm, welch

ODD, FEW = [1.01e-3, 0.98e-3, 1.03e-3, 1.00e-3], [1.10e-3, 1.04e-3]


@pytest.mark.parametrize(("base", "new"), [(ODD, FEW), (FEW, ODD), (ODD, ODD[::-1]), (FEW, FEW)])
def test_it_is_scipys_welch_on_the_logarithms(base, new):
    ours, theirs = welch([base], [new]), ttest_ind(np.log(new), np.log(base), equal_var=False)
    low, high = theirs.confidence_interval(0.95)
    assert ours.ratio[0] == pytest.approx(np.exp(np.mean(np.log(new)) - np.mean(np.log(base))))
    assert ours.p[0] == pytest.approx(theirs.pvalue)
    assert ours.freedom[0] == pytest.approx(theirs.df)
    assert (ours.low[0], ours.high[0]) == pytest.approx((math.exp(low), math.exp(high)))


def test_cases_with_unlike_numbers_of_processes_are_tested_side_by_side():
    together, alone = welch([ODD, FEW, ODD], [FEW, ODD, ODD]), welch([FEW], [ODD])
    assert [column[1] for column in together] == [column[0] for column in alone]


@pytest.mark.parametrize("bad", [[], [1e-3], [1e-3, math.nan], [1e-3, 0.0], [1e-3, -1e-3], [1e-3, math.inf]])
def test_what_is_no_sample_of_positive_medians_has_no_p_value(bad):
    found = welch([bad, ODD, ODD], [ODD, bad, ODD])
    assert np.isnan(found.p).tolist() == [True, True, False]
    assert np.isnan(found.low).tolist() == [True, True, False]


def test_one_process_on_each_side_that_agree_are_no_evidence():
    assert math.isnan(welch([[1e-3]], [[1e-3]]).p[0])


def test_medians_without_any_scatter_are_equal_or_certainly_not():
    found = welch([[1e-3] * 3] * 2, [[1e-3] * 3, [2e-3] * 3])
    assert found.p.tolist() == pytest.approx([1, 0], abs=1e-12)
    assert found.low.tolist() == pytest.approx([1, 2])
    assert found.high.tolist() == pytest.approx([1, 2])


@pytest.mark.parametrize("time_s", [1e-3, 1 / 3, 7e-7])
def test_equal_medians_of_unlike_numbers_of_processes_do_not_differ_by_rounding(time_s):
    found = welch([[time_s] * n for n in range(2, 12)], [[time_s] * 7] * 10)
    assert found.p.tolist() == [1] * 10


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, and 1 x 0.04, which must not fall below the one before.
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_is_capped_at_one_and_leaves_out_what_was_not_tested():
    adjusted = holm(np.array([0.6, math.nan, 0.02, 0.7]))
    assert adjusted[[0, 2, 3]].tolist() == pytest.approx([1, 0.06, 1])
    assert math.isnan(adjusted[1])
    assert holm(np.array([])).tolist() == []


def test_the_detectable_difference_is_found_in_four_of_five_tries():
    rng = np.random.default_rng(0)
    error = 0.02 * math.sqrt(2 / 5)
    change = float(detectable(np.array([error]), np.array([8.0]))[0])
    assert math.log1p(change) == pytest.approx((student.ppf(0.975, 8) + student.ppf(0.8, 8)) * error)
    base, new = (np.exp(rng.normal(0, 0.02, (2000, 5))) for _ in range(2))
    found = welch(base, new * (1 + change)).p < 0.05
    assert 0.77 < found.mean() < 0.85


def test_equal_runs_raise_a_false_alarm_in_at_most_5_per_cent_of_comparisons():
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(300):
        base, new = (np.exp(rng.normal(0, 0.02, (20, 5))) for _ in range(2))
        alarms += bool((holm(welch(base, new).p) < 0.05).any())
    # At a rate of 5 %, 300 comparisons have more than 24 alarms in 1 % of tries.
    assert alarms <= 24


def test_five_per_cent_slower_is_found_at_a_scatter_of_2_per_cent_between_10_processes():
    rng = np.random.default_rng(2)
    base, new = (np.exp(rng.normal(0, 0.02, (500, 10))) for _ in range(2))
    assert (welch(base, 1.05 * new).p < 0.05).mean() > 0.95
