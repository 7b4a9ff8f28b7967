"""Stage two of tuning: the fastest few and the default in one job, in several fresh processes, and what follows.

Whatever is best of many short jobs owes part of that to luck. So the race takes fresh samples, and adopts a tile only
if the interval of its ratio to the default, which holds for the next process too, lies above 1. The intervals are
wider than 95 % by Bonferroni's correction: with three candidates, the default loses to none of its equals in 95 % of
the races.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.measure.stats import ALPHA
from bench.plan.case import Plan
from bench.plan.status import Status
from bench.record.result import Result
from bench.record.store import Store
from bench.report.contest import Ratio, paired
from bench.tune.screen import Screen, require
from bench.tune.search import Config
from bench.tune.subject import Subject
from bench.tune.tuned import Entry
from bench.tune.use import source_digest, versions

#: Tiles that are raced with the default.
CANDIDATES = 3
#: The samples of each process.
Groups = Sequence[Sequence[float]]


class Decision(NamedTuple):
    """What follows from the samples of a race.

    ratios: how many times faster than the default each tile is. best: the tile to adopt, if one is certainly faster.
    tied: those that cannot be distinguished from the best, or from the default where it stays.
    """

    ratios: dict[Config, Ratio]
    best: Config | None
    tied: list[Config]


class Verdict(NamedTuple):
    """The outcome of a race on one problem: the rows of the default and of the tiles, and what follows."""

    subject: Subject
    default: Result
    rows: dict[Config, Result]
    decision: Decision

    @property
    def key(self) -> tuple[str, str, int]:
        """Return what there may be one tuned tile for."""
        return self.default.kernel, self.default.problem, self.default.threads

    @property
    def entry(self) -> Entry | None:
        """Return what a file of tuned tiles keeps of it; None where the default stays."""
        best = self.decision.best
        if best is None:
            return None
        kernel, row, ratio = self.subject.kernel, self.rows[best], self.decision.ratios[best]
        assert ratio.low is not None
        assert ratio.high is not None
        return Entry(
            kernel=kernel.base_id,
            problem=row.problem,
            threads=row.threads,
            mode=row.mode,
            digest=source_digest(kernel),
            versions=versions(kernel),
            tile=self.subject.text(best),
            default=self.subject.text(self.subject.tiles.default),
            ratio=ratio.median,
            low=ratio.low,
            high=ratio.high,
            processes=row.processes,
            run=row.run_id,
            tuned_at=row.started_at,
        )


def candidates(screen: Screen) -> list[Config]:
    """Return the tiles to race on a problem: the fastest but for the default."""
    default = screen.subject.tiles.default
    return [trial.config for trial in screen.ranked if trial.config != default][:CANDIDATES]


def decide(default: Groups, tiles: Mapping[Config, Groups], raced: int) -> Decision:
    """Return what the samples of the default and of tiles, by process, amount to; raced: how many tiles there were."""
    ratios = _ratios(default, tiles, raced)
    faster = [config for config, ratio in ratios.items() if ratio.certain and ratio.median > 1]
    best = max(faster, key=lambda config: ratios[config].median, default=None)
    others = {config: groups for config, groups in tiles.items() if config != best}
    close = ratios if best is None else _ratios(tiles[best], others, raced)
    return Decision(ratios, best, [config for config, ratio in close.items() if not ratio.certain])


def _ratios(base: Groups, tiles: Mapping[Config, Groups], raced: int) -> dict[Config, Ratio]:
    """Return how many times faster than the base each tile is; all these intervals are right in 95 % of the races."""
    found = {config: paired(base, own, ALPHA / raced) for config, own in tiles.items()}
    return {config: ratio for config, ratio in found.items() if ratio is not None}


def judge(store: Store, run_id: str, subject: Subject, raced: Sequence[Config], plan: Plan) -> Verdict:
    """Return the outcome of a race whose rows the run has. Raises DefaultFailed."""
    cases = {config: subject.case(config, plan) for config in (subject.tiles.default, *raced)}
    rows = {config: store.result(run_id, case)[0] for config, case in cases.items()}
    default = rows.pop(subject.tiles.default)
    require(default)
    in_turn = [config for config, row in rows.items() if row.status == Status.OK and row.job == default.job]
    groups = {config: store.by_process(run_id, cases[config]) for config in (subject.tiles.default, *in_turn)}
    base = groups.pop(subject.tiles.default)
    return Verdict(subject, default, rows, decide(base, groups, len(raced)))
