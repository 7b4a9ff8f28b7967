"""The rows that an experiment rests on, and ratios between them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

from bench.claims.catalog import Experiment
from bench.claims.problems import Layered, chosen, entries, matches, plan
from bench.measure.stats import pooled_interval, speedup
from bench.plan.case import PlannedJob, case_of, jobs
from bench.plan.dtypes import precision
from bench.plan.modes import Mode
from bench.plan.operation import Problem
from bench.plan.registry import Registry
from bench.plan.status import Status
from bench.record.result import Result
from bench.record.store import Store
from bench.report.standings import Ratio

#: With two passes Student's interval would be twelve deviations wide.
MIN_PASSES = 3


class Row(NamedTuple):
    """A row with the problem that its id names."""

    result: Result
    problem: Problem

    @property
    def time_s(self) -> float:
        return self.result.time_s_median or 0.0

    @property
    def short(self) -> str:
        """The kernel without its operation."""
        return self.result.kernel.partition("/")[2]


class Setting(NamedTuple):
    """What must agree for rows to be compared, but for the device."""

    threads: int
    mode: str
    isa: str
    precision: str


class Evidence:
    """The rows of an experiment. `rows` have a time, `failed` have none and say why."""

    def __init__(
        self, store: Store, experiment: Experiment, layers: Sequence[Layered], results: Iterable[Result]
    ) -> None:
        self._store, self.experiment, self.layers = store, experiment, layers
        problems = {layer.entry.problem.id: layer.entry.problem for layer in self.layers}
        found = [Row(r, problems[r.problem]) for r in results]
        order = {name: i for i, name in enumerate(problems)}
        found.sort(key=lambda row: order[row.result.problem])
        self.all = found
        self.rows = [row for row in found if row.result.time_s_median is not None]
        self.failed = [row for row in found if row.result.status != Status.OK]

    def settings(self, rows: Sequence[Row]) -> Iterator[tuple[Setting, list[Row]]]:
        """Rows by setting; a kernel with one thread stands beside the threaded ones, since no more can be had of it."""
        counts = sorted({row.result.threads for row in rows if row.result.threads > 1}) or [1]
        threaded = {row.result.kernel for row in rows if row.result.threads > 1}
        found: dict[Setting, list[Row]] = defaultdict(list)
        for row in rows:
            r = row.result
            for threads in (r.threads,) if r.kernel in threaded else counts:
                found[Setting(threads, r.mode, r.isa, precision(r.dtype, r.numerics))].append(row)
        yield from found.items()

    def faster(self, one: Row, other: Row) -> Ratio:
        """How many times faster one is: from samples taken in turn where the two shared a job, else from intervals.

        Where both have several processes of one run, the ratio is formed pass by pass, free of what the passes have in
        common, with Student's interval over the passes.
        """
        if self._shared(one.result, other.result) and (found := speedup(self._groups(other), self._groups(one))):
            return Ratio(found.median, found.low, found.high)
        if passes := self._passes(one.result, other.result):
            interval = pooled_interval(passes)
            return Ratio(interval.median, interval.low, interval.high)
        return quotient(seconds(other.result), seconds(one.result))

    def _passes(self, one: Result, other: Result) -> list[list[float]]:
        """The ratio of each process of the one to that of the other in the same pass; none if they do not match."""
        ours, theirs = (self._store.parts(r.run_id, r.case) for r in (one, other))
        if one.run_id != other.run_id or len(ours) != len(theirs) or len(ours) < MIN_PASSES:
            return []
        return [[b.median_s / a.median_s] for a, b in zip(ours, theirs, strict=True)]

    def _shared(self, one: Result, other: Result) -> bool:
        names = ("run_id", "problem", "mode", "isa", "processes")
        same = all(getattr(one, name) == getattr(other, name) for name in names)
        return (
            same and one.kernel != other.kernel and (one.threads == other.threads or 1 in (one.threads, other.threads))
        )

    def _groups(self, row: Row) -> list[list[float]]:
        return self._store.by_process(row.result.run_id, row.result.case)


def seconds(r: Result) -> Ratio:
    """The time of a row with its interval."""
    assert r.time_s_median is not None
    return Ratio(r.time_s_median, r.time_s_ci95_low, r.time_s_ci95_high)


def quotient(above: Ratio, below: Ratio) -> Ratio:
    """One number over another that was measured apart: the interval holds whatever their errors have in common."""
    if above.low is None or above.high is None or not below.low or not below.high:
        return Ratio(above.median / below.median)
    return Ratio(above.median / below.median, above.low / below.high, above.high / below.low)


def times(ratio: Ratio, factor: float) -> Ratio:
    """A ratio and its interval, scaled."""
    low, high = (None if end is None else end * factor for end in (ratio.low, ratio.high))
    return Ratio(ratio.median * factor, low, high)


def gather(
    store: Store, registry: Registry, experiment: Experiment, results: Iterable[Result], mode: str = ""
) -> Evidence:
    """The experiment's rows among these, which stand run by run, the latest last.

    Of a problem, thread count and instruction set, those of the run that has most of the kernels, from as many
    processes as are asked for; the latest where several do. mode: that alone, where one is given.
    """
    layers = entries(experiment, registry)
    wanted = {layer.entry.problem.id for layer in layers}
    groups: dict[tuple[Any, ...], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for r in results:
        asked = r.problem in wanted and r.isa in experiment.isas and matches(r.kernel, experiment.kernels)
        if asked and r.mode != Mode.VERIFY and mode in ("", r.mode):
            groups[r.problem, r.threads, r.isa, r.mode][r.run_id].append(r)
    best = (max(reversed(runs.values()), key=partial(_rank, experiment)) for runs in groups.values())
    return Evidence(store, experiment, layers, (r for found in best for r in found))


def _rank(experiment: Experiment, results: Sequence[Result]) -> tuple[int, int]:
    """How many kernels have a time, and from how many of the processes that are asked for."""
    ok = [r for r in results if r.status == Status.OK]
    return len(ok), min([experiment.processes, *(r.processes for r in ok)])


class Known:
    """Which cases some runs hold, and from how many processes."""

    def __init__(self, store: Store, run_ids: Sequence[str]) -> None:
        self._runs = [{r.case: _processes(r) for r, _ in store.results(run_id)} for run_id in run_ids]

    def has(self, planned: PlannedJob, registry: Registry, processes: int) -> bool:
        """Whether one of the runs has every row of a job, from as many processes as are asked for."""
        cases = [case_of(planned.job, registry.kernels[name]) for name in planned.job.kernels]
        return any(all(run.get(case, 0) >= processes for case in cases) for run in self._runs)

    def lacks(self, experiment: Experiment, registry: Registry, devices: tuple[str, ...]) -> list[Layered]:
        """The entries of an experiment that have to be measured yet."""
        asked = plan(experiment, devices)
        return [
            layer
            for layer in entries(experiment, registry)
            if not all(
                self.has(planned, registry, experiment.processes)
                for planned in jobs([chosen([layer])], registry, asked)
            )
        ]


def _processes(r: Result) -> float:
    """A row without a time would have none from more processes either."""
    return r.processes if r.status == Status.OK else inf
