"""Which tiles are evaluated: all of a small space, some of a large one, and the same ones for the same seed."""

import random
from itertools import product
from statistics import median

import numpy as np
import pytest

from kernelmark.bench.measure import present
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.options import ALL, BUDGET, GUIDED
from kernelmark.bench.tune import search as searching
from kernelmark.bench.tune.search import Choice, SearchDomain, choose, search
from support.tools import needed

NAMES = ("A", "B", "C", "D")
CONFIGS = list(product((1, 2, 4, 8, 16), (1, 2, 4, 8), (0, 1, 2, 3), (0, 1, 2, 3, 4)))  # 400
FIELD = SearchDomain(NAMES, CONFIGS, (2, 2, 3, 4))
MISSING = module_missing("kernel_tuner")


def cost(config):
    """A valley with walls: the lowest cost is 1, at (8, 4, 1, 2); the median is near 2."""
    a, b, c, d = config
    wall = 0.8 if c == 0 else 0.0
    return 1 + 0.25 * abs(np.log2(a) - 3) + 0.3 * abs(np.log2(b) - 2) + 0.15 * abs(c - 1) + 0.1 * abs(d - 2) + wall


@pytest.fixture
def kernel_tuner():
    needed(MISSING)


@pytest.fixture
def missing(monkeypatch):
    """Kernel Tuner is not installed."""
    reason = "kernel_tuner is not installed; pip install 'kernelmark[tune]'"
    monkeypatch.setattr(searching, "module_missing", lambda module: reason)


def asked(choice, seed=0, cost=cost):
    """The configurations that a search evaluates, in order, in the lists that it asks for."""
    calls = []

    def evaluate(configs):
        calls.append(list(configs))
        return [cost(config) for config in configs]

    search(FIELD, evaluate, choice, seed)
    return calls


def test_up_to_200_tiles_all_are_measured_and_of_more_a_hundred(missing):
    assert choose(ALL, None, None) == Choice("exhaustive", ALL)
    assert choose(ALL + 1, "random", None) == Choice("random", BUDGET)


def test_a_budget_that_reaches_for_all_tiles_measures_all(missing):
    assert choose(500, None, 500) == choose(500, "random", 900) == Choice("exhaustive", 500)
    assert choose(150, "random", 40) == Choice("random", 40)


def test_without_kernel_tuner_the_command_and_two_other_ways_are_named(missing, complaint):
    assert complaint(lambda: choose(201, None, None)) == (
        "--strategy genetic_algorithm: kernel_tuner is not installed; pip install 'kernelmark[tune]', or take "
        "--strategy exhaustive (all 201 tiles) or --strategy random"
    )


def test_the_extra_that_brings_kernel_tuner_is_known():
    assert present.EXTRAS["kernel_tuner"] == "tune"


def test_an_exhaustive_search_evaluates_every_tile_once():
    assert asked(Choice("exhaustive", len(CONFIGS))) == [CONFIGS]


def test_a_random_search_evaluates_different_tiles_as_many_as_the_budget_has():
    (drawn,) = asked(Choice("random", 37))
    assert len(drawn) == len(set(drawn)) == 37
    assert asked(Choice("random", 37)) == [drawn]
    assert asked(Choice("random", 37), seed=1) != [drawn]


@pytest.mark.usefixtures("kernel_tuner")
@pytest.mark.parametrize("strategy", GUIDED)
def test_a_strategy_evaluates_no_tile_twice_and_keeps_to_the_budget(strategy, capsys):
    tiles = [config for configs in asked(Choice(strategy, 60)) for config in configs]
    assert len(tiles) == len(set(tiles)) <= 60
    assert len(tiles) > 40
    assert set(tiles) <= set(CONFIGS)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("kernel_tuner")
def test_a_strategy_asks_for_the_same_tiles_again_and_leaves_shared_generators_alone():
    random.seed(5), np.random.seed(5)
    first = asked(Choice(GUIDED[0], 30), seed=3)
    left = random.random(), np.random.random()
    random.seed(5), np.random.seed(5)
    assert left == (random.random(), np.random.random())
    assert asked(Choice(GUIDED[0], 30), seed=3) == first


@pytest.mark.usefixtures("kernel_tuner")
@pytest.mark.parametrize("strategy", GUIDED)
def test_a_strategy_gets_past_tiles_that_fail_and_ends_where_all_do(strategy):
    tiles = [
        c for configs in asked(Choice(strategy, 60), cost=lambda c: np.inf if c[0] < 4 else cost(c)) for c in configs
    ]
    assert min(map(cost, tiles)) < 1.3
    assert 0 < len(asked(Choice(strategy, 20), cost=lambda config: np.inf)) <= 20


@pytest.mark.usefixtures("kernel_tuner")
@pytest.mark.long
def test_fifteen_percent_of_the_evaluations_find_97_percent_of_the_best_and_more_than_random_ones_do():
    def found(strategy, seed):
        return 1 / min(cost(c) for configs in asked(Choice(strategy, 60), seed) for c in configs)

    guided, drawn = ([found(strategy, seed) for seed in range(20)] for strategy in (GUIDED[0], "random"))
    assert median(guided) >= 0.97
    assert median(guided) > median(drawn)
