"""Who wins where: kernels ranked on each problem of a suite, and between which sizes another one takes over."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from bench.measure.stats import speedup
from bench.plan.dtypes import precision
from bench.plan.errors import UsageError
from bench.plan.operation import Problem
from bench.plan.suites import Suite, Sweep
from bench.record.result import Result
from bench.record.store import Store

#: Seconds a call, by process.
Samples = Callable[[Result], Sequence[Sequence[float]]]


class Setting(NamedTuple):
    """What must agree for kernels to be compared."""

    device: str
    device_name: str
    threads: int
    mode: str
    precision: str

    @property
    def title(self) -> str:
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}, " if self.device == "cpu" else ""
        return f"{self.device_name}, {threads}{self.mode}, {self.precision}"


class Ratio(NamedTuple):
    """How many times faster one is than another, and the interval of that."""

    median: float
    low: float | None = None
    high: float | None = None

    @property
    def certain(self) -> bool:
        """Whether the interval leaves no doubt which of the two is faster."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{self.median:.3g}x{interval}"


class Standing(NamedTuple):
    """The timed kernels of one problem in one setting, fastest first."""

    problem: Problem
    setting: Setting
    ranked: list[Result]
    samples: Samples

    @property
    def fastest(self) -> Result:
        return self.ranked[0]

    @property
    def lead(self) -> Ratio | None:
        """The fastest against the next."""
        return self.faster(self.ranked[0], self.ranked[1]) if len(self.ranked) > 1 else None

    @property
    def fft(self) -> Result | None:
        """The fastest that convolves by FFT."""
        return next((r for r in self.ranked if r.numerics == "fft"), None)

    @property
    def fft_speedup(self) -> Ratio | None:
        """It against the fastest that does not."""
        rest = next((r for r in self.ranked if r.numerics != "fft"), None)
        return self.faster(self.fft, rest) if self.fft and rest else None

    def of(self, kernel: str) -> Result | None:
        return next((r for r in self.ranked if r.kernel == kernel), None)

    def faster(self, one: Result, other: Result) -> Ratio:
        """By the samples of the same rounds, where they were taken in turn; otherwise from the two intervals."""
        own, others = self.samples(one), self.samples(other)
        if len(own) == len(others) and (found := speedup(others, own)):
            return Ratio(found.median, found.low, found.high)
        assert one.time_s_median
        assert other.time_s_median
        return Ratio(other.time_s_median / one.time_s_median)


class Change(NamedTuple):
    """Between two neighbours along an axis the winner changes; how much each gains where it wins."""

    along: str
    before: Standing
    after: Standing

    @property
    def gain(self) -> Ratio | None:
        """The new winner against the old one, where the old one is still there."""
        old = self.after.of(self.before.fastest.kernel)
        return self.after.faster(self.after.fastest, old) if old else None

    @property
    def gain_before(self) -> Ratio | None:
        """The old winner against the new one, before."""
        new = self.before.of(self.after.fastest.kernel)
        return self.before.faster(self.before.fastest, new) if new else None


def standings(suite: Suite, store: Store, run_id: str) -> list[Standing]:
    """For each problem of the suite and each setting that it was timed in, in the order of the suite."""
    found: dict[str, dict[Setting, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for r, _ in store.results(run_id):
        if r.time_s_median is not None:
            name = ", ".join(filter(None, (r.device_name, r.isa)))
            setting = Setting(r.device, name, 0, r.mode, precision(r.dtype, r.numerics))
            found[r.problem][setting].append(r)

    def samples(r: Result) -> Sequence[Sequence[float]]:
        return store.by_process(run_id, r.case)

    problems = dict.fromkeys(entry.problem for entry in suite.entries())
    return [
        Standing(problem, setting._replace(threads=threads), sorted(rows, key=lambda r: r.time_s_median or 0), samples)
        for problem in problems
        for setting, every in found.get(problem.id, {}).items()
        for threads, rows in _by_threads(every)
    ]


def _by_threads(rows: list[Result]) -> Iterator[tuple[int, list[Result]]]:
    """At each thread count; a kernel that never has more than one stands beside the others too."""
    most = {r.kernel: max(other.threads for other in rows if other.kernel == r.kernel) for r in rows}
    for threads in sorted({r.threads for r in rows if most[r.kernel] > 1} or {1}):
        yield threads, [r for r in rows if r.threads == threads or most[r.kernel] == 1]


def changes(suite: Suite, found: Sequence[Standing]) -> list[Change]:
    """Where the winner changes from one size to the next along the axes that the suite sweeps."""
    by_problem: dict[Problem, list[Standing]] = defaultdict(list)
    for standing in found:
        by_problem[standing.problem].append(standing)
    return [
        Change(axis, before, after)
        for sweep in suite.sweeps
        for axis in sweep.along
        for line in _lines(sweep, axis, by_problem)
        for before, after in pairwise(line)
        if before.fastest.kernel != after.fastest.kernel
    ]


def _lines(sweep: Sweep, axis: str, by_problem: dict[Problem, list[Standing]]) -> Iterable[list[Standing]]:
    """Problems that differ in this axis (and in what is tied to it) alone, in one setting, in its order."""
    moving = {axis, *sweep.tied} if axis in sweep.tied else {axis}
    lines: dict[Any, list[Standing]] = defaultdict(list)
    for entry in sweep.entries():
        rest = tuple(getattr(entry.problem, name) for name in entry.problem.axes() if name not in moving)
        for standing in by_problem.get(entry.problem, []):
            lines[standing.setting, rest].append(standing)
    return [sorted(line, key=lambda s: getattr(s.problem, axis)) for line in lines.values()]


def find_run(suite: Suite, store: Store, run_id: str | None) -> str:
    """The run asked for, or the latest that has a time for a problem of the suite. Raises UsageError."""
    if run_id is not None:
        return str(store.find_run(run_id)["run_id"])
    wanted = {entry.problem.id for entry in suite.entries()}
    for known in reversed(store.run_ids()):
        if any(r.problem in wanted and r.time_s_median for r, _ in store.results(known)):
            return known
    raise UsageError(f"{suite.name}: no run in {store.path} has a time for it; `kernelmark run {suite.name}` makes one")
