"""Stage two of tuning: the fastest few and the default in one job, in several fresh processes, and what is kept of it.

Whatever is best of many short jobs owes part of that to luck. So the race takes fresh samples, and adopts a tile only
if the interval of its ratio to the default, which holds for the next process too, lies above 1. The intervals are
those of 99 %, widened by Bonferroni's correction: with three candidates, the default loses to none of its equals in
99 % of the races (bench/report/raced.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from kernelmark.bench.plan.case import Plan
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.raced import Raced, races
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.tune.screen import Screen, require
from kernelmark.bench.tune.search import Config
from kernelmark.bench.tune.subject import Subject
from kernelmark.bench.tune.tuned import TileRecord
from kernelmark.bench.tune.use import source_digest, versions

#: Tiles that are raced with the default.
CANDIDATES = 3


class RaceOutcome(NamedTuple):
    """The outcome of a race on one problem: what was tuned, and what its rows show."""

    subject: Subject
    raced: Raced

    @property
    def default(self) -> Result:
        """Return the row of the default."""
        return self.raced.default

    @property
    def adopted(self) -> Result | None:
        """Return the row of the tile that is adopted; None where the default stays."""
        best = self.raced.decision.best
        return None if best is None else self.raced.rows[best]

    @property
    def key(self) -> tuple[str, str, int]:
        """Return what there may be one tuned tile for."""
        return self.default.kernel, self.default.problem, self.default.threads

    @property
    def entry(self) -> TileRecord | None:
        """Return what a file of tuned tiles keeps of it; None where the default stays."""
        best, row = self.raced.decision.best, self.adopted
        if best is None or row is None:
            return None
        kernel, ratio = self.subject.kernel, self.raced.decision.ratios[best]
        assert ratio.low is not None
        assert ratio.high is not None
        return TileRecord(
            kernel=kernel.base_id,
            problem=row.problem,
            threads=row.threads,
            mode=row.mode,
            digest=source_digest(kernel),
            versions=versions(kernel),
            tile=best,
            default=self.raced.space.default,
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


def judge(store: Store, run_id: str, subjects: Sequence[Subject], plan: Plan) -> list[RaceOutcome]:
    """Return the outcome of a race whose rows the run has. Raises DefaultFailed."""
    for subject in subjects:
        require(store.result(run_id, subject.case(subject.tiles.default, plan))[0])
    with store.snapshot():
        return [RaceOutcome(*pair) for pair in zip(subjects, races(RunData(store, run_id)), strict=True)]
