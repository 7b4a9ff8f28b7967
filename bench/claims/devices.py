"""Comparisons of two devices: the fastest of each against the other, by time, by money and by energy."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import msgspec

from kernelmark.bench.claims.catalog import Contrast
from kernelmark.bench.claims.evidence import ExperimentRows
from kernelmark.bench.claims.findings import ClaimRatio, Compare, against, fastest, label, threads
from kernelmark.bench.claims.prices import Prices
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import Ratio, comparable, time_of

#: How far a sensor of energy may be off.
SENSOR = 0.05


class Pair(NamedTuple):
    """The fastest rows of two devices on one problem."""

    problem: Problem
    one: Result
    other: Result


def pairs(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[Pair]:
    """Pair the fastest rows of both devices, on each problem, mode and precision that both have a time for."""
    found: dict[Any, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for r in rows:
        found[r.problem, r.mode, r.isa, comparable(r)][r.device].append(r)
    for (problem, *_), by_device in found.items():
        one, other = (fastest(by_device.get(side[0], [])) for side in (asked.one, asked.other))
        if one and other:
            yield Pair(evidence.problems[problem], one, other)


def devices(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield how many times faster one device is than the other."""
    for pair in pairs(asked, evidence, rows):
        ratio = evidence.faster(pair.one, pair.other)
        yield _finding(asked, pair, ratio)


def _finding(asked: Contrast, pair: Pair, ratio: Ratio) -> ClaimRatio:
    rows = pair.one, pair.other
    return ClaimRatio(label(asked, pair.problem), ratio, rows, against(*rows), pair.problem.flop or 0)


def device_growth(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield the advantage of a device at each size over that at the next smaller one."""
    for smaller, larger in pairwise(sorted(devices(asked, evidence, rows), key=lambda finding: finding.size)):
        where = f"{smaller.where} to {larger.where}"
        yield ClaimRatio(where, larger.ratio.over(smaller.ratio), larger.rows + smaller.rows)


def rates(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield what one device does in a second over what the other does, by operation, whatever its problem."""
    best: dict[tuple[str, str], tuple[Ratio, Result]] = {}
    for r in rows:
        problem = evidence.problems[r.problem]
        work = problem.flop or problem.traffic_bytes
        key, rate = (r.op, r.device), Ratio(work, work, work).over(time_of(r))
        if key not in best or best[key][0].median < rate.median:
            best[key] = rate, r
    for op in dict.fromkeys(op for op, _ in best):
        one, other = best.get((op, asked.one[0])), best.get((op, asked.other[0]))
        if one and other:
            yield ClaimRatio(op, one[0].over(other[0]), (one[1], other[1]))


def by_price(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result], prices: Prices) -> Iterator[ClaimRatio]:
    """Yield how many times more work one device does for the same money."""
    for pair in pairs(asked, evidence, rows):
        one, other = prices.of(pair.one), prices.of(pair.other)
        if one and other:
            ratio = evidence.faster(pair.one, pair.other).scaled(other.per_hour / one.per_hour)
            yield _finding(asked, pair, ratio)


def by_other_price(
    asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result], prices: Prices
) -> Iterator[ClaimRatio]:
    """Yield how many times more work one device does for the same money, the other at its price on other terms."""
    for pair in pairs(asked, evidence, rows):
        one, other = prices.of(pair.one), prices.of(pair.other)
        if one and other and other.otherwise_per_hour:
            ratio = evidence.faster(pair.one, pair.other).scaled(other.otherwise_per_hour / one.per_hour)
            yield _finding(asked, pair, ratio)


def by_energy(
    asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result], prices: Prices
) -> Iterator[ClaimRatio]:
    """Yield how many times more work one device does for the same energy."""
    for pair in pairs(asked, evidence, rows):
        one, other = (_energy(r, prices) for r in (pair.one, pair.other))
        if one and other:
            yield _finding(asked, pair, other.over(one))


def by_vcpus(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result], prices: Prices) -> Iterator[ClaimRatio]:
    """Yield how many times more work a number of threads does for the same money, one virtual CPU a thread."""
    for one, other in product(asked.one, asked.other):
        paid = [prices.of_vcpus(int(count)) for count in (other, one)]
        for found in threads(msgspec.structs.replace(asked, one=(one,), other=(other,)), evidence, rows):
            if paid[0] and paid[1]:
                yield found._replace(ratio=found.ratio.scaled(paid[0].per_hour / paid[1].per_hour))


def _energy(r: Result, prices: Prices) -> Ratio | None:
    """Return the joules of a call: measured, else the time at the watts that the prices file declares."""
    if energy := r.energy_j:
        return Ratio(energy, energy * (1 - SENSOR), energy * (1 + SENSOR))
    watts = prices.watts(r)
    return time_of(r).scaled(watts) if watts else None


COMPARE: dict[str, Compare] = {"devices": devices, "device-growth": device_growth, "rates": rates}
BY_PRICES = {"price": by_price, "energy": by_energy, "thread-price": by_vcpus, "other-price": by_other_price}
