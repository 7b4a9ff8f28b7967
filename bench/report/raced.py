"""The race of a tuning, from its rows: which tile is certainly faster than the default, and what that is worth.

The intervals are those of 99 %, widened by Bonferroni's correction, so that those of all tiles of a race hold together.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import Generic, NamedTuple, TypeVar

from kernelmark.bench.measure.stats import ALPHA
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.tuned import SearchSpace, Tunes
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import Ratio, paired
from kernelmark.bench.report.format import count, factor, percent, rate, yes_or_no
from kernelmark.bench.report.layout import TableColumn, table
from kernelmark.bench.report.noise import marked
from kernelmark.bench.report.run_data import RunData

#: The samples of each process.
Groups = Sequence[Sequence[float]]
Name = TypeVar("Name", bound=Hashable)
#: How often a race may err. An adopted tile stays in use for months, so less is risked than in a table.
RISK = ALPHA / 5
DEFAULT = "the default"
SUITE = (
    TableColumn("problem"),
    TableColumn(DEFAULT, "right"),
    TableColumn("best tile"),
    TableColumn("its speed", "right"),
    TableColumn("adopted"),
    TableColumn("one for all", "right"),
    TableColumn("regret", "right"),
)


class Decision(NamedTuple, Generic[Name]):
    """What follows from the samples of a race.

    ratios: how many times faster than the default each tile is. best: the tile to adopt, if one is certainly faster.
    tied: those that cannot be distinguished from the best, or from the default where it stays.
    """

    ratios: dict[Name, Ratio]
    best: Name | None
    tied: list[Name]


class Raced(NamedTuple):
    """The outcome of a race on one problem: the rows of the default and of the tiles, by tile, and what follows."""

    tunes: Tunes
    space: SearchSpace
    default: Result
    rows: Mapping[str, Result]
    decision: Decision[str]

    @property
    def overall(self) -> float:
        """Return the speed of the one tile for all, relative to the default."""
        return self._speeds.get(self.tunes.overall, 1.0)

    @property
    def fastest(self) -> float:
        """Return the speed of the fastest, relative to the default."""
        return max(self._speeds.values())

    @property
    def regret(self) -> float:
        """Return by how much the one tile for all is slower than the fastest."""
        return self.fastest / self.overall - 1

    @property
    def leader(self) -> str | None:
        """Return the tile to adopt, or else the one with the highest ratio, however uncertain it is."""
        ratios = self.decision.ratios
        return self.decision.best or max(ratios, key=lambda tile: ratios[tile].median, default=None)

    @property
    def _speeds(self) -> dict[str, float]:
        ratios = {tile: ratio.median for tile, ratio in self.decision.ratios.items()}
        return {**ratios, self.space.default: 1.0}


def decide(default: Groups, tiles: Mapping[Name, Groups], raced: int) -> Decision[Name]:
    """Return what the samples of the default and of tiles, by process, amount to; raced: how many tiles there were."""
    ratios = _ratios(default, tiles, raced)
    faster = [name for name, ratio in ratios.items() if ratio.certain and ratio.median > 1]
    best = max(faster, key=lambda name: ratios[name].median, default=None)
    others = {name: groups for name, groups in tiles.items() if name != best}
    close = ratios if best is None else _ratios(tiles[best], others, raced)
    return Decision(ratios, best, [name for name, ratio in close.items() if not ratio.certain])


def _ratios(base: Groups, tiles: Mapping[Name, Groups], raced: int) -> dict[Name, Ratio]:
    """Return how many times faster than the base each tile is; all these intervals are right in 99 % of the races."""
    found = {name: paired(base, own, RISK / raced) for name, own in tiles.items()}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def races(data: RunData | None) -> list[Raced]:
    """Return the outcome on each problem whose default has a result, in the order of the spaces."""
    if data is None or data.tunes is None:
        return []
    by_problem: dict[str, dict[str, Result]] = {}
    for row in data.rows:
        kernel, _, tile = row.kernel.partition("@")
        if kernel == data.tunes.kernel:
            by_problem.setdefault(row.problem, {})[tile] = row
    known = ((space, by_problem.get(space.problem, {})) for space in data.tunes.spaces)
    return [_raced(data, space, rows) for space, rows in known if "" in rows and rows[""].status == Status.OK]


def _raced(data: RunData, space: SearchSpace, rows: dict[str, Result]) -> Raced:
    assert data.tunes is not None
    default = rows.pop("")
    in_turn = {tile: row for tile, row in rows.items() if row.status == Status.OK and row.job == default.job}
    groups = {tile: data.by_process(row) for tile, row in in_turn.items()}
    return Raced(data.tunes, space, default, rows, decide(data.by_process(default), groups, max(1, len(rows))))


def sentence(found: Raced) -> str:
    """Return which tile to take and what to do with it, or that none is certainly faster."""
    ratios, best, tied = found.decision
    subject = f"{found.tunes.kernel} on {found.space.problem}"
    default = f"{DEFAULT} ({found.space.default})"
    over = f"over {found.default.processes} process{'es' * (found.default.processes != 1)}"
    names = ", ".join(tied)
    if best is None:
        same = f"; it cannot be distinguished from {names}" if tied else ""
        return f"{subject}: {default} stays: of {count(len(found.rows), 'tile')} none is certainly faster {over}{same}"
    same = f" ({names} cannot be distinguished from it)" if tied else ""
    faster = f"{best} is {ratios[best]} as fast as {default} {over}{same}"
    return f"{subject}: {faster}; `kernelmark run {found.space.problem} --tuned {found.tunes.where}` uses it"


def over_suite(found: Sequence[Raced], style: str = "simple") -> str:
    """Return the best tile of each problem, and what the one tile that is best over the suite costs on each."""
    return table(SUITE, [_cells(each) for each in found], style)


def overall_words(found: Sequence[Raced]) -> str:
    """Return the tile that is best over the suite, its mean speed, and where it costs most."""
    mean = math.exp(fmean(math.log(each.overall) for each in found))
    worst = max(found, key=lambda each: each.regret)
    most = f"at most {percent(worst.regret)} slower than the best of a problem ({worst.space.problem})"
    return f"one tile for all: {found[0].tunes.overall}, {factor(mean)} {DEFAULT} (geometric mean), {most}"


def _cells(found: Raced) -> tuple[str, ...]:
    tile = found.leader
    speed = str(found.decision.ratios[tile]) if tile is not None else ""
    adopted = yes_or_no(found.decision.best is not None)
    shares = (factor(found.overall), percent(found.regret)) if found.tunes.overall else ("", "")
    return found.space.problem, marked(rate(found.default), found.default), tile or "", speed, adopted, *shares
