"""The problems of an experiment, and the jobs that measure them."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kernelmark.bench.claims.catalog import Experiment, experiment_named
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.plan.case import Plan, PlannedJob, jobs
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import Suite, find_suite
from kernelmark.bench.plan.sweep import Entry


class Chosen(Suite, frozen=True):
    """A suite of entries that were chosen one by one, in groups of siblings."""

    picked: tuple[tuple[Entry, ...], ...] = ()

    def groups(self) -> Iterator[list[Entry]]:
        yield from map(list, self.picked)


class Layered(msgspec.Struct, frozen=True):
    """An entry of an experiment, the problem that it is at the suite's own batch, and its batch.

    network: its suite, and the network where the suite has several.
    """

    suite: str
    entry: Entry
    base: Problem
    batch: int
    network: str


def entries(experiment: Experiment, registry: Registry) -> list[Layered]:
    """Return the problems of an experiment, each at every batch that it asks for. Raises UsageError."""
    suites = [find_suite(name, registry) for name in experiment.problems]
    return [
        found
        for suite in suites
        for entry in suite.entries()
        if (not experiment.parts or entry.part in experiment.parts) and matches(entry.problem.id, experiment.only)
        for found in _at_batches(suite, entry, experiment.batches)
    ]


def chosen(siblings: Sequence[Layered]) -> Suite:
    """Return a group of siblings as a suite by the name of theirs."""
    return Chosen(name=siblings[0].suite, title="", picked=(tuple(layer.entry for layer in siblings),))


def grouped(layers: Sequence[Layered], together: Sequence[str]) -> list[list[Layered]]:
    """Return the entries in groups of those whose problems differ in these axes alone; each for itself without any."""
    groups: dict[Any, list[Layered]] = {}
    for number, layer in enumerate(layers):
        problem = layer.entry.problem
        alike = tuple(getattr(problem, axis) for axis in problem.axes() if axis not in together)
        groups.setdefault((problem.op, *alike) if together else number, []).append(layer)
    return list(groups.values())


def _at_batches(suite: Suite, entry: Entry, batches: tuple[int, ...]) -> Iterator[Layered]:
    own = f"{suite.name} {entry.network}".strip()
    if not batches or batch_axis(entry.problem) not in entry.problem.axes():  # an aggregation has no images
        yield Layered(suite.name, entry, entry.problem, batch_of(entry.problem), own)
        return
    for batch in batches:
        problem = msgspec.structs.replace(entry.problem, **{batch_axis(entry.problem): batch})
        network = f"{entry.network} batch {batch}".strip() if entry.part else ""
        placed = msgspec.structs.replace(entry, problem=problem, network=network)
        yield Layered(suite.name, placed, entry.problem, batch, own)


def batch_axis(problem: Problem) -> str:
    """Return the axis along which images lie: n of a convolution; of a layer's product, the rows of what they enter by.

    Weights' gradients (TN) sum over them.
    """
    if "n" in problem.axes() and problem.op == "conv":
        return "n"
    return "k" if getattr(problem, "layout", "") == "TN" else "m"


def batch_of(problem: Problem) -> int:
    """Return how many images a problem holds, where it is a layer's."""
    return int(getattr(problem, batch_axis(problem), 1))


def thread_counts(experiment: Experiment) -> tuple[int, ...]:
    """Return the thread counts of the experiment that this machine has, and all that it has."""
    everything = cpu_count()
    return tuple(sorted({*(count for count in experiment.threads if count < everything), everything}))


def planned(name: str, registry: Registry, devices: tuple[str, ...]) -> tuple[Plan, list[PlannedJob]]:
    """Return how an experiment is measured on these devices, and the jobs that it needs, groups of siblings together.

    An experiment on the CPU has contenders on the CPU alone. The caller may replace `spread_s` of the plan. Raises
    UsageError for a name that no experiment has.
    """
    return planned_jobs(experiment_named(name), registry, devices)


def planned_jobs(experiment: Experiment, registry: Registry, devices: tuple[str, ...]) -> tuple[Plan, list[PlannedJob]]:
    """Return how an experiment is measured on these devices, and its jobs."""
    how = plan(experiment, devices if experiment.device == "cuda" else ("cpu",))
    groups = grouped(entries(experiment, registry), experiment.together)
    return how, list(jobs([chosen(group) for group in groups], registry, how))


def plan(experiment: Experiment, devices: tuple[str, ...]) -> Plan:
    """Return the plan with which an experiment is measured here."""
    return Plan(
        devices=devices,
        kernels=experiment.kernels,
        threads=thread_counts(experiment),
        max_time_s=experiment.max_time,
        isas=experiment.isas,
        processes=experiment.processes,
        spread_s=experiment.spread,
        ceilings=False,
        suites=experiment.problems,
    )
