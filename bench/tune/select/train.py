"""Train a selector on runs, and measure its regret, the cost of its choices on held-out families or on other runs.

The oracle chooses the fastest kernel of each problem from one half of the processes and is timed on the other half, and
vice versa, so that it gains nothing by luck. All other choices are learned from other shapes, and timed on both halves.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.shards import group_of
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.report.contest import faster, time_of
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.tune.select.growers import GROWERS, Formula, TreeNode, orders
from kernelmark.bench.tune.select.model import Model, PolicyScore, Regret, Share, Split, TrainingProblem
from kernelmark.bench.tune.select.training import SELECTED, Data, Times, data_of, read_times, require_enough, single

DRAWS, SEED = 1000, 0


def drawn(families: Array) -> Array:
    """Draw families for a reproducible bootstrap; return how often each draw has each problem (draws x problems)."""
    names, places = np.unique(families, return_inverse=True)
    picks = np.random.default_rng(SEED).integers(0, len(names), (DRAWS, len(names)))
    return np.array([np.bincount(row, minlength=len(names))[places] for row in picks])


def share(logs: Array, draws: Array) -> Share:
    """Return the geometric mean from logarithms, ignoring NaN; if there are several families, also its interval."""
    mean = float(np.exp(np.nanmean(logs)))
    if np.ptp(draws) == 0:  # there is only one family
        return Share(mean, None, None)
    low, high = np.exp(np.nanpercentile(_ratios(logs, np.ones_like(logs), draws), (2.5, 97.5)))
    return Share(mean, float(low), float(high))


def quotient(above: Array, below: Array, draws: Array) -> Share:
    """Return the sum of `above` over the sum of `below`, with an interval."""
    low, high = np.nanpercentile(_ratios(above, below, draws), (2.5, 97.5))
    return Share(float(np.nansum(above) / np.nansum(below)), float(low), float(high))


def _ratios(above: Array, below: Array, draws: Array) -> Array:
    has = ~np.isnan(above)
    drawn_above, drawn_below = (draws[:, has] @ values[has] for values in (above, below))
    return np.where(drawn_below == 0, np.nan, drawn_above / np.where(drawn_below == 0, 1, drawn_below))


FOLDS = 5
SELECTOR, SINGLE, NEAREST, LIBRARY, TIMED = "selected", "best single", "nearest neighbour", "library's own", "as it ran"


class PolicyLosses(NamedTuple):
    """The losses of one way to choose kernels, by problem.

    chosen: the kernel's index, -1 for none. logs: log(its time / the oracle's time); NaN without a time.
    """

    way: str
    chosen: Array
    logs: Array


def folds(families: Array) -> list[Array]:
    """Return the problems of each fold. Whole families, the largest first, go to the fold that is smallest so far."""
    _, places, counts = np.unique(families, return_inverse=True, return_counts=True)
    chosen, sizes = np.zeros_like(counts), np.zeros(FOLDS)
    for family in np.argsort(-counts, kind="stable"):
        chosen[family] = np.argmin(sizes)
        sizes[chosen[family]] += counts[family]
    return [np.flatnonzero(chosen[places] == fold) for fold in range(FOLDS)]


def orders_by_way(known: Data, test: Data, grown: str) -> dict[str, Array]:
    """For each way to choose, learn from `known`, and return the kernels for each problem of `test`, the best first.

    grown: the name in GROWERS of the selector's method. `nearest neighbour` takes the first of equally near problems.
    """
    nearest = [int(np.argmin(known.space.apart(row, known.known))) for row in test.known]
    return {
        SELECTOR: orders(GROWERS[grown](known.space, known.known, known.costs), known.space, test.known),
        SINGLE: np.tile(single(known.times.means, known.costs), (len(test.known), 1)),
        NEAREST: np.argsort(known.costs[nearest], axis=1, kind="stable"),
    }


def part(data: Data, rows: Array) -> Data:
    """Return the data of some problems, with all kernels."""
    times = data.times.only(rows.tolist(), data.times.kernels)
    return Data(times, data.space, data.known[rows], data.costs[rows], data.families[rows])


def held_out(data: Data, grown: str) -> dict[str, Array]:
    """For each way to choose, return the kernels for each problem, the best first, as learned from other families."""
    by_way: dict[str, Array] = {}
    for fold in filter(len, folds(data.families)):
        rest = np.setdiff1d(np.arange(len(data.known)), fold)
        for way, ranked in orders_by_way(part(data, rest), part(data, fold), grown).items():
            by_way.setdefault(way, np.empty(data.costs.shape, dtype=np.intp))[fold] = ranked
    return by_way


def losses(times: Times, orders: dict[str, Array]) -> list[PolicyLosses]:
    """Return the losses of each way to choose, relative to the oracle; kernels without a time are passed over.

    orders: for each way, the order of all kernels of `times` except the selector, if that is the last one.
    """
    means, count = times.means, candidates(times)
    oracle, rows = _oracle(times.logs[:, :, :count]), np.arange(len(means))
    chosen = {way: _first(order, means[:, :count]) for way, order in orders.items()}
    library = next((name for name in times.problems[0].features.libraries if name in times.kernels), "")
    for way, kernel in ((LIBRARY, library), (TIMED, f"{times.setting.op}/{SELECTED}")):
        if kernel in times.kernels:
            column = times.kernels.index(kernel)
            chosen[way] = np.where(np.isnan(means[:, column]), -1, column)
    return [PolicyLosses(w, c, np.where(c < 0, np.nan, means[rows, c]) - oracle) for w, c in chosen.items()]


def candidates(times: Times) -> int:
    """Return the number of kernels that can be chosen: all except the selector, if that is the last one."""
    return len(times.kernels) - times.kernels[-1].endswith(SELECTED)


def _oracle(logs: Array) -> Array:
    """Return the log of the oracle's time on each problem: the mean of two halves, each timing the other's fastest."""
    chosen = np.nanargmin(logs, axis=2)
    rows = np.arange(logs.shape[1])
    return np.asarray((logs[1, rows, chosen[0]] + logs[0, rows, chosen[1]]) / 2)


def _first(order: Array, means: Array) -> Array:
    has = np.take_along_axis(~np.isnan(means), order, axis=1)
    return np.asarray(order[np.arange(len(order)), np.argmax(has, axis=1)])


def regret(store: Reader, times: Times, families: Array, lost: Sequence[PolicyLosses], what: str) -> Regret:
    """Return the score of each way to choose, with intervals over families. what: words for the held-out problems."""
    draws, ids = drawn(families), {problem.id for problem in times.problems}
    logs = {each.way: each.logs for each in lost}
    tree, single_logs = logs[SELECTOR], logs[SINGLE]
    gap = share(single_logs, draws)
    return Regret(
        held_out=what,
        problems=len(families),
        families=len(np.unique(families)),
        processes=times.processes,
        lines=list(_lines(store, times, lost, draws)),
        gap=gap,
        over_single=share(single_logs - tree, draws),
        recovered=quotient(single_logs - tree, single_logs, draws) if gap.mean > 1 else None,
        noise=noise_of(row for (name, _), row in times.rows.items() if name in ids).sentence,
    )


def _lines(store: Reader, times: Times, lost: Sequence[PolicyLosses], draws: Array) -> Iterator[PolicyScore]:
    for way, chosen, logs in lost:
        has = ~np.isnan(logs)
        if not has.any():
            continue
        worst = int(np.nanargmax(logs))
        same = {int(kernel) for kernel in chosen[has]}
        right = [_is_right(store, times, int(i), int(chosen[i])) for i in np.flatnonzero(has)]
        yield PolicyScore(
            way=way,
            kernel=times.kernels[same.pop()] if len(same) == 1 else "",
            problems=int(has.sum()),
            share=share(-logs, draws),
            worst=float(np.exp(-logs[worst])),
            worst_problem=times.problems[worst].id,
            right=sum(right) / len(right),
        )


def _is_right(store: Reader, times: Times, problem: int, kernel: int) -> bool:
    best = int(np.nanargmin(times.means[problem, : candidates(times)]))
    if best == kernel:
        return True
    name = times.problems[problem].id
    row, fastest = (times.rows[name, times.kernels[column]] for column in (kernel, best))
    ends = time_of(row).low, time_of(fastest).high
    if row.job != fastest.job and None not in ends and ends[0] > ends[1]:  # type: ignore[operator]  # neither is None
        return False  # intervals of two jobs that do not overlap
    return not faster(store, fastest, row).certain


def made(runs: Sequence[str], data: Data, lost: PolicyLosses, cost: Regret, grown: str) -> Model:
    """Return the selector trained on the data. It always chooses one kernel if selecting gains too little.

    lost: the losses of selectors that were trained without the problems' families.
    """
    setting, space, kernels = data.times.setting, data.space, data.times.kernels
    best = single(data.times.means, data.costs)
    unsplit = TreeNode(np.arange(len(data.costs)), best)
    root = GROWERS[grown](space, data.known, data.costs) if cost.is_worth_it else unsplit
    formula = root if isinstance(root, Formula) else None
    nodes = _listed(root, space.texts) if isinstance(root, TreeNode) else _by_choice(orders(root, space, data.known))
    ranges = zip(space.inputs, data.known.min(axis=0).tolist(), data.known.max(axis=0).tolist(), strict=False)
    fastest = np.argmin(data.costs, axis=1)
    return Model(
        **{name: getattr(setting, name) for name in setting._fields if name != "host"},
        runs=list(runs),
        kernels=kernels,
        inputs=list(space.inputs),
        words=space.words,
        fixed=space.fixed,
        ranges={name: (low, high) for name, low, high in ranges},
        single="" if formula or len(nodes) > 1 else kernels[int(nodes[0][0].order[0])],
        regret=cost,
        grown=grown,
        tree=[_judged(split, rows, data, lost) if len(rows) else split for split, rows in nodes],
        formula=formula,
        measured=[
            TrainingProblem(problem.id, kernels[int(column)])
            for problem, column in zip(data.times.problems, fastest, strict=True)
        ],
    )


def _listed(root: TreeNode, texts: Sequence[str]) -> list[tuple[Split, Array]]:
    """Return the nodes of a tree, each after its parent, and the problems of each leaf."""
    nodes: list[TreeNode] = [root]
    splits = []
    for node in nodes:
        if node.below is None or node.above is None:
            splits.append((Split(order=node.order.tolist()), node.rows))
        else:
            below = len(nodes)
            nodes += [node.below, node.above]
            split = Split(expression=texts[node.feature], threshold=node.threshold, below=below, above=below + 1)
            splits.append((split, node.rows[:0]))
    return splits


def _by_choice(chosen: Array) -> list[tuple[Split, Array]]:
    """Return a leaf for each kernel that is a first choice, and the problems for which it is the first choice."""
    places = np.argsort(chosen, axis=1)
    groups = [np.flatnonzero(chosen[:, 0] == first) for first in np.unique(chosen[:, 0])]
    return [(Split(order=np.argsort(places[rows].mean(axis=0), kind="stable").tolist()), rows) for rows in groups]


def _judged(leaf: Split, rows: Array, data: Data, lost: PolicyLosses) -> Split:
    logs = lost.logs[rows]
    spread = share(-logs, drawn(data.families[rows]))
    return msgspec.structs.replace(leaf, problems=len(rows), share=spread, worst=float(np.exp(-logs.max())))


class Trained(NamedTuple):
    """A trained selector, and the losses of each way to choose on held-out problems."""

    model: Model
    lost: list[PolicyLosses]


def train(store: Reader, registry: Registry, runs: Sequence[str], tests: Sequence[str]) -> Trained:
    """Train a selector on runs, and measure its regret on held-out families or on `tests`. Raises UsageError."""
    times = read_times(store, registry, runs)
    test_times = _held_out(store, registry, times, tests) if tests else None
    if test_times is not None:  # train without the sizes of the test, in any layout, direction or place
        groups = {group_of(problem.id) for problem in test_times.problems}
        others = [i for i, problem in enumerate(times.problems) if group_of(problem.id) not in groups]
        times = times.only(others, times.kernels)
    where = f"run {' and '.join(runs)}"
    if not times.problems:
        raise UsageError(f"{where}: has only the shapes of --test; train on others, such as those of train-conv")
    data = data_of(times)
    require_enough(where, data)
    trials = {grown: losses(times, held_out(data, grown)) for grown in GROWERS}
    grown = min(trials, key=lambda name: trials[name][0].logs.mean())
    lost = trial = trials[grown]
    if test_times is None:
        cost = regret(store, times, data.families, trial, f"families of shapes in {FOLDS} folds")
    else:
        test = data_of(test_times.only(range(len(test_times.problems)), times.kernels), data.space)
        lost = losses(test_times, orders_by_way(data, test, grown))
        cost = regret(store, test_times, test.families, lost, f"the rows of {' and '.join(tests)}")
    return Trained(made(runs, data, trial[0], cost, grown), lost)


def _held_out(store: Reader, registry: Registry, times: Times, tests: Sequence[str]) -> Times:
    """Return the times, in the runs `tests`, of the kernels in `times` and, if timed, a selector. Raises UsageError."""
    test_times = read_times(store, registry, tests, selected=True)
    if test_times.setting != times.setting:
        pairs = zip(test_times.setting._fields, test_times.setting, times.setting, strict=True)
        name, tested, trained = next((name, tested, other) for name, tested, other in pairs if tested != other)
        raise UsageError(f"--test {' '.join(tests)}: its {name} is {tested}, the training's is {trained}; use the same")
    selected = f"{times.setting.op}/{SELECTED}"
    kernels = [*times.kernels, *([selected] if selected in test_times.kernels else [])]
    timed = ~np.isnan(test_times.only(range(len(test_times.problems)), times.kernels).means).all(axis=1)
    return test_times.only(np.flatnonzero(timed).tolist(), kernels)
