"""Comparisons of ways to aggregate gradients over a link that is stated: computed from measured rows, not measured.

What is added to the time of a row, and which part of it one worker has, is the model of docs/scaling.md.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kernelmark.bench.claims.catalog import Comparison
from kernelmark.bench.claims.evidence import Evidence
from kernelmark.bench.claims.findings import Compare, Finding, against, by_problem, fastest
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import Ratio, parallel, time_of
from kernelmark.bench.report.format import short
from kernelmark.bench.report.networks import total, weights
from kernelmark.bench.report.strategies import STRATEGIES, strategy_name

FLOAT_BYTES = 4
OP = "aggregate"


def linked(asked: Comparison, evidence: Evidence, rows: Sequence[Result]) -> Iterator[Finding]:
    """Yield the seconds of one way over those of another, additions and link, network by network.

    The interval holds both times', also where they were measured in turn: what the link adds is not measured.
    """
    for problem, own in by_problem(rows).items():
        w, n = _sizes(evidence, problem)
        known = [r for r in own if strategy_name(r.kernel) in STRATEGIES]
        sides = [[r for r in known if matches(r.kernel, globs)] for globs in (asked.one, asked.other)]
        if all(sides):
            found = [min(((_seconds(asked, r, w, w, n), r) for r in side), key=_median) for side in sides]
            (own_s, one), (other_s, other) = found
            where = f"{_network(evidence, problem)}, {w} workers"
            ratio = other_s.over(own_s)._replace(in_turn=bool(one.job) and one.job == other.job)
            yield Finding(where, ratio, against(one, other), n)


def network_scaling(asked: Comparison, evidence: Evidence, rows: Sequence[Result]) -> Iterator[Finding]:
    """Yield the speedup of other networks by data parallelism over that of `one`; both are names of suites."""
    found: dict[str, tuple[Ratio, str]] = {}
    for network in (*asked.one, *asked.other):
        if speedup := _speedup(asked, evidence, rows, network):
            found[network] = speedup
    one = found.get(asked.one[0])
    for network in asked.other:
        if one and (other := found.get(network)):
            where = f"{network} against {asked.one[0]}, {asked.workers} workers: {other[0]} against {one[0]}"
            yield Finding(where, other[0].over(one[0]), other[1])


def _speedup(asked: Comparison, evidence: Evidence, rows: Sequence[Result], name: str) -> tuple[Ratio, str] | None:
    """Return the speedup of a network, and the kernel that adds its gradients; None where rows are missing."""
    layers = [layer for layer in evidence.layers if layer.suite == name]
    others = by_problem(r for r in evidence.rows if r.op != OP and r.device == "cpu")
    batch = total((layer.entry.count, fastest(others.get(layer.entry.problem.id, ()))) for layer in layers)
    n = weights((entry.count, entry.problem) for entry in (layer.entry for layer in layers) if entry.part == "forward")
    added = [r for r in rows if r.op == OP and r.device == "cpu" and _sizes(evidence, r.problem)[1] == n]
    if batch is None or not added:
        return None
    chosen = min(added, key=lambda r: r.time_s_median or 0.0)
    w, _ = _sizes(evidence, chosen.problem)
    aggregation = _seconds(asked, chosen, asked.workers, w, n)
    return parallel(asked.workers, Ratio(*batch), aggregation, False), short(chosen.kernel)


def _seconds(asked: Comparison, r: Result, workers: int, w: int, n: int) -> Ratio:
    """Return the seconds of an aggregation by that many workers, from a row of w gradients of n elements."""
    strategy = STRATEGIES[strategy_name(r.kernel)]
    scaled = (workers + 1) / (w + 1) * strategy.share(workers)
    link_s = strategy.link_s(workers, FLOAT_BYTES * n, 1e9 * asked.link_gbyte_per_s)
    return time_of(r).scaled(scaled).plus(link_s)


def _median(found: tuple[Ratio, Result]) -> float:
    return found[0].median


def _sizes(evidence: Evidence, problem: str) -> tuple[int, int]:
    """Return the workers and the elements of an aggregation."""
    asked: Any = evidence.problems[problem]
    return asked.w, asked.n


def _network(evidence: Evidence, problem: str) -> str:
    """Return the network that a problem is of."""
    return next(layer.entry.network for layer in evidence.layers if layer.entry.problem.id == problem)


COMPARE: dict[str, Compare] = {"linked": linked, "network-scaling": network_scaling}
