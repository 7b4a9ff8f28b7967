"""A training: from runs to a selector with its regret, on families that were held out or on the rows of other runs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.shards import group_of
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.tune.select import rows
from kernelmark.bench.tune.select.grown import GROWERS
from kernelmark.bench.tune.select.making import made
from kernelmark.bench.tune.select.model import Model
from kernelmark.bench.tune.select.regret import FOLDS, PolicyLosses, Regret, held_out, losses, regret, rules
from kernelmark.bench.tune.select.rows import SELECTED, Times
from kernelmark.bench.tune.select.training import Data, data_of, require_enough, space_of


class Trained(NamedTuple):
    """A selector, and what each way to choose lost on what was held out."""

    model: Model
    lost: list[PolicyLosses]


def train(store: Reader, registry: Registry, runs: Sequence[str], tests: Sequence[str]) -> Trained:
    """Return the selector of some runs; with tests, its regret is that on theirs. Raises UsageError."""
    times = rows.read(store, registry, runs)
    held = _held_out(store, registry, times, tests) if tests else None
    if held is not None:
        times = _without(times, held)
    data = data_of(times, space_of(times.problems)) if times.problems else None
    where = f"run {' and '.join(runs)}"
    if data is None:
        raise UsageError(f"{where}: has the shapes of --test alone; train on others, such as those of train-conv")
    require_enough(where, data)
    trials = {grown: losses(times, held_out(data, grown)) for grown in GROWERS}
    grown = min(trials, key=lambda name: trials[name][0].logs.mean())
    own = trials[grown]
    lost, found = own, regret(store, times, data.families, own, f"families of shapes in {FOLDS} folds")
    if held is not None:
        lost, found = _tested(store, data, held, tests, grown)
    return Trained(made(runs, data, own[0], found, grown), lost)


def _held_out(store: Reader, registry: Registry, times: Times, tests: Sequence[str]) -> Times:
    """Return the times of the test's problems, by the kernels that are trained. Raises UsageError."""
    found = rows.read(store, registry, tests, selected=True)
    if found.setting != times.setting:
        pairs = zip(found.setting._fields, found.setting, times.setting, strict=True)
        name, own, trained = next((name, own, other) for name, own, other in pairs if own != other)
        raise UsageError(f"--test {' '.join(tests)}: its {name} is {own}, that of the training {trained}; test alike")
    selected = f"{times.setting.op}/{SELECTED}"
    kernels = [*times.kernels, *([selected] if selected in found.kernels else [])]
    timed = ~np.isnan(found.only(range(len(found.problems)), times.kernels).means).all(axis=1)
    return found.only(np.flatnonzero(timed).tolist(), kernels)


def _without(times: Times, held: Times) -> Times:
    """Return the times without shapes of the test, whatever their layout, direction or place."""
    groups = {group_of(problem.id) for problem in held.problems}
    kept = [i for i, problem in enumerate(times.problems) if group_of(problem.id) not in groups]
    return times.only(kept, times.kernels)


def _tested(
    store: Reader, data: Data, held: Times, tests: Sequence[str], grown: str
) -> tuple[list[PolicyLosses], Regret]:
    """Return what each way loses on the test, chosen by what the training has."""
    asked = data_of(held.only(range(len(held.problems)), data.times.kernels), data.space)
    orders = {way: rule(data, asked) for way, rule in rules(grown).items()}
    lost = losses(held, orders)
    return lost, regret(store, held, asked.families, lost, f"the rows of {' and '.join(tests)}")
