"""Comparisons of ways to aggregate gradients over a link that is stated: computed from measured rows, not measured.

What is added to the time of a row, and which part of it one worker has, is the model of docs/scaling.md.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kernelmark.bench.claims.catalog import Contrast
from kernelmark.bench.claims.evidence import ExperimentRows, Layered
from kernelmark.bench.claims.findings import ClaimRatio, Compare, against, by_problem, fastest
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import Ratio, parallel, time_of
from kernelmark.bench.report.format import short
from kernelmark.bench.report.networks import exchanged, total, weights
from kernelmark.bench.report.strategies import STRATEGIES, strategy_name

FLOAT_BYTES = 4
OP = "aggregate"


def linked(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield the seconds of one way over those of another, additions and link, network by network.

    The interval holds both times', also where they were measured in turn: what the link adds is not measured.
    """
    for problem, own in by_problem(rows).items():
        w, n = _sizes(evidence, problem)
        known = [r for r in own if r.device == asked.device and strategy_name(r.kernel) in STRATEGIES]
        sides = [[r for r in known if matches(r.kernel, globs)] for globs in (asked.one, asked.other)]
        if all(sides):
            found = [min(((_seconds(asked, r, w, w, n), r) for r in side), key=_median) for side in sides]
            (own_s, one), (other_s, other) = found
            network = next(layer.entry.network for layer in evidence.layers if layer.entry.problem.id == problem)
            where = f"{network}, {w} workers"
            ratio = other_s.over(own_s)._replace(in_turn=bool(one.job) and one.job == other.job)
            yield ClaimRatio(where, ratio, (one, other), against(one, other), n)


def network_scaling(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield the speedup of other networks by data parallelism over that of `one`."""
    one = _speedup(asked, evidence, rows, asked.one[0])
    for network in asked.other:
        if one and (other := _speedup(asked, evidence, rows, network)):
            where = f"{network} against {asked.one[0]}, {asked.workers} workers: {other.ratio} against {one.ratio}"
            yield ClaimRatio(where, other.ratio.over(one.ratio), other.rows + one.rows, other.by)


def network_speedup(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield the speedup of each network by data parallelism, times what the claim multiplies it by."""
    for network in asked.one:
        if found := _speedup(asked, evidence, rows, network):
            yield found._replace(ratio=found.ratio.scaled(asked.times))


def _speedup(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result], name: str) -> ClaimRatio | None:
    """Return the speedup of a network by the fastest aggregation of its gradients; None where rows are missing."""
    layers, chosen = _layers(asked, evidence, name)
    batch = total(chosen)
    n = weights((entry.count, entry.problem) for entry in (layer.entry for layer in layers) if entry.part == "forward")
    added = [r for r in rows if r.op == OP and r.device == asked.device and _sizes(evidence, r.problem)[1] == n]
    if batch is None or not added:
        return None
    found = [(_seconds(asked, r, asked.workers, _sizes(evidence, r.problem)[0], n), r) for r in added]
    aggregation, r = min(found, key=_median)
    ratio = parallel(asked.workers, batch, aggregation, False)
    layer_rows = tuple(row for _, row in chosen if row)
    return ClaimRatio(f"{name}, {asked.workers} workers", ratio, (r, *layer_rows), short(r.kernel))


def model_parallel(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield the speedup of a network by model parallelism with some ways of exchange over that with others.

    Networks are those of the experiment that have layers; what they exchange is the model of docs/scaling.md.
    """
    added = [r for r in rows if r.op == OP and r.device == asked.device]
    sides = [[r for r in added if matches(r.kernel, globs)] for globs in (asked.one, asked.other)]
    for name in dict.fromkeys(layer.network for layer in evidence.layers if layer.entry.part):
        layers, chosen = _layers(asked, evidence, name)
        batch = total(chosen)
        n = exchanged((layer.entry.count, layer.entry.problem) for layer in layers if layer.entry.part == "forward")
        if batch and all(sides):
            compute = batch.scaled(1 / asked.workers)
            found = [min(((_seconds_of(asked, evidence, r, n), r) for r in side), key=_median) for side in sides]
            own, other = (parallel(asked.workers, compute, seconds) for seconds, _ in found)
            where = f"{name}, {asked.workers} workers: {own} against {other}"
            rows_of_all = (*(r for _, r in found), *(row for _, row in chosen if row))
            yield ClaimRatio(where, own.over(other), rows_of_all, against(found[0][1], found[1][1]))


def _layers(
    asked: Contrast, evidence: ExperimentRows, name: str
) -> tuple[list[Layered], list[tuple[int, Result | None]]]:
    """Return the layers of a network, and how often it has each, with the fastest row on the claim's device."""
    layers = [layer for layer in evidence.layers if layer.network == name]
    own = by_problem(r for r in evidence.rows if r.op != OP and r.device == asked.device)
    return layers, [(layer.entry.count, fastest(own.get(layer.entry.problem.id, ()))) for layer in layers]


def _seconds(asked: Contrast, r: Result, workers: int, w: int, n: int, scaled: float = 1.0) -> Ratio:
    """Return the seconds of an aggregation by that many workers, from a row of w gradients of n elements.

    scaled: n over the elements of the row.
    """
    strategy = STRATEGIES[strategy_name(r.kernel)]
    scaled *= (workers + 1) / (w + 1) * strategy.share(workers)
    link_s = strategy.link_s(workers, FLOAT_BYTES * n, 1e9 * asked.link_gbyte_per_s)
    return time_of(r).scaled(scaled).plus(link_s)


def _seconds_of(asked: Contrast, evidence: ExperimentRows, r: Result, n: int) -> Ratio:
    w, own_n = _sizes(evidence, r.problem)
    return _seconds(asked, r, asked.workers, w, n, n / own_n)


def _median(found: tuple[Ratio, Result]) -> float:
    return found[0].median


def _sizes(evidence: ExperimentRows, problem: str) -> tuple[int, int]:
    asked: Any = evidence.problems[problem]
    return asked.w, asked.n


COMPARE: dict[str, Compare] = {
    "linked": linked,
    "network-scaling": network_scaling,
    "network-speedup": network_speedup,
    "model-parallel": model_parallel,
}
