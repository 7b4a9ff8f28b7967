"""Tune a kernel: search its tiles on each problem of a suite, and race the best against the default.

The search measures a few tiles in each of its short jobs, always with the default, so that drift of the machine affects
both. The best of many short jobs owes part of its lead to luck, so the race takes new samples of the fastest few tiles
in several processes. Speedups are relative to the default, and their intervals include variation between processes. A
tile is adopted only if its whole interval is above 1. With Bonferroni's correction the confidence is 99 %: if no
candidate is faster than the default, the default stays in 99 % of the races (bench/report/tuning.py).
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from statistics import fmean
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.plan.case import Plan, PlannedJob
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.tuned import Tunes
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import TUNE, KernelVersion, VersionRatio
from kernelmark.bench.report.format import factor, rate, row_time, short
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tuning import Raced, races
from kernelmark.bench.run.crashes import Execute
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import Session, run_passes
from kernelmark.bench.tune.search import Config, SearchWay, Subject, choose, search
from kernelmark.bench.tune.static import arch_here, resources
from kernelmark.bench.tune.tuned import AUTO, TileRecord, source_digest, sources_of, versions

#: The maximum number of tiles per job besides the default. A job draws operands and computes references only once.
AT_ONCE = 6


class Interrupted(Exception):
    """The user has interrupted the tuning; all rows so far are stored."""


class DefaultFailed(Exception):
    """The kernel is wrong or fails with its default tile, so it cannot be tuned."""


class Rig(NamedTuple):
    """The objects that a tuning needs; `tell` is called after each job of the search."""

    store: Store
    registry: Registry
    execute: Execute
    interrupted: Callable[[], bool]
    tell: Callable[["Screen"], None]


class Screen:
    """The tiles of a kernel that were tried on a problem; tiles that have a row in the run are not measured again.

    trials: each tile's time divided by the default's, sampled in turn; infinite if the tile failed. default: the row of
    the default tile, once it is measured.
    """

    def __init__(self, subject: Subject, choice: SearchWay, session: Session, plan: Plan, rig: Rig) -> None:
        self.subject, self.choice, self.trials = subject, choice, dict[Config, float]()
        self.default: Result
        self._session, self._plan, self._rig = session, plan, rig

    @property
    def ranked(self) -> list[Config]:
        """Return the timed tiles, the fastest first."""
        timed = (config for config, cost in self.trials.items() if math.isfinite(cost))
        return sorted(timed, key=self.trials.__getitem__)

    def costs(self, configs: Sequence[Config]) -> list[float]:
        """Return the cost of each tile, after measuring the tiles whose cost is unknown.

        Raises Interrupted, and DefaultFailed if the default is wrong or fails.
        """
        for config in configs:
            if config not in self.trials and (row := self._stored(config)) is not None:
                self._keep(config, row)
        new = [config for config in dict.fromkeys(configs) if config not in self.trials]
        for i in range(0, len(new), AT_ONCE):
            self._measure(new[i : i + AT_ONCE])
            self._rig.tell(self)
        return [self.trials[config] for config in configs]

    def _stored(self, config: Config) -> Result | None:
        case, run_id, store = self.subject.case(config, self._plan), self._session.run_id, self._rig.store
        return store.result(run_id, case)[0] if store.has(run_id, case) else None

    def _measure(self, configs: Sequence[Config]) -> None:
        if self._rig.interrupted():
            raise Interrupted
        others = [config for config in configs if config != self.subject.tiles.default]
        measured = self._session.measure(0, self.subject.job(others, self._plan))
        rows = {result.kernel: result for result, _ in measured}
        require(rows[self.subject.kernel.base_id])
        for config in configs:
            row = rows[self.subject.contender(config)]
            if used := resources(self.subject, config):
                self._rig.store.add_resources(self._session.run_id, row.case, used)
            self._keep(config, row)

    def _keep(self, config: Config, row: Result) -> None:
        self.trials[config] = 1 / row.speedup if row.speedup else math.inf
        if config == self.subject.tiles.default:
            require(row)
            self.default, self.trials[config] = row, 1.0


def progress(screen: Screen) -> str:
    """Return the state of a search: `12 of 100 tiles, best so far RUN=512: 1.08x the default (3.21 GB/s)`."""
    done = f"{len(screen.trials)} of {screen.choice.budget} tiles"
    best, default = screen.ranked[0], f"the default ({rate(screen.default)})"
    if best == screen.subject.tiles.default:
        return f"{done}, best so far {default}"
    return f"{done}, best so far {screen.subject.text(best)}: {factor(1 / screen.trials[best])} {default}"


def require(default: Result) -> None:
    """Raise DefaultFailed unless the default tile's result is right."""
    if default.status != Status.OK:
        what = f"{default.kernel} on {default.problem}: is {default.status} with its default tile"
        raise DefaultFailed(f"{what}: {default.reason}")


