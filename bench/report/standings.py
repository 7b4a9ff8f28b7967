"""Who wins where on the problems of a suite, and between which sizes another kernel takes over."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from bench.plan.errors import UsageError
from bench.plan.suites import Suite
from bench.plan.sweep import Sweep
from bench.record.result import Result
from bench.record.store import Store
from bench.report.contest import Contest, Ratio, Setting, contests, is_timed


class Change(NamedTuple):
    """Between two neighbours along an axis the winner changes; here and there: the axis at both of them."""

    along: str
    here: Any
    there: Any
    before: Contest
    after: Contest

    @property
    def gain(self) -> Ratio | None:
        """Return the new winner against the old one, where the old one is still there."""
        old = self.after.of(self.before.fastest.kernel)
        return self.after.faster(self.after.fastest, old) if old else None

    @property
    def gain_before(self) -> Ratio | None:
        """Return the old winner against the new one, before."""
        new = self.before.of(self.after.fastest.kernel)
        return self.before.faster(self.before.fastest, new) if new else None


class Kin(NamedTuple):
    """A kernel on two siblings; ratio: how many times faster it is on `one` than on `other`, the first of the group."""

    setting: Setting
    one: Result
    other: Result
    ratio: Ratio


def standings(suite: Suite, store: Store, run_id: str) -> list[Contest]:
    """Return the contests on the problems of a suite, in the order of the suite."""
    problems = dict.fromkeys(entry.problem.id for entry in suite.entries())
    order = {problem: place for place, problem in enumerate(problems)}
    found = contests((r for r, _ in store.results(run_id) if r.problem in order), store)
    return sorted(found, key=lambda c: order[c.problem])


def fastest_fft(c: Contest) -> Result | None:
    """Return the fastest kernel that convolves by FFT."""
    return next((r for r in c.ranked if r.numerics == "fft"), None)


def fft_speedup(c: Contest) -> Ratio | None:
    """Return the speedup of the fastest FFT over the fastest kernel that is none."""
    fft, rest = fastest_fft(c), next((r for r in c.ranked if r.numerics != "fft"), None)
    return c.faster(fft, rest) if fft and rest else None


def changes(suite: Suite, found: Sequence[Contest]) -> list[Change]:
    """Return where the winner changes from one size to the next along the axes that the suite sweeps."""
    by_problem: dict[str, list[Contest]] = defaultdict(list)
    for contest in found:
        by_problem[contest.problem].append(contest)
    return [
        Change(axis, here, there, before, after)
        for sweep in suite.sweeps
        for axis in sweep.along
        for line in _lines(sweep, axis, by_problem)
        for (here, before), (there, after) in pairwise(line)
        if before.fastest.kernel != after.fastest.kernel
    ]


def siblings(suite: Suite, found: Sequence[Contest]) -> list[Kin]:
    """Return each kernel on the problems of a group against itself on the first of them."""
    at = {(contest.problem, contest.setting): contest for contest in found}
    return [
        Kin(setting, row, first, contest.faster(row, first))
        for base, *others in ([entry.problem.id for entry in group] for group in suite.groups())
        for setting in dict.fromkeys(contest.setting for contest in found)
        for contest in (at.get((other, setting)) for other in others)
        if contest is not None and (base, setting) in at
        for row in contest.ranked
        if (first := at[base, setting].of(row.kernel))
    ]


def _lines(sweep: Sweep, axis: str, by_problem: dict[str, list[Contest]]) -> Iterable[list[tuple[Any, Contest]]]:
    """Group contests that differ in this axis (and in what is tied to it) alone, with the axis and sorted by it."""
    moving = {axis, *sweep.tied} if axis in sweep.tied else {axis}
    lines: dict[Any, list[tuple[Any, Contest]]] = defaultdict(list)
    for entry in sweep.entries():
        rest = tuple(getattr(entry.problem, name) for name in entry.problem.axes() if name not in moving)
        for contest in by_problem.get(entry.problem.id, []):
            lines[contest.setting, rest].append((getattr(entry.problem, axis), contest))
    return [sorted(line, key=lambda pair: pair[0]) for line in lines.values()]


def find_run(suite: Suite, store: Store, run_id: str | None) -> str:
    """Return the run asked for, or the latest that has a time for a problem of the suite. Raises UsageError."""
    if run_id is not None:
        return str(store.find_run(run_id)["run_id"])
    wanted = {entry.problem.id for entry in suite.entries()}
    for known in reversed(store.run_ids()):
        if any(r.problem in wanted and is_timed(r) for r, _ in store.results(known)):
            return known
    raise UsageError(f"{suite.name}: no run in {store.path} has a time for it; `kernelmark run {suite.name}` makes one")
