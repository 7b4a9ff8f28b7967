"""Who wins where on the problems of a suite, and between which sizes another kernel certainly takes over."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.sweep import Entry, Sweep
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Contest, Ratio, Setting, contests, is_timed
from kernelmark.bench.report.leads import know_leads

#: Places of a line within which it has to be certain who was ahead before a takeover, and who is after it.
REACH = 8
#: The columns that a contest and its table look at.
NEEDED = (
    "run_id", "problem", "kernel", "device", "device_name", "mode", "dtype", "numerics", "threads", "time_s_median",
    "time_s_ci95_low", "time_s_ci95_high", "disturbed", "isa", "job", "host", "device_uuid",
)  # fmt: skip
#: Problems of a suite that are gone through, which takes six seconds.
MOST_LISTED = 200_000


class Change(NamedTuple):
    """Along an axis one kernel takes over from another: before, `old` is certainly faster; after, `new` is.

    here, there: the axis at both. gain_before: old against new, before; gain: new against old, after.
    """

    along: str
    here: Any
    there: Any
    before: Contest
    after: Contest
    old: str
    new: str
    gain_before: Ratio
    gain: Ratio


#: Contests along an axis, each with its place there.
Line = list[tuple[Any, Contest]]


class Listed(Sweep, frozen=True):
    """A sweep whose problems have been made, for whoever goes through them several times."""

    made: Sequence[list[Entry]] = ()

    def groups(self) -> Iterator[list[Entry]]:
        """The groups as they were made."""
        return iter(self.made)


def listed(suite: Suite) -> Suite:
    """Return the suite with its problems made, once for all. Raises UsageError where they are too many."""
    size = sum(sweep.size for sweep in suite.sweeps)
    if size > MOST_LISTED:
        found = f"{suite.name}: has {size:,} problems, expected at most {MOST_LISTED:,}"
        raise UsageError(f"{found}; a suite of some of them answers for these")
    own = (Listed(**msgspec.structs.asdict(sweep), made=list(sweep.groups())) for sweep in suite.sweeps)
    return msgspec.structs.replace(suite, sweeps=tuple(own))


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
    found = contests((r for r in store.table(run_id, NEEDED).rows if r.problem in order), store)
    know_leads(found, store, run_id)
    return sorted(map(_by_lead, found), key=lambda c: order[c.problem])


def _by_lead(c: Contest) -> Contest:
    """Return the contest with its first two in the order that samples taken in turn give, where that is certain."""
    lead = c.lead
    if lead is None or lead.side != "slower":
        return c
    first, second, *others = c.ranked
    return c._replace(ranked=[second, first, *others])


def fastest_fft(c: Contest) -> Result | None:
    """Return the fastest kernel that convolves by FFT."""
    return next((r for r in c.ranked if r.numerics == "fft"), None)


def fft_speedup(c: Contest) -> Ratio | None:
    """Return the speedup of the fastest FFT over the fastest kernel that is none."""
    fft, rest = fastest_fft(c), next((r for r in c.ranked if r.numerics != "fft"), None)
    return c.faster(fft, rest) if fft and rest else None


def changes(suite: Suite, found: Sequence[Contest]) -> list[Change]:
    """Return where a kernel certainly takes over from another along the axes that the suite sweeps."""
    by_problem: dict[str, list[Contest]] = defaultdict(list)
    for contest in found:
        by_problem[contest.problem].append(contest)
    return [
        change
        for sweep in suite.sweeps
        for axis in sweep.along
        for line in _lines(sweep, axis, by_problem)
        for change in _takeovers(axis, line)
    ]


def _takeovers(axis: str, line: Line) -> list[Change]:
    """Return the takeovers along a line of sizes, each once: between neighbours, and beyond ties."""
    certain = [i for i, (_, contest) in enumerate(line) if (lead := contest.lead) and lead.certain]
    turns = sorted({*pairwise(range(len(line))), *pairwise(certain)})
    found = (change for turn in turns if (change := _takeover(axis, line, *turn)))
    return list({(change.here, change.there, change.old, change.new): change for change in found}.values())


def _takeover(axis: str, line: Line, i: int, k: int) -> Change | None:
    """Return how the winner changes between two places of a line; None unless that is certain on both sides."""
    old, new = (line[place][1].fastest.kernel for place in (i, k))
    before = _nearest_certain(line[max(0, i + 1 - REACH) : i + 1][::-1], old, new) if old != new else None
    after = _nearest_certain(line[k : k + REACH], new, old) if before else None
    if before is None or after is None:
        return None
    (here, earlier, lead), (there, later, gain) = before, after
    return Change(axis, here, there, earlier, later, old, new, lead, gain)


def _nearest_certain(line: Iterable[tuple[Any, Contest]], one: str, other: str) -> tuple[Any, Contest, Ratio] | None:
    """Return the first place where it is certain which of two kernels is faster; None if it is the other one."""
    for at, contest in line:
        ours, theirs = contest.of(one), contest.of(other)
        ratio = contest.faster(ours, theirs) if ours and theirs else None
        if ratio and ratio.certain:
            return (at, contest, ratio) if ratio.side == "faster" else None
    return None


def siblings(suite: Suite, found: Sequence[Contest]) -> list[Kin]:
    """Return each kernel on the problems of a group against itself on the first of them."""
    at = {(contest.problem, contest.setting): contest for contest in found}
    settings = list(dict.fromkeys(contest.setting for contest in found))
    return [
        Kin(setting, row, first, contest.faster(row, first))
        for base, *others in ([entry.problem.id for entry in group] for group in suite.groups())
        if others
        for setting in settings
        for contest in (at.get((other, setting)) for other in others)
        if contest is not None and (base, setting) in at
        for row in contest.ranked
        if (first := at[base, setting].of(row.kernel))
    ]


def _lines(sweep: Sweep, axis: str, by_problem: dict[str, list[Contest]]) -> Iterable[Line]:
    """Group contests that differ in this axis (and in what is tied to it) alone, with the axis and sorted by it."""
    moving = {axis, *sweep.tied} if axis in sweep.tied else {axis}
    lines: dict[Any, Line] = defaultdict(list)
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
