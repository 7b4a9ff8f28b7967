"""The problems of an experiment, the jobs that measure them, and their rows in a store."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

import msgspec

from kernelmark.bench.claims.catalog import Experiment, experiment_named
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.disturbance import ran_beyond
from kernelmark.bench.plan.case import Job, Plan, PlannedJob, case_of, jobs
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.suites import Suite, find_suite
from kernelmark.bench.plan.sweep import Entry
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import grouped, is_fair


class Chosen(Suite, frozen=True):
    """A suite of given entries, already divided into comparison groups."""

    picked: tuple[tuple[Entry, ...], ...] = ()

    def groups(self) -> Iterator[list[Entry]]:
        yield from map(list, self.picked)


class Layered(msgspec.Struct, frozen=True):
    """An entry of an experiment at one batch size. base: the entry's problem at the suite's batch size.

    network: the suite's name, followed by the network's name if the suite has several networks.
    """

    suite: str
    entry: Entry
    base: Problem
    batch: int
    network: str


def entries(experiment: Experiment, registry: Registry) -> list[Layered]:
    """Return the problems of an experiment, at each of its batch sizes. Raises UsageError."""
    suites = [find_suite(name, registry) for name in experiment.problems]
    return [
        layer
        for suite in suites
        for entry in suite.entries()
        if (not experiment.parts or entry.part in experiment.parts) and matches(entry.problem.id, experiment.only)
        for layer in _at_batches(suite, entry, experiment.batches)
    ]


def comparison_groups(layers: Sequence[Layered], together: Sequence[str]) -> list[list[Layered]]:
    """Return the entries in groups whose problems differ only in the axes `together`; without axes, groups of one."""

    def alike(layer: Layered) -> tuple[Any, ...]:
        problem = layer.entry.problem
        return problem.op, *(getattr(problem, axis) for axis in problem.axes() if axis not in together)

    return list(grouped(layers, alike).values()) if together else [[layer] for layer in layers]


def _at_batches(suite: Suite, entry: Entry, batches: tuple[int, ...]) -> Iterator[Layered]:
    name = f"{suite.name} {entry.network}".strip()
    if not batches or batch_axis(entry.problem) not in entry.problem.axes():  # an aggregation has no images
        yield Layered(suite.name, entry, entry.problem, batch_of(entry.problem), name)
        return
    for batch in batches:
        problem = msgspec.structs.replace(entry.problem, **{batch_axis(entry.problem): batch})
        network = f"{entry.network} batch {batch}".strip() if entry.part else ""
        placed = msgspec.structs.replace(entry, problem=problem, network=network)
        yield Layered(suite.name, placed, entry.problem, batch, name)


def batch_axis(problem: Problem) -> str:
    """Return the axis that counts the images: n for a convolution; m for a matrix product, or k if its layout is TN.

    A product with layout TN is a gradient of weights, which is a sum over the images.
    """
    if "n" in problem.axes() and problem.op == "conv":
        return "n"
    return "k" if getattr(problem, "layout", "") == "TN" else "m"


def batch_of(problem: Problem) -> int:
    """Return the number of images in a layer's problem."""
    return int(getattr(problem, batch_axis(problem), 1))


def thread_counts(experiment: Experiment) -> tuple[int, ...]:
    """Return the number of this machine's threads, and the experiment's thread counts below it."""
    everything = cpu_count()
    return tuple(sorted({*(count for count in experiment.threads if count < everything), everything}))