#: The number of tiles that race against the default.
CANDIDATES = 3


class RaceOutcome(NamedTuple):
    """The outcome of a race on a problem: the kernel with its tiles, and the decision."""

    subject: Subject
    raced: Raced

    @property
    def default(self) -> Result:
        return self.raced.default

    @property
    def adopted(self) -> Result | None:
        """Return the row of the adopted tile, or None if the default stays."""
        best = self.raced.decision.best
        return None if best is None else self.raced.rows[best]

    @property
    def key(self) -> tuple[str, str, int]:
        """Return the key of the outcome's entry in the file of tuned tiles."""
        return self.default.kernel, self.default.problem, self.default.threads

    @property
    def entry(self) -> TileRecord | None:
        """Return the entry for the file of tuned tiles, or None if the default stays."""
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
    """Return the tiles to race on a problem: the fastest ones, except the default."""
    default = screen.subject.tiles.default
    return [config for config in screen.ranked if config != default][:CANDIDATES]


def log_adopted(store: Store, verdict: RaceOutcome) -> None:
    """Add a race's adopted tile, if any, to the history of its kernel on the problem."""
    row, entry, kernel = verdict.adopted, verdict.entry, verdict.subject.kernel
    if row is None or entry is None:
        return
    used = store.resources(verdict.raced.tunes.search).get(row.case)
    time_s, low, high = row_time(row)
    version = KernelVersion(
        kernel=entry.kernel,
        problem=entry.problem,
        saved_at=entry.tuned_at,
        by=TUNE,
        verdict="PASS, adopted",
        right=True,
        tile=entry.tile,
        device=row.device_name,
        mode=row.mode,
        threads=row.threads,
        arch=arch_here(kernel) if used else "",
        registers=used.registers if used else None,
        spill_bytes=used.spill_bytes if used else None,
        time_s=time_s,
        low=low,
        high=high,
        processes=row.processes,
        run=row.run_id,
        compared=(VersionRatio(entry.ratio, entry.low, entry.high, entry.kernel),),
    )
    store.add_version(version, sources_of(kernel))


#: The factor by which the race measures a tile longer than the search.
LONGER = 10
#: A function that returns the display of the race's progress.
Watch = Callable[[Sequence[PlannedJob], int], AbstractContextManager[Progress]]


class SearchOptions(NamedTuple):
    """The search method (None: the default for the size of the space), and the file for adopted tiles."""

    strategy: str | None = None
    budget: int | None = None
    where: str = AUTO


