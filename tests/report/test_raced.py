"""What follows from a race, on samples that are made: equals keep the default, and a tile 5 % faster is adopted."""

import numpy as np
import pytest

from kernelmark.bench.report.tuning import decide

RACES, PROCESSES, SAMPLES = 20, 5, 40
#: What one process differs from the next by, and one sample from the next, as shares of the time.
BETWEEN, WITHIN = 0.006, 0.02


def race(seed, *times):
    """The samples of contenders that take these times, by process: rounds share what disturbs the machine."""
    rng = np.random.default_rng(seed)
    groups = [[] for _ in times]
    for _ in range(PROCESSES):
        drift = np.exp(rng.normal(0, 0.05, SAMPLES).cumsum() * 0.1)
        for own, time in zip(groups, times, strict=True):
            placed = time * np.exp(rng.normal(0, BETWEEN))
            own.append((placed * drift * np.exp(rng.normal(0, WITHIN, SAMPLES))).tolist())
    return groups


def decided(seed, default, *tiles):
    base, *groups = race(seed, default, *tiles)
    return decide(base, {(number,): own for number, own in enumerate(groups)}, len(groups))


def test_a_tunable_that_does_nothing_leaves_the_default_in_19_of_20_races():
    assert sum(decided(seed, 1.0, 1.0, 1.0, 1.0).best is None for seed in range(RACES)) >= 19


def test_a_tile_5_percent_faster_is_adopted_in_19_of_20_races():
    assert sum(decided(seed, 1.0, 1.0, 0.95, 1.0).best == (1,) for seed in range(RACES)) >= 19


def test_equals_of_the_default_are_named_where_it_stays():
    found = decided(1, 1.0, 1.0, 1.3)
    assert (found.best, found.tied) == (None, [(0,)])
    assert not found.ratios[(0,)].certain
    assert found.ratios[(1,)].high < 1


def test_equals_of_the_best_are_named_and_slower_ones_are_not():
    found = decided(2, 1.0, 0.8, 0.8, 0.95)
    assert found.best in {(0,), (1,)}
    assert set(found.tied) == {(0,), (1,)} - {found.best}


@pytest.mark.parametrize("raced", [1, 3])
def test_the_intervals_are_wider_the_more_tiles_are_raced(raced):
    base, own = race(3, 1.0, 0.9)
    alone, found = (decide(base, {(0,): own}, number).ratios[(0,)] for number in (1, raced))
    assert found.high - found.low >= alone.high - alone.low
    assert (found.high - found.low > alone.high - alone.low) == (raced > 1)


def test_a_tile_that_failed_is_neither_adopted_nor_named():
    assert decide([[1.0] * 12] * 2, {}, 3) == ({}, None, [])
