"""The rows that an experiment rests on, and ratios between them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from kernelmark.bench.claims.catalog import Experiment
from kernelmark.bench.claims.problems import Layered, entries, grouped
from kernelmark.bench.plan.case import Plan, PlannedJob, case_of
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Ratio, faster


class ExperimentRows:
    """The rows of an experiment. `rows` have a time, `failed` have a reason instead; problems: by their ids."""

    def __init__(
        self, store: Store, experiment: Experiment, layers: Sequence[Layered], results: Iterable[Result]
    ) -> None:
        self._store, self.experiment, self.layers = store, experiment, layers
        self.problems = {layer.entry.problem.id: layer.entry.problem for layer in layers}
        order = {name: i for i, name in enumerate(self.problems)}
        self.all = sorted(results, key=lambda r: order[r.problem])
        self.rows = [r for r in self.all if r.time_s_median is not None]
        self.failed = [r for r in self.all if r.status != Status.OK]

    def faster(self, one: Result, other: Result) -> Ratio:
        """Return how many times faster `one` is than `other`."""
        return faster(self._store, one, other)


def gather(
    store: Store, registry: Registry, experiment: Experiment, results: Iterable[Result], mode: str = ""
) -> ExperimentRows:
    """Return the experiment's rows among these, which stand run by run, the latest last.

    Of a problem, thread count and instruction set, those of the run that has most of the kernels, from as many
    processes as are asked for, then the one that has most of the siblings; the latest where several do. mode: that
    alone, where one is given.
    """
    layers = entries(experiment, registry)
    groups = enumerate(grouped(layers, experiment.together))
    group_of = {layer.entry.problem.id: number for number, group in groups for layer in group}
    found: dict[tuple[Any, ...], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    company: Counter[tuple[Any, ...]] = Counter()
    for r in results:
        asked = r.problem in group_of and r.isa in experiment.isas and matches(r.kernel, experiment.kernels)
        if asked and r.mode != Mode.VERIFY and mode in ("", r.mode):
            found[r.problem, r.threads, r.isa, r.mode][r.run_id].append(r)
            company[group_of[r.problem], r.threads, r.isa, r.mode, r.run_id] += r.status == Status.OK

    def rank(rows: Sequence[Result]) -> tuple[int, int, int]:
        first = rows[0]
        siblings = company[group_of[first.problem], first.threads, first.isa, first.mode, first.run_id]
        return *_own_rank(experiment, rows), siblings

    best = (max(reversed(runs.values()), key=rank) for runs in found.values())
    return ExperimentRows(store, experiment, layers, (r for rows in best for r in rows))


def _own_rank(experiment: Experiment, results: Sequence[Result]) -> tuple[int, int]:
    """Return how many kernels have a time, and from how many of the processes that are asked for."""
    ok = [r for r in results if r.status == Status.OK]
    return len(ok), min([experiment.processes, *(r.processes for r in ok)])


class Known:
    """Which cases some runs hold, and from how many processes."""

    def __init__(self, store: Store, run_ids: Sequence[str]) -> None:
        self._runs = [{r.case: _processes(r) for r, _ in store.results(run_id)} for run_id in run_ids]

    def has(self, planned: PlannedJob, registry: Registry, processes: int) -> bool:
        """Whether one of the runs has every row of a job, from as many processes as are asked for."""
        job = planned.job
        cases = [case_of(job, problem, registry.kernels[kernel]) for problem, kernel in job.entrants]
        return any(all(run.get(case, 0) >= processes for case in cases) for run in self._runs)

    def lacks(self, how: Plan, planned: Iterable[PlannedJob], registry: Registry) -> list[PlannedJob]:
        """Return the jobs that have to be measured yet, of those that are measured by a plan."""
        return [job for job in planned if not self.has(job, registry, how.processes)]


def _processes(r: Result) -> float:
    """Return how many processes a row is from; infinity without a time, which more would not give either."""
    return r.processes if r.status == Status.OK else inf
