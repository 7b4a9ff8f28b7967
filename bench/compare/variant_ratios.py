"""Compare the ratios of variants, such as NT over NN, between two runs; a slowdown of both variants cancels out."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from kernelmark.bench.compare.cases import Side
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Ratio, faster, is_fair
from kernelmark.bench.report.format import short
from kernelmark.bench.report.layout import TableColumn, table
from kernelmark.bench.report.variants import held_first, variant_names

#: The most pairs of variants that are read, in the order of NEW; each pair costs eight queries.
MOST_PAIRS = 200


class ComparedPair(NamedTuple):
    """A kernel on two variants of a problem. base, new: how many times faster it is on `variant` than on `other`."""

    variant: Result
    other: Result
    base: Ratio
    new: Ratio

    @property
    def change(self) -> Ratio:
        """Return NEW's ratio over BASE's; a slowdown of both variants in a run cancels out."""
        return self.new.over(self.base)


def compared_pairs(base: Side, new: Side) -> Iterator[ComparedPair]:
    """Yield the pairs of variants that both runs measured in turn in one job, in the order of NEW."""
    for pair in new.store.variant_cases(new.run_id, MOST_PAIRS):
        if all(base.store.has(base.run_id, case) for case in pair):
            before, now = ([side.store.result(side.run_id, case)[0] for case in pair] for side in (base, new))
            if before[0].job == before[1].job != "" and all(map(is_fair, (*before, *now))):
                variant, other = held_first(*now)
                was = {r.case: r for r in before}
                base_ratio = faster(base.store, was[variant.case], was[other.case])
                yield ComparedPair(variant, other, base_ratio, faster(new.store, variant, other))


#: The most pairs that are printed.
LISTED = 50
PAIRS = [TableColumn(name) for name in ("variants", "speed in BASE", "speed in NEW", "NEW/BASE", "verdict")]


class ComparedRatio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel's speed on `problem` over its speed on the variant `against`, in each run; ratio: NEW's over BASE's."""

    kernel: str
    problem: str
    against: str
    base_ratio: float
    base_ratio_ci95_low: float | None
    base_ratio_ci95_high: float | None
    new_ratio: float
    new_ratio_ci95_low: float | None
    new_ratio_ci95_high: float | None
    ratio: float
    ratio_ci95_low: float | None
    ratio_ci95_high: float | None


def as_row(pair: ComparedPair) -> ComparedRatio:
    """Return a pair as a row of `compare --json`."""
    numbers = (number for ratio in (pair.base, pair.new, pair.change) for number in ratio[:3])
    return ComparedRatio(pair.variant.kernel, pair.variant.problem, pair.other.problem, *numbers)  # type: ignore[arg-type]


def pairs_table(pairs: Sequence[ComparedPair]) -> str:
    """Return a table of the pairs that have changed the most."""
    shown = sorted(pairs, key=lambda pair: -abs(math.log(pair.change.median)))[:LISTED]
    cells = []
    for pair in shown:
        names, problem = variant_names(pair.variant.problem, pair.other.problem)
        title = f"{' vs '.join(names)} on {problem} by {short(pair.variant.kernel)}"
        cells.append((title, str(pair.base), str(pair.new), str(pair.change), pair.change.side))
    if not cells:
        return ""
    more = f"\n{len(pairs) - LISTED} more compared (of at most {MOST_PAIRS} in NEW)" if len(pairs) > LISTED else ""
    return table(PAIRS, cells, titled=True) + more
