"""Compare ways to aggregate gradients over a link of a given rate, from measured rows and a model of the link.

docs/scaling.md explains the model: the seconds that a link adds to a row's time, and the share of the additions
that each worker does.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kernelmark.bench.claims.findings import ClaimRatio, Question, against, by_problem, fastest
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Ratio, parallel, time_of
from kernelmark.bench.report.format import short
from kernelmark.bench.report.networks import exchanged, total, weights
from kernelmark.bench.report.strategies import STRATEGIES, strategy_name

FLOAT_BYTES = 4
OP = "aggregate"


def linked(q: Question) -> Iterator[ClaimRatio]:
    """Yield, for each network, the aggregation time with strategy `other` over the time with strategy `one`.

    Both times include the time on the link, which comes from a model, not from samples. The ratio's interval is
    therefore computed from the intervals of the two times, even if one job measured both rows in turn.
    """
    for problem, rows in by_problem(q.rows).items():
        w, n = _sizes(q, problem)
        known = [r for r in rows if r.device == q.contrast.device and strategy_name(r.kernel) in STRATEGIES]
        sides = [[r for r in known if matches(r.kernel, globs)] for globs in (q.contrast.one, q.contrast.other)]
        if all(sides):
            (time_s, row), (other_s, other) = (_fastest(q, side, w, n) for side in sides)
            network = next(layer.entry.network for layer in q.evidence.layers if layer.entry.problem.id == problem)
            ratio = other_s.over(time_s)._replace(in_turn=bool(row.job) and row.job == other.job)
            yield ClaimRatio(f"{network}, {w} workers", ratio, (row, other), against(row, other), n)


def network_scaling(q: Question) -> Iterator[ClaimRatio]:
    """Yield, for each network in `other`, its data-parallel speedup over the data-parallel speedup of network `one`."""
    name, speedup = q.contrast.one[0], _speedup(q, q.contrast.one[0])
    for network in q.contrast.other:
        if speedup and (other := _speedup(q, network)):
            where = f"{network} against {name}, {q.contrast.workers} workers: {other.ratio} against {speedup.ratio}"
            yield ClaimRatio(where, other.ratio.over(speedup.ratio), other.rows + speedup.rows, other.by)


def network_speedup(q: Question) -> Iterator[ClaimRatio]:
    """Yield the data-parallel speedup of each network, multiplied by the claim's factor `times`."""
    for network in q.contrast.one:
        if speedup := _speedup(q, network):
            yield speedup._replace(ratio=speedup.ratio.scaled(q.contrast.times))


def _speedup(q: Question, name: str) -> ClaimRatio | None:
    """Return the speedup of a network with the fastest aggregation of its gradients, or None if rows are missing."""
    workers, (forward, chosen) = q.contrast.workers, _layers(q, name)
    batch, n = total(chosen), weights(forward)
    added = [r for r in _added(q) if _sizes(q, r.problem)[1] == n]
    if batch is None or not added:
        return None
    seconds, r = _fastest(q, added, workers, n)
    rows = (r, *(row for _, row in chosen if row))
    return ClaimRatio(f"{name}, {workers} workers", parallel(workers, batch, seconds), rows, short(r.kernel))


def model_parallel(q: Question) -> Iterator[ClaimRatio]:
    """Yield, for each network, the model-parallel speedup with exchange `one` over the speedup with exchange `other`.

    A network is left out if the experiment does not measure its layers. docs/scaling.md explains what is exchanged.
    """
    workers = q.contrast.workers
    sides = [[r for r in _added(q) if matches(r.kernel, globs)] for globs in (q.contrast.one, q.contrast.other)]
    for name in dict.fromkeys(layer.network for layer in q.evidence.layers if layer.entry.part):
        forward, chosen = _layers(q, name)
        batch, n = total(chosen), exchanged(forward)
        if batch and all(sides):
            fastest = [_fastest(q, side, workers, n) for side in sides]
            speedup, other = (parallel(workers, batch.scaled(1 / workers), seconds) for seconds, _ in fastest)
            rows = (*(r for _, r in fastest), *(row for _, row in chosen if row))
            where = f"{name}, {workers} workers: {speedup} against {other}"
            yield ClaimRatio(where, speedup.over(other), rows, against(fastest[0][1], fastest[1][1]))


def _added(q: Question) -> list[Result]:
    return [r for r in q.rows if r.op == OP and r.device == q.contrast.device]


def _layers(q: Question, name: str) -> tuple[list[tuple[int, Problem]], list[tuple[int, Result | None]]]:
    """Return (count, problem) of a network's forward layers, and (count, fastest row) of all its layers."""
    entries = [layer.entry for layer in q.evidence.layers if layer.network == name]
    rows = by_problem(r for r in q.evidence.rows if r.op != OP and r.device == q.contrast.device)
    forward = [(entry.count, entry.problem) for entry in entries if entry.part == "forward"]
    return forward, [(entry.count, fastest(rows.get(entry.problem.id, ()))) for entry in entries]


def _fastest(q: Question, rows: Sequence[Result], workers: int, n: int) -> tuple[Ratio, Result]:
    """Return the shortest time of an aggregation of n elements by this many workers, and its row."""
    return min(((_seconds(q, r, workers, n), r) for r in rows), key=lambda pair: pair[0].median)


def _seconds(q: Question, r: Result, workers: int, n: int) -> Ratio:
    strategy, (w, own_n) = STRATEGIES[strategy_name(r.kernel)], _sizes(q, r.problem)
    link_s = strategy.link_s(workers, FLOAT_BYTES * n, 1e9 * q.contrast.link_gbyte_per_s)
    return time_of(r).scaled(n / own_n * (workers + 1) / (w + 1) * strategy.share(workers)).plus(link_s)


def _sizes(q: Question, problem: str) -> tuple[int, int]:
    known: Any = q.evidence.problems[problem]
    return known.w, known.n


COMPARE = {way.__name__.replace("_", "-"): way for way in (linked, network_scaling, network_speedup, model_parallel)}
