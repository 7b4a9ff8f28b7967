"""Formulas of selectors: planted costs are found again, slopes are followed, and a damaged formula is refused."""

import json
import math

import numpy as np
import pytest

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.tune.select import rows
from kernelmark.bench.tune.select.answer import answer, placed
from kernelmark.bench.tune.select.formula import CAP, fitted
from kernelmark.bench.tune.select.model import as_json, read, space_in
from kernelmark.bench.tune.select.train import train
from kernelmark.bench.tune.select.training import data_of, space_of
from kernelmark.bench.tune.select.tree import MISSING
from support.tuning import FIRST, SECOND, at, convolutions, plant, shapes


def gain(m, n):
    """How many times faster the second kernel is; no expression that a tree compares is constant along the border."""
    return (m * n**0.4 / (200 * 200**0.4)) ** 0.5


def sloped():
    """Two kernels that change places along a slope."""
    return {FIRST: at(), SECOND: lambda m, n, k: 1e-9 * m * n * k / gain(m, n)}


@pytest.fixture
def data(store, registry):
    convolutions(store)
    times = rows.read(store, registry, ["conv"])
    return data_of(times, space_of(times.problems))


def planted_costs(data):
    """Costs below the cap that are quadratic in the logarithms, of each direction with a slope of its own."""
    c, k, direction = (
        data.known[:, [*data.space.inputs, *data.space.words].index(name)] for name in ["c", "k", "direction"]
    )
    first = 0.04 * np.log2(c) + 0.002 * np.log2(c) * np.log2(k) + 0.15 * direction
    second = 0.5 - 0.03 * np.log2(k) * (1 + 0.2 * direction)
    return np.column_stack([first, second])


def test_planted_costs_are_found_for_shapes_that_were_not_measured(data):
    costs = planted_costs(data)
    assert costs.max() < CAP
    known = np.arange(len(costs)) % 4 > 0  # every third problem is of the same direction
    formula = fitted(data.space, data.known[known], costs[known])
    found = formula.costs(data.space, data.known[~known])
    assert np.abs(found - costs[~known]).max() < 0.05
    clear = np.abs(np.diff(costs[~known], axis=1)[:, 0]) > 0.1
    assert clear.sum() > 20
    assert (np.argmin(found, axis=1) == np.argmin(costs[~known], axis=1))[clear].all()


def test_problems_without_a_time_say_nothing_of_a_kernel(data):
    costs = planted_costs(data)
    costs[::2, 0] = MISSING
    never = np.column_stack([costs, np.full(len(costs), MISSING)])
    found = fitted(data.space, data.known, never).costs(data.space, data.known)
    assert np.abs(found[:, 0] - planted_costs(data)[:, 0]).max() < 0.05
    assert found[:, 2] == pytest.approx(np.full(len(found), CAP))


def test_a_border_that_is_a_slope_makes_a_formula(store, registry):
    plant(store, sloped(), noise=0.02)
    model = train(store, registry, ["planted"], ()).model
    assert model.grown == "formula"
    assert model.regret.lines[0].share.mean > 0.995
    space = space_in(model, registry)
    for m, n in ((90, 90), (40, 700), (700, 40), (300, 300), (1000, 90), (50, 100)):
        if abs(math.log(gain(m, n))) > 0.1:
            problem = registry.problem(f"gemm/m{m}n{n}k256/f32/NT")
            _, names = placed(model, space, space.numbers([problem]))
            assert names[0] == (SECOND if gain(m, n) > 1 else FIRST), (m, n)


def test_an_answer_states_what_the_same_choice_has_cost(store, registry):
    plant(store, sloped())
    model = train(store, registry, ["planted"], ()).model
    found = answer(model, registry.problem("gemm/m900n900k256/f32/NT"), registry)
    assert found.kernel == SECOND
    (leaf,) = (leaf for leaf in model.leaves if model.kernels[leaf.order[0]] == SECOND)
    assert (found.problems, found.share, found.worst) == (leaf.problems, leaf.share, leaf.worst)
    assert sum(leaf.problems for leaf in model.leaves) == len(shapes())


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (
            lambda formula: formula["axes"][0].update(expression="__import__('os')"),
            "has a formula of \"__import__('os')\"",
        ),
        (lambda formula: formula["weights"][0].pop(), "has a formula whose coefficients are not 1 x 6 x 2"),
        (lambda formula: formula["weights"][0][0].pop(), "has a formula whose coefficients are not 1 x 6 x 2"),
        (lambda formula: formula["weights"].clear(), "has a formula whose coefficients are not 1 x 6 x 2"),
    ],
)
def test_a_damaged_formula_is_refused(store, registry, tmp_path, damage, complaint):
    plant(store, sloped())
    document = json.loads(as_json(train(store, registry, ["planted"], ()).model))
    damage(document["formula"])
    (tmp_path / "own.json").write_text(json.dumps(document))
    with pytest.raises(UsageError) as refused:
        read(tmp_path / "own.json", registry)
    assert complaint in str(refused.value)
