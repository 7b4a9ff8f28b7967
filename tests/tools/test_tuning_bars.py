"""Searches replayed on the recorded spaces, every tile of which was timed."""

from statistics import median

import pytest

from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.space import Space
from missing import needed
from scripts import script

BARS = script("tuning_bars")
TRUTHS = {truth.kernel: truth for truth in BARS.truths()}


@pytest.fixture(params=TRUTHS)
def truth(request):
    return TRUTHS[request.param]


def test_three_spaces_are_recorded():
    assert len(TRUTHS) == 3


def test_a_recorded_space_is_large_and_its_median_is_far_from_its_best(truth):
    assert len(truth.costs) > BARS.LEAST_TILES
    assert min(truth.costs.values()) / median(truth.costs.values()) <= BARS.MOST_MEDIAN
    assert truth.costs[truth.field.default] == 1


def test_a_recorded_space_is_the_one_that_the_kernel_has(registry, truth):
    space = Space(registry.kernels[truth.kernel], registry.problem(truth.problem), H100)
    names = tuple(space.values)
    assert tuple(truth.field.names) == names
    assert {tuple(getattr(tile, name) for name in names) for tile in space.valid()} == set(truth.costs)


def test_random_tiles_find_the_same_again_and_no_more_than_the_best(truth):
    found = [truth.found("random", seed) for seed in range(3)]
    assert found == [truth.found("random", seed) for seed in range(3)]
    assert all(0 < share <= 1 for share in found)


@pytest.mark.long
def test_the_default_strategy_finds_what_is_promised_with_15_percent_of_the_evaluations(truth):
    needed(module_missing("kernel_tuner"))
    promise, found, holds = BARS.replayed(truth)
    assert holds, f"{promise}: {found}"
