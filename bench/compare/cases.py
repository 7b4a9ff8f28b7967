"""Compare two runs case by case, and give each case a verdict: same, faster, slower, unclear, regressed or untimed."""

import math
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from kernelmark.bench.plan.status import AGAINST, Status
from kernelmark.bench.record.records import CaseRow
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.anonymity import NAMES
from kernelmark.bench.report.welch import ALPHA, Welch, detectable, holm, welch

SAME, FASTER, SLOWER, UNCLEAR, REGRESSED, UNTIMED = "same", "faster", "slower", "unclear", "regressed", "untimed"
CHUNK = 2000
Pair = tuple[CaseRow, CaseRow]


class Side(NamedTuple):
    """A run in a store."""

    store: Store
    run_id: str

    def cases(self) -> Iterator[CaseRow]:
        return self.store.cases(self.run_id)


class CasePair(NamedTuple):
    """A case that both runs have. ratio: NEW's time over BASE's; a time is the geometric mean of processes' medians."""

    base: CaseRow
    new: CaseRow
    verdict: str
    reason: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan


class Comparison:
    """A comparison of two runs. It reads the rows twice: for p-values, which are corrected jointly, then for verdicts.

    base_only, new_only: the numbers of cases that only one run has; vanished: the `ok` cases of BASE that NEW lacks;
    timed: the number of cases with a time in both runs; alone: the number of timed cases with a single process in BASE
    or NEW; devices: pairs of device names that differ; places: pairs of hosts, and of UUIDs, that differ.
    """

    def __init__(self, base: Side, new: Side, margin: float) -> None:
        self.base, self.new, self.margin = base, new, margin
        self.base_only = self.new_only = self.timed = self.alone = 0
        self.vanished: list[str] = []
        self.devices: set[tuple[str, str]] = set()
        self.places: dict[str, set[tuple[str, str]]] = {name: set() for name in NAMES}
        self._p, self._error, self._freedom = array("d"), array("f"), array("f")
        for pairs, result in self._tested(self._counted()):
            tested, timed = ~np.isnan(result.p), [pair for pair in pairs if is_timed(pair)]
            self._p.frombytes(result.p.tobytes())
            self._error.frombytes(result.error[tested].astype(np.float32).tobytes())
            self._freedom.frombytes(result.freedom[tested].astype(np.float32).tobytes())
            self.timed += len(timed)
            self.alone += sum(processes(pair) < 2 for pair in timed)
            self.devices |= {(a.device_name, b.device_name) for a, b in pairs if a.device_name != b.device_name}
            for name, differing in self.places.items():
                both = ((getattr(a, name), getattr(b, name)) for a, b in pairs)
                differing.update((old, now) for old, now in both if old and now and old != now)
        self.p_holm = holm(np.asarray(self._p))

    def _counted(self) -> Iterator[Pair]:
        for base, new in joined(self.base.cases(), self.new.cases()):
            self.base_only += new is None
            if base is not None and new is None and base.status == Status.OK:
                self.vanished.append(base.case)
            self.new_only += base is None
            if base is not None and new is not None:
                yield base, new

    def _tested(self, pairs: Iterator[Pair]) -> Iterator[tuple[list[Pair], Welch]]:
        """Yield lists of pairs with their test results; one call tests a list, since a call for each pair is slow."""
        while chunk := list(islice(pairs, CHUNK)):
            base, new = ([pair[side].medians if is_timed(pair) else () for pair in chunk] for side in (0, 1))
            yield chunk, welch(base, new)

    @property
    def tested(self) -> int:
        return len(self._error)

    def compared(self) -> Iterator[CasePair]:
        """Yield the cases that both runs have, with their verdicts, in the order of their names."""
        both = ((a, b) for a, b in joined(self.base.cases(), self.new.cases()) if a is not None and b is not None)
        start = 0
        for pairs, tested in self._tested(both):
            p_holm = self.p_holm[start : (start := start + len(pairs))]
            columns = (column.tolist() for column in (tested.ratio, tested.low, tested.high, tested.p, p_holm))
            for pair, numbers in zip(pairs, zip(*columns, strict=True), strict=True):
                _, _, _, p, _ = numbers
                if not is_timed(pair):
                    yield CasePair(*pair, *_status_change(*pair))
                elif math.isnan(p):
                    base, new = (row.time_s_median or math.nan for row in pair)
                    yield CasePair(*pair, UNCLEAR, _untested(pair), new / base)
                else:
                    yield CasePair(*pair, *self._verdict(*numbers), *numbers)

    def _verdict(self, ratio: float, low: float, high: float, p: float, p_holm: float) -> tuple[str, str]:
        if p_holm < ALPHA:
            return (SLOWER if ratio > 1 else FASTER), ""
        if 1 / (1 + self.margin) <= low and high <= 1 + self.margin:
            return SAME, ""
        if p < ALPHA:
            return UNCLEAR, f"significant alone (p {p:.2g}), not after correction for {self.tested} cases"
        return UNCLEAR, f"inconclusive: the difference may be 0, or it may exceed {100 * self.margin:g} %"

    def detectable(self) -> tuple[float, float] | None:
        """Return the smallest difference detectable in the median case, without and with Holm's correction."""
        if not self.tested:
            return None
        error, freedom = np.asarray(self._error), np.asarray(self._freedom)
        middle = np.argsort(detectable(error, freedom))[self.tested // 2]
        case = error[middle : middle + 1].astype(float), freedom[middle : middle + 1].astype(float)
        alone, among = (float(detectable(*case, alpha)[0]) for alpha in (ALPHA, ALPHA / self.tested))
        return alone, among


def joined(base: Iterable[CaseRow], new: Iterable[CaseRow]) -> Iterator[tuple[CaseRow | None, CaseRow | None]]:
    """Yield the two rows of each case, with None if a run lacks the case; both inputs must be sorted by case."""
    left, right = iter(base), iter(new)
    a, b = next(left, None), next(right, None)
    while a is not None or b is not None:
        is_left = a is not None and (b is None or a.case <= b.case)
        is_right = b is not None and (a is None or b.case <= a.case)
        yield (a if is_left else None), (b if is_right else None)
        a, b = (next(left, None) if is_left else a), (next(right, None) if is_right else b)


def is_timed(pair: Pair) -> bool:
    """Return whether both rows have a time."""
    return all(row.status == Status.OK and row.time_s_median is not None for row in pair)


def processes(pair: Pair) -> int:
    """Return the smaller of the two rows' numbers of processes."""
    return min(len(row.medians) for row in pair)


def _untested(pair: Pair) -> str:
    if processes(pair) > 1:
        return "the medians of its processes are not all positive numbers"
    base, new = (len(row.medians) for row in pair)
    return f"processes: {base} in BASE, {new} in NEW; a test needs two in each"


def _status_change(base: CaseRow, new: CaseRow) -> tuple[str, str]:
    if base.status == new.status:
        return UNTIMED, f"{base.status} in both"
    change = f"{base.status} -> {new.status}: {new.reason if new.status != Status.OK else base.reason}"
    return (REGRESSED if base.status == Status.OK and new.status in AGAINST else UNTIMED), change