class Tuning:
    """A tuning: a search and then a race, which are separate runs. An interrupted tuning is resumed.

    skipped: for each problem that is not tuned because the default tile failed on it, the reason.
    """

    def __init__(self, subjects: Sequence[Subject], suite: Suite, plan: Plan, wanted: SearchOptions, rig: Rig) -> None:
        """Begin or resume a tuning. plan: the plan of the search, with the processes of the race. Raises UsageError."""
        self.subjects, self.screens, self.skipped = subjects, list[Screen](), list[str]()
        self.choices = [choose(len(s.tiles.configs), wanted.strategy, wanted.budget) for s in subjects]
        kernel, choices = subjects[0].kernel, ", ".join(dict.fromkeys(map(str, self.choices)))
        spaces = tuple(subject.space for subject in subjects)
        self._tunes = Tunes(kernel.base_id, choices, source_digest(kernel), wanted.where, spaces)
        self._suite, self._plan, self.rig = suite, plan, rig
        self._searching = msgspec.structs.replace(plan, processes=1, spread_s=0.0, ceilings=False, tunes=self._tunes)
        self.session = self._begun(self._searching, "tune", unfinished=True)

    def search(self) -> None:
        """Measure tiles on every problem on which the default works.

        Raises Interrupted. If there is no such problem, ends the run and raises DefaultFailed.
        """
        for subject, choice in zip(self.subjects, self.choices, strict=True):
            screen = Screen(subject, choice, self.session, self._searching, self.rig)
            with self._skipping():
                screen.costs([subject.tiles.default])
                search(subject.tiles, screen.costs, choice, self._plan.seed)
                self.screens.append(screen)
        # Try each problem's best tiles on all problems, to find the best over the suite.
        best = dict.fromkeys(config for screen in self.screens for config in candidates(screen))
        searched, self.screens = self.screens, []
        for screen in searched:
            with self._skipping():
                screen.costs([config for config in best if screen.subject.takes(config)])
                self.screens.append(screen)
        self._check(self.screens)

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        try:
            yield
        except DefaultFailed as error:
            self.skipped.append(str(error))

    def _check(self, left: Sequence[object]) -> None:
        """If no problem is left, end the run, so that the same command begins a new tuning, and raise DefaultFailed."""
        if not left:
            self.session.finish()
            raise DefaultFailed(f"{self.skipped[0]}; nothing was tuned")

    def held(self, run_id: str) -> AbstractContextManager[None]:
        """Lock one of the runs against other processes while the context lasts. Raises UsageError."""
        return held_run(self.rig.store.path, run_id, "use another --seed")

    @property
    def overall(self) -> Config | None:
        if len(self.screens) < 2:
            return None
        timed = [screen.ranked for screen in self.screens]
        common = [config for config in timed[0] if all(config in configs for configs in timed)]
        mean = lambda config: fmean(math.log(screen.trials[config]) for screen in self.screens)  # noqa: E731
        return min(common, key=mean, default=None)

    def race(self, watch: Watch) -> list[RaceOutcome]:
        """Race the best tiles of each problem against the default, and skip problems on which the default fails.

        Raises Interrupted, and DefaultFailed if no problem is left.
        """
        common, subjects = self.overall, [screen.subject for screen in self.screens]
        raced = [candidates(screen) for screen in self.screens]
        for screen, best in zip(self.screens, raced, strict=True):
            if common and common not in (screen.subject.tiles.default, *best) and screen.subject.takes(common):
                best.append(common)
        overall = self.subjects[0].text(common) if common else ""
        names = tuple(dict.fromkeys(s.text(c) for s, tiles in zip(subjects, raced, strict=True) for c in tiles))
        tunes = msgspec.structs.replace(self._tunes, search=self.session.run_id, raced=names, overall=overall)
        plan = msgspec.structs.replace(self._plan, max_time_s=LONGER * (self._plan.max_time_s or 0.0), tunes=tunes)
        jobs = [s.job(configs, plan) for s, configs in zip(subjects, raced, strict=True)]
        session = self._begun(plan, "race", unfinished=False)
        store, interrupted = self.rig.store, self.rig.interrupted
        with self.held(session.run_id), watch(jobs, plan.processes) as progress:
            run_passes(session, lambda: jobs, progress=progress, interrupted=interrupted)
        if interrupted():
            raise Interrupted
        session.finish()
        with store.snapshot():
            outcomes = {raced.space.problem: raced for raced in races(RunData(store, session.run_id))}
        verdicts = list[RaceOutcome]()
        for subject in subjects:
            with self._skipping():
                require(store.result(session.run_id, subject.case(subject.tiles.default, plan))[0])
                verdicts.append(RaceOutcome(subject, outcomes[subject.problem.id]))
        self._check(verdicts)
        return verdicts

    def _begun(self, plan: Plan, stage: str, unfinished: bool) -> Session:
        """Return a session that resumes the latest run with exactly this plan, or else a session of a new run."""
        store, execute, suites = self.rig.store, self.rig.execute, [self._suite]
        wanted = msgspec.json.decode(msgspec.json.encode(plan))
        for run in reversed(store.runs()):
            fields = {name: value for name, value in run["plan"].items() if name != "suite_digests"}
            if fields == wanted and not (unfinished and run["finished_at"]):
                with suppress(UsageError):  # a run of another machine, commit or library cannot be resumed
                    return Session(store, suites, plan, execute, run["run_id"])
        kernel = re.sub(r"[^\w.+-]+", "-", short(self.subjects[0].kernel.base_id))
        head, taken = f"{stage}-{kernel}"[:50], {run["name"] for run in store.runs()}
        names = (f"{head}-{number}" for number in count(1))
        return Session(store, suites, plan, execute, name=next(name for name in names if name not in taken))
