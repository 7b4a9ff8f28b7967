"""Pairs of siblings in two runs: how a kernel's ratio between two layouts or directions, taken in turn, has changed."""

from collections.abc import Iterator
from typing import NamedTuple

from kernelmark.bench.compare.cases import Side
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import Ratio, faster

#: Pairs that are read: each costs four queries for its samples.
MOST_PAIRS = 200


class Siblings(NamedTuple):
    """A kernel on two problems of one job: how many times faster it is on `one` than on `other`, in each run."""

    one: Result
    other: Result
    base: Ratio
    new: Ratio

    @property
    def change(self) -> Ratio:
        """Return the ratio in NEW over the one in BASE; what slowed both siblings of a run is not in it."""
        return self.new.over(self.base)


def siblings(base: Side, new: Side) -> Iterator[Siblings]:
    """Yield the pairs that both runs have measured in turn, each in one job, in the order of NEW."""
    known = set(base.store.sibling_cases(base.run_id, MOST_PAIRS))
    for pair in new.store.sibling_cases(new.run_id, MOST_PAIRS):
        if pair in known:
            before, now = ([side.store.result(side.run_id, case)[0] for case in pair] for side in (base, new))
            ratios = [faster(side.store, other, first) for side, (first, other) in ((base, before), (new, now))]
            yield Siblings(now[1], now[0], *ratios)
