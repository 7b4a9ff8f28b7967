"""A tuning: a kernel's tiles searched on each problem of a suite, and the best raced with the default."""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from statistics import fmean
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.plan.case import Plan, PlannedJob
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.tuned import Tunes
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import short
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import Session, run_passes
from kernelmark.bench.tune.race import RaceOutcome, candidates, judge
from kernelmark.bench.tune.screen import DefaultFailed, Interrupted, Rig, Screen
from kernelmark.bench.tune.search import Config, choose, search
from kernelmark.bench.tune.subject import Subject
from kernelmark.bench.tune.tuned import AUTO
from kernelmark.bench.tune.use import source_digest

#: The race measures a tile for as many times the seconds that the search does.
LONGER = 10
#: What shows how far the race is.
Watch = Callable[[Sequence[PlannedJob], int], AbstractContextManager[Progress]]


class SearchOptions(NamedTuple):
    """How a space is to be searched, None for what suits its size, and where what is found is kept."""

    strategy: str | None = None
    budget: int | None = None
    where: str = AUTO


class Tuning:
    """Both stages, each a run of its own; rows that unfinished runs of the same tuning have are taken from there."""

    def __init__(self, subjects: Sequence[Subject], suite: Suite, plan: Plan, wanted: SearchOptions, rig: Rig) -> None:
        """plan: of the search, but for its processes, which are those of the race. Raises UsageError."""
        self.subjects, self.screens = subjects, list[Screen]()
        self.choices = [choose(len(s.tiles.configs), wanted.strategy, wanted.budget) for s in subjects]
        self._suite, self._plan, self._rig, self._where = suite, plan, rig, wanted.where
        self.session = self._begun(self._searching(), "tune", unfinished=True)

    @property
    def store(self) -> Store:
        """Return where the rows are kept."""
        return self._rig.store

    @property
    def registry(self) -> Registry:
        """Return the kernels and operations that the tuning has."""
        return self._rig.registry

    def _searching(self) -> Plan:
        kernel = self.subjects[0].kernel
        choices = ", ".join(dict.fromkeys(map(str, self.choices)))
        spaces = tuple(subject.space for subject in self.subjects)
        tunes = Tunes(kernel.base_id, choices, source_digest(kernel), self._where, spaces)
        return msgspec.structs.replace(self._plan, processes=1, spread_s=0.0, ceilings=False, tunes=tunes)

    def search(self) -> None:
        """Measure tiles on every problem. Raises Interrupted, and DefaultFailed, after which the run is over."""
        try:
            self._search(self._searching())
        except DefaultFailed:
            self.finish()
            raise

    def held(self, run_id: str) -> AbstractContextManager[None]:
        """Hold one of the runs, with which no other process may go on meanwhile. Raises UsageError."""
        return held_run(self._rig.store.path, run_id, "take another --seed")

    def finish(self) -> None:
        """Note that nothing is left to do: the same command begins anew."""
        self.session.finish()

    def _search(self, plan: Plan) -> None:
        for subject, choice in zip(self.subjects, self.choices, strict=True):
            screen = Screen(subject, choice, self.session, plan, self._rig)
            self.screens.append(screen)
            screen.costs([subject.tiles.default])
            search(subject.tiles.field, screen.costs, choice, plan.seed)
        if len(self.screens) > 1:  # what is best of one problem is tried on all, so that one may be best over the suite
            best = dict.fromkeys(config for screen in self.screens for config in candidates(screen))
            for screen in self.screens:
                screen.costs([config for config in best if screen.subject.takes(config)])

    @property
    def overall(self) -> Config | None:
        """Return the tile with the highest geometric mean of speeds over the suite; None for a problem alone."""
        if len(self.screens) < 2:
            return None
        timed = [{trial.config: trial.speed for trial in screen.ranked} for screen in self.screens]
        common = [config for config in timed[0] if all(config in speeds for speeds in timed)]
        return max(common, key=lambda config: fmean(math.log(speeds[config]) for speeds in timed))

    def race(self, watch: Watch) -> list[RaceOutcome]:
        """Race the best tiles of each problem with its default. Raises Interrupted."""
        raced = [self._raced(screen) for screen in self.screens]
        overall = self.subjects[0].text(self.overall) if self.overall is not None else ""
        names = tuple(dict.fromkeys(s.text(c) for s, own in zip(self.subjects, raced, strict=True) for c in own))
        time_s, searching = LONGER * (self._plan.max_time_s or 0.0), self._searching().tunes
        assert searching is not None
        tunes = msgspec.structs.replace(searching, search=self.session.run_id, raced=names, overall=overall)
        plan = msgspec.structs.replace(self._plan, max_time_s=time_s, tunes=tunes)
        jobs = [s.job(configs, plan) for s, configs in zip(self.subjects, raced, strict=True)]
        session = self._begun(plan, "race", unfinished=False)
        rig = self._rig
        with self.held(session.run_id), watch(jobs, plan.processes) as progress:
            run_passes(session, lambda: jobs, rig.registry, plan, _unnoticed, progress, rig.interrupted)
        if rig.interrupted():
            raise Interrupted
        session.finish()
        return judge(rig.store, session.run_id, self.subjects, plan)

    def _raced(self, screen: Screen) -> list[Config]:
        own, overall = candidates(screen), self.overall
        more = overall is not None and overall != screen.subject.tiles.default and screen.subject.takes(overall)
        return list(dict.fromkeys([*own, *([overall] if overall is not None and more else [])]))

    def _begun(self, plan: Plan, stage: str, unfinished: bool) -> Session:
        """Return the session of the run that has this very plan, or of a new one."""
        store, execute, suites = self._rig.store, self._rig.execute, [self._suite]
        wanted = msgspec.json.decode(msgspec.json.encode(plan))
        for run in reversed(store.runs()):
            found = {name: value for name, value in run["plan"].items() if name != "suite_digests"}
            if found == wanted and not (unfinished and run["finished_at"]):
                try:
                    return Session(store, suites, plan, execute, run["run_id"])
                except UsageError:  # another machine, commit or library: its rows are of something else
                    continue
        return Session(store, suites, plan, execute, name=self._free_name(stage))

    def _free_name(self, stage: str) -> str:
        """Return `tune-numba.blocked-2`, which no run has yet."""
        name = re.sub(r"[^\w.+-]+", "-", short(self.subjects[0].kernel.base_id))
        head = f"{stage}-{name}"[:50]
        taken = {run["name"] for run in self._rig.store.runs()}
        number = 1
        while f"{head}-{number}" in taken:
            number += 1
        return f"{head}-{number}"


def _unnoticed(_row: Result) -> None:
    """Rows of a race are read from the store, once they are all there."""