def planned(of: str | Experiment, registry: Registry, devices: tuple[str, ...]) -> tuple[Plan, list[PlannedJob]]:
    """Return the plan of an experiment on these devices, and its jobs, one comparison group after another.

    of: an experiment or its name. An experiment on the CPU has only contenders on the CPU. The caller may replace
    `spread_s` of the plan. Raises UsageError for an unknown experiment.
    """
    experiment = experiment_named(of) if isinstance(of, str) else of
    how = Plan(
        devices=devices if experiment.device == "cuda" else ("cpu",),
        kernels=experiment.kernels,
        threads=thread_counts(experiment),
        max_time_s=experiment.max_time,
        isas=experiment.isas,
        processes=experiment.processes,
        spread_s=experiment.spread,
        ceilings=False,
        suites=experiment.problems,
    )
    groups = comparison_groups(entries(experiment, registry), experiment.together)
    suites: list[Suite] = [
        Chosen(name=group[0].suite, title="", picked=(tuple(layer.entry for layer in group),)) for group in groups
    ]
    return how, list(jobs(suites, registry, how))


class ExperimentRows:
    """The rows of an experiment. rows: those with a time that may be compared (`is_fair`). problems: problems by id.

    failed: rows that are not `ok`, or whose kernel used more CPUs or threads than it was given.
    """

    def __init__(self, store: Store, experiment: Experiment, layers: list[Layered], results: Iterable[Result]) -> None:
        self.store, self.experiment, self.layers = store, experiment, layers
        self.problems = {layer.entry.problem.id: layer.entry.problem for layer in layers}
        order = {name: i for i, name in enumerate(self.problems)}
        self.all = sorted(results, key=lambda r: order[r.problem])
        self.rows = [r for r in self.all if is_fair(r)]
        self.failed = [r for r in self.all if r.status != Status.OK or ran_beyond(r.disturbed)]


def gather(
    store: Store, registry: Registry, experiment: Experiment, results: Iterable[Result], mode: str = ""
) -> ExperimentRows:
    """Return the experiment's rows, chosen from `results`, which are sorted by run, oldest first.

    All rows of one problem, thread count, instruction set and mode come from one run: the run with the most `ok`
    kernels. Ties go to the run with the most processes (up to the experiment's number), then to the run with the most
    `ok` rows in the comparison group, then to the latest run. mode: if given, use only rows of this mode.
    """
    layers = entries(experiment, registry)
    groups = enumerate(comparison_groups(layers, experiment.together))
    group_of = {layer.entry.problem.id: number for number, group in groups for layer in group}
    rows_of: dict[tuple[Any, ...], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    company: Counter[tuple[Any, ...]] = Counter()
    for r in results:
        is_wanted = r.problem in group_of and r.isa in experiment.isas and matches(r.kernel, experiment.kernels)
        if is_wanted and r.mode != Mode.VERIFY and mode in ("", r.mode):
            rows_of[r.problem, r.threads, r.isa, r.mode][r.run_id].append(r)
            company[group_of[r.problem], r.threads, r.isa, r.mode, r.run_id] += r.status == Status.OK

    def rank(rows: Sequence[Result]) -> tuple[int, int, int]:
        first, ok = rows[0], [r for r in rows if r.status == Status.OK]
        variants = company[group_of[first.problem], first.threads, first.isa, first.mode, first.run_id]
        return len(ok), min([experiment.processes, *(r.processes for r in ok)]), variants

    best = (max(reversed(runs.values()), key=rank) for runs in rows_of.values())
    return ExperimentRows(store, experiment, layers, (r for rows in best for r in rows))


class Known:
    """The cases that some runs have measured, each with the number of processes that measured it."""

    def __init__(self, store: Store, run_ids: Sequence[str]) -> None:
        # A row without a time needs no more processes, since they would give no time either.
        self._runs = [
            {r.case: r.processes if r.status == Status.OK else inf for r, _ in store.results(run_id)}
            for run_id in run_ids
        ]

    def lacks(self, how: Plan, planned: Iterable[PlannedJob], registry: Registry) -> list[PlannedJob]:
        """Return the jobs that no run has measured completely in at least the planned number of processes."""

        def has(job: Job) -> bool:
            cases = [case_of(job, problem, registry.kernels[kernel]) for problem, kernel in job.entrants]
            return any(all(run.get(case, 0) >= how.processes for case in cases) for run in self._runs)

        return [each for each in planned if not has(each.job)]
