"""What the rows say of two devices: the fastest of each against the other, by time, by money and by energy."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from bench.claims.catalog import Comparison
from bench.claims.evidence import Evidence, Row, quotient, seconds, times
from bench.claims.findings import Compare, Finding, label
from bench.claims.prices import Prices
from bench.plan.operation import Problem
from bench.report.standings import Ratio

#: How far a sensor of energy may be off.
SENSOR = 0.05


class Pair(NamedTuple):
    """The fastest rows of two devices on one problem."""

    problem: Problem
    one: Row
    other: Row


def pairs(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Pair]:
    """Of each problem and setting that both devices have a time for."""
    found: dict[Any, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for setting, own in evidence.settings(rows):
        for row in own:
            found[row.problem, setting][row.result.device].append(row)
    for (problem, _), by_device in found.items():
        one, other = (min(by_device.get(side[0], []), key=_time, default=None) for side in (asked.one, asked.other))
        if one and other:
            yield Pair(problem, one, other)


def _time(row: Row) -> float:
    return row.time_s


def devices(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """How many times faster one device is than the other."""
    for pair in pairs(asked, evidence, rows):
        ratio, by = evidence.faster(pair.one, pair.other), f"{pair.one.short} against {pair.other.short}"
        yield Finding(label(asked, pair.problem), ratio, by, pair.problem.flop or 0)


def device_growth(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """Its advantage at each size over that at the next smaller one."""
    for smaller, larger in pairwise(sorted(devices(asked, evidence, rows), key=lambda finding: finding.size)):
        yield Finding(f"{smaller.where} to {larger.where}", quotient(larger.ratio, smaller.ratio))


def rates(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """What one device does in a second over what the other does, by operation, whatever its problem."""
    best: dict[tuple[str, str], Ratio] = {}
    for row in rows:
        work = row.problem.flop or row.problem.traffic_bytes
        key, rate = (row.problem.op, row.result.device), quotient(Ratio(work, work, work), seconds(row.result))
        if key not in best or best[key].median < rate.median:
            best[key] = rate
    for op in dict.fromkeys(op for op, _ in best):
        one, other = best.get((op, asked.one[0])), best.get((op, asked.other[0]))
        if one and other:
            yield Finding(op, quotient(one, other))


def by_price(asked: Comparison, evidence: Evidence, rows: Sequence[Row], prices: Prices) -> Iterator[Finding]:
    """How many times more work one device does for the same money."""
    for pair in pairs(asked, evidence, rows):
        one, other = prices.of(pair.one.result), prices.of(pair.other.result)
        if one and other:
            factor = other.per_hour / one.per_hour
            yield Finding(label(asked, pair.problem), times(evidence.faster(pair.one, pair.other), factor))


def by_energy(asked: Comparison, evidence: Evidence, rows: Sequence[Row], prices: Prices) -> Iterator[Finding]:
    """How many times more work one device does for the same energy."""
    for pair in pairs(asked, evidence, rows):
        one, other = (_energy(row, prices) for row in (pair.one, pair.other))
        if one and other:
            yield Finding(label(asked, pair.problem), quotient(other, one))


def _energy(row: Row, prices: Prices) -> Ratio | None:
    """Joule a call: measured, else the time at the watts that the prices file declares."""
    if energy := row.result.energy_j:
        return Ratio(energy, energy * (1 - SENSOR), energy * (1 + SENSOR))
    device = prices.of(row.result)
    return times(seconds(row.result), device.watts) if device and device.watts else None


COMPARE: dict[str, Compare] = {"devices": devices, "device-growth": device_growth, "rates": rates}
BY_PRICES = {"price": by_price, "energy": by_energy}
