"""Stage one of tuning: short jobs of a few tiles, each beside the default, so that a machine that drifts moves both."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import factor, rate
from kernelmark.bench.run.pool import Execute
from kernelmark.bench.run.session import Session
from kernelmark.bench.tune.search import Choice, Config
from kernelmark.bench.tune.static import resources
from kernelmark.bench.tune.subject import Subject

#: Tiles in one job, beside the default: the operands of a job are drawn and its references computed once for all.
AT_ONCE = 6


class Interrupted(Exception):
    """The user has interrupted a tuning; every row stands."""


class DefaultFailed(Exception):
    """The kernel is wrong, or fails, with its default tile: there is nothing to tune."""


class Trial(NamedTuple):
    """What was found of a tile. cost: its time over the default's, in turn; infinite where it failed."""

    config: Config
    status: str
    cost: float

    @property
    def speed(self) -> float:
        """Return how many times faster than the default it is."""
        return 1 / self.cost


class Rig(NamedTuple):
    """What a tuning works with; `tell` is called after each job of the search."""

    store: Store
    registry: Registry
    execute: Execute
    interrupted: Callable[[], bool]
    tell: Callable[["Screen"], None]


class Screen:
    """The tiles of a kernel that have been tried on a problem; rows that a run has already are not measured again."""

    def __init__(self, subject: Subject, choice: Choice, session: Session, plan: Plan, rig: Rig) -> None:
        self.subject, self.choice, self.trials = subject, choice, dict[Config, Trial]()
        self._session, self._plan, self._rig = session, plan, rig

    @property
    def default(self) -> Result:
        """Return the row of the default, which every job has."""
        row = self._stored(self.subject.tiles.default)
        assert row is not None
        return row

    @property
    def ranked(self) -> list[Trial]:
        """Return the tiles that were timed, the fastest first."""
        timed = (trial for trial in self.trials.values() if math.isfinite(trial.cost))
        return sorted(timed, key=lambda trial: trial.cost)

    def costs(self, configs: Sequence[Config]) -> list[float]:
        """Return the cost of each tile, measured where it is not known yet.

        Raises Interrupted, and DefaultFailed where the default is wrong or fails.
        """
        for config in configs:
            if config not in self.trials and (row := self._stored(config)) is not None:
                self._keep(config, row)
        for chunk in _chunks([config for config in dict.fromkeys(configs) if config not in self.trials]):
            self._measure(chunk)
            self._rig.tell(self)
        return [self.trials[config].cost for config in configs]

    def _stored(self, config: Config) -> Result | None:
        """Return the row that the run has of a tile."""
        case, run_id, store = self.subject.case(config, self._plan), self._session.run_id, self._rig.store
        return store.result(run_id, case)[0] if store.has(run_id, case) else None

    def _measure(self, configs: Sequence[Config]) -> None:
        if self._rig.interrupted():
            raise Interrupted
        others = [config for config in configs if config != self.subject.tiles.default]
        found = self._session.measure(0, self.subject.job(others, self._plan), self._rig.registry)
        rows = {result.kernel: result for result, _ in found}
        require(rows[self.subject.kernel.base_id])
        for config in configs:
            row = rows[self.subject.contender(config)]
            if used := resources(self.subject, config):
                self._rig.store.add_resources(self._session.run_id, row.case, used)
            self._keep(config, row)

    def _keep(self, config: Config, row: Result) -> None:
        cost = 1 / row.speedup if row.speedup else math.inf
        if config == self.subject.tiles.default:
            require(row)
            cost = 1.0
        self.trials[config] = Trial(config, row.status, cost)


def progress(screen: Screen) -> str:
    """Return `12 of 100 tiles, best so far RUN=512: 1.08x the default (3.21 GB/s)`."""
    done = f"{len(screen.trials)} of {screen.choice.budget} tiles"
    best, default = screen.ranked[0], f"the default ({rate(screen.default)})"
    if best.config == screen.subject.tiles.default:
        return f"{done}, best so far {default}"
    return f"{done}, best so far {screen.subject.text(best.config)}: {factor(best.speed)} {default}"


def require(default: Result) -> None:
    """Raise DefaultFailed unless the default is right."""
    if default.status != Status.OK:
        what = f"{default.kernel} on {default.problem}: is {default.status} with its default tile"
        raise DefaultFailed(f"{what}: {default.reason}; nothing was tuned")


def _chunks(configs: Sequence[Config]) -> Iterator[Sequence[Config]]:
    return (configs[i : i + AT_ONCE] for i in range(0, len(configs), AT_ONCE))
