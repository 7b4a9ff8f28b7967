"""Fixtures: a user's kernel in a folder, sessions of `watch` on it, and tunings whose jobs are not run."""

import json
from contextlib import nullcontext
from itertools import count

import numpy as np
import pytest

from kernelmark.bench.measure.measurement import Measurement, ProcessPart
from kernelmark.bench.measure.ratio import speedup
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.tune.search import subjects_of
from kernelmark.bench.tune.tuning import Rig, SearchOptions, Tuning
from kernelmark.bench.tune.watch.session import WatchSession
from kernelmark.bench.tune.watch.versions import with_tile
from support.plugins import COUNTED
from support.tuning import PLUGIN, PROBLEM, SOURCE, version


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a user's kernel: the source, and the plug-in that declares it."""
    (tmp_path / "turned.cu").write_text(SOURCE)
    (tmp_path / "turned.py").write_text(PLUGIN)
    return tmp_path


@pytest.fixture
def opened(folder, registry, cuda_compiler):
    """Return a function that opens a session on the kernel in `folder`, without a GPU."""
    discover((str(folder / "turned.py"),))
    kernel, problem = registry.kernels["transpose/cuda.turned"], registry.problem(PROBLEM)

    def of(tile=None, **options):
        return WatchSession(registry, with_tile(kernel, tile or {}, problem, H100), problem, "sm_90a", None, **options)

    return of


@pytest.fixture
def session(opened):
    return opened()


@pytest.fixture
def look(session, folder):
    """Return a function that saves a text as the next version and returns what the session prints."""
    numbers = count(1)
    return lambda text, **headers: "\n".join(session.look(version(folder, next(numbers), text, headers)))


class Tuned:
    """Tunings whose jobs are counted instead of run: the time of a contender is proportional to WORK of its tile.

    stop_after: jobs after which a tuning is interrupted. hangs: the problem on which the default times out, and the
    sampling time of the jobs in which it does.
    """

    def __init__(self, registry, store):
        self.registry, self.store, self.jobs, self.stop_after = registry, store, [], 10**6
        self.hangs = None

    def execute(self, job, key):
        self.jobs.append(job)
        rng = np.random.default_rng((len(self.jobs), key.process))
        by_entrant = {entrant: self._measured(entrant, job, rng) for entrant in job.entrants}
        base = by_entrant[job.entrants[0]]
        for measurement in by_entrant.values():
            if measurement is not base and measurement.samples:
                measurement.over_baseline = speedup([base.samples], [measurement.samples])
        return list(by_entrant.values())

    def _measured(self, entrant, job, rng):
        kernel = self.registry.kernels[entrant.kernel]
        tile = kernel.tile_for(self.registry.problem(entrant.problem))
        work = getattr(tile, "WORK", 1)
        common = {"kernel": kernel.id, "problem": entrant.problem, "tunables": json.dumps(vars(tile))}
        common |= {"job": f"{len(self.jobs)}", "started_at": "2026-01-01T00:00:00+00:00"}
        if kernel.name == "wrong":
            return Measurement(**common, status="wrong", reason="b[0, 0] is 0, expected 1")
        if kernel.id == kernel.base_id and (entrant.problem, job.budget.max_time_s) == self.hangs:
            return Measurement(**common, status="timeout", reason="a call took longer than 1 s")
        if kernel.name == "failing" and work in (2, 3):
            return Measurement(**common, status="failed", reason="ValueError: no luck")
        samples = (work * 1e-3 * rng.normal(1, 0.01, 12)).tolist()
        interval = median_interval(samples)
        parts = [ProcessPart(len(samples), interval.median)]
        return Measurement(**common, samples=samples, interval=interval, interval_scope="within-process", parts=parts)

    def begin(self, kernel, suite="copy/m64n1024/f32", strategy=None, budget=None, op="copy/mine", **plan):
        self.jobs.clear()
        loaded = find_suite(suite, self.registry)
        subjects = subjects_of(self.registry, f"{op}.{kernel}", loaded, 0)
        fields = {"devices": ("cpu",), "suites": (suite,), "plugins": (COUNTED,), "mode": Mode.HOT, "max_time_s": 0.004}
        plan = Plan(**{**fields, "ceilings": False, "processes": 3, "spread_s": 0.0, **plan})
        interrupted = lambda: len(self.jobs) >= self.stop_after  # noqa: E731
        rig = Rig(self.store, self.registry, self.execute, interrupted, lambda screen: None)
        return Tuning(subjects, loaded, plan, SearchOptions(strategy, budget), rig)

    def race(self, tuning):
        return tuning.race(lambda jobs, processes: nullcontext(Progress()))

    def all(self, *words, **plan):
        tuning = self.begin(*words, **plan)
        tuning.search()
        verdicts = self.race(tuning)
        tuning.session.finish()
        return tuning, verdicts


@pytest.fixture
def tuned(registry, store):
    discover((COUNTED,))
    return Tuned(registry, store)
