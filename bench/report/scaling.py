"""Data and model parallelism on paper: how many batches w workers finish while one computes one, by strategy.

Nothing here is measured, and nothing is written to a store. The batch is the sum of the network's layers, the additions
are a row of `aggregate`, and the link is stated by the user; docs/scaling.md has the formula and what it assumes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import suite_names
from kernelmark.bench.record.records import Layer
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Ratio, Setting, is_timed, parallel, time_of
from kernelmark.bench.report.networks import Batch, batches, exchanged, parameters
from kernelmark.bench.report.strategies import BY_STRIPES, STRATEGIES, strategy_name

FLOAT_BYTES = 4


class ScalingQuestion(NamedTuple):
    """What the user states: a network, numbers of workers, and what each link carries in a second, each way."""

    network: str
    workers: Sequence[int]
    link_bytes_per_s: float


class Point(NamedTuple):
    """One strategy at one number of workers.

    row: of whose time `aggregation` is `scaled` times, the seconds that the additions take; link_s: those of the link.
    speedup: with nothing hidden; hidden: if all of it were hidden while the batch is computed.
    """

    kernel: str
    workers: int
    row: Result
    scaled: float
    aggregation: Ratio
    link_s: float
    speedup: Ratio
    hidden: Ratio


class ScalingSection(NamedTuple):
    """The points of a setting, in which the batch and the additions were measured.

    points: of data parallelism. divided: of model parallelism, in which each worker computes a part of every layer.
    """

    setting: Setting
    batch: Batch
    points: list[Point]
    divided: list[Point]


class Scaling(NamedTuple):
    """What is computed for a network. parameters: weights without biases; the runs: of the batch, of the additions.

    exchanged: elements of which an aggregation moves as much as a step of model parallelism.
    """

    asked: ScalingQuestion
    parameters: int
    compute_run: str
    aggregation_run: str
    sections: list[ScalingSection]
    exchanged: int

    @property
    def gradient_bytes(self) -> int:
        """Return the bytes of a gradient in FP32."""
        return self.parameters * FLOAT_BYTES


Found = tuple[Result, dict[str, Any]]


def computed(
    store: Store, registry: Registry, asked: ScalingQuestion, run_id: str | None, other: str | None
) -> Scaling:
    """Compute the model from the rows of a run, and of another for aggregation; by default of the latest that have any.

    The store shows rows of aggregations alone afterwards. Raises UsageError where rows are missing.
    """
    compute_run, layers, found = _layers_of(store, asked.network, run_id)
    size = parameters(layers, registry)
    moved = exchanged((layer.count, registry.problem(layer.problem)) for layer in layers if layer.part == "forward")
    store.select(Selection(op=("aggregate",)))
    for known in _runs(store, other):
        rows = [(r, dims) for r, dims in store.results(known) if is_timed(r) and _is_known(r)]
        sections = []
        for setting, batch in found.items():
            beside = _beside(setting, rows)
            if points := list(_points(asked, size, batch, beside)):
                sections.append(ScalingSection(setting, batch, points, list(_divided(asked, moved, batch, beside))))
        if sections:
            return Scaling(asked, size, compute_run, known, sections, moved)
    raise UsageError(_unmeasured(store, asked, size, found, other))


def _runs(store: Store, run_id: str | None) -> list[str]:
    """Return the run asked for, or all, the latest first."""
    return store.run_ids()[::-1] if run_id is None else [store.find_run(run_id)["run_id"]]


def _layers_of(store: Store, network: str, run_id: str | None) -> tuple[str, list[Layer], dict[Setting, Batch]]:
    """Return the run, the layers, and the batch in each setting. Raises UsageError where no run has it."""
    names: dict[str, None] = {}
    for known in _runs(store, run_id):
        layers = store.layers(known)
        names |= dict.fromkeys(layer.network for layer in layers)
        own = [layer for layer in layers if layer.network == network]
        if own and (found := batches(own, store.layer_results(known))):
            return known, own, found
    where = f"run {run_id}" if run_id else f"no run in {store.path}"
    suite = network.partition(" ")[0]
    if network not in names and suite not in suite_names():
        known_ones = ", ".join(names) or "no network"
        raise UsageError(
            f"{network}: {where} has layers of it, but of {known_ones}; `kernelmark run alexnet` makes one"
        )
    lacks = "lacks times" if run_id else "has times"
    raise UsageError(
        f"{network}: {where} {lacks} of all its layers, forward and backward; `kernelmark run {suite}` measures them"
    )


def _is_known(r: Result) -> bool:
    return r.op == "aggregate" and r.dtype == "f32" and strategy_name(r.kernel) in STRATEGIES


def _beside(setting: Setting, rows: Iterable[Found]) -> dict[str, list[Found]]:
    """Return the rows of each kernel in a setting; one that never has more than one thread stands in all."""
    own: dict[str, list[Found]] = {}
    for r, dims in rows:
        if (r.device, r.device_name, r.mode, r.isa) == (setting.device, setting.device_name, setting.mode, setting.isa):
            own.setdefault(r.kernel, []).append((r, dims))
    found = {}
    for kernel, every in own.items():
        threads = setting.threads if any(r.threads > 1 for r, _ in every) else every[0][0].threads
        found[kernel] = [(r, dims) for r, dims in every if r.threads == threads]
    return found


def _points(
    asked: ScalingQuestion, parameters: int, batch: Batch, by_kernel: dict[str, list[Found]]
) -> Iterator[Point]:
    """Yield the points of data parallelism, in which each worker computes a whole batch."""
    for kernel, rows in by_kernel.items():
        for workers in asked.workers if rows else ():
            yield _point(asked, kernel, workers, parameters, batch.seconds, rows)


def _divided(asked: ScalingQuestion, elements: int, batch: Batch, by_kernel: dict[str, list[Found]]) -> Iterator[Point]:
    """Yield the points of model parallelism, in which each worker computes its part of every layer of one batch."""
    for kernel, rows in by_kernel.items():
        for workers in asked.workers if rows and strategy_name(kernel) in BY_STRIPES else ():
            part = batch.seconds.scaled(1 / workers)
            yield _point(asked, kernel, workers, elements, part, rows, update=False)


def _point(
    asked: ScalingQuestion,
    kernel: str,
    workers: int,
    n: int,
    compute: Ratio,
    rows: Sequence[Found],
    update: bool = True,
) -> Point:
    """Return a point: w times as much as is computed alone in the time of `compute`, of n elements exchanged."""
    strategy = STRATEGIES[strategy_name(kernel)]
    r, dims = min(rows, key=lambda found: _distance(found, workers, n, update))
    # An aggregation moves w gradients and their sum.
    scaled = (workers + 1) / (dims["w"] + 1) * n / dims["n"] * strategy.share(workers) if workers > 1 else 0.0
    aggregation = time_of(r).scaled(scaled)
    link_s = strategy.link_s(workers, n * FLOAT_BYTES, asked.link_bytes_per_s)
    gains = (parallel(workers, compute, aggregation.plus(link_s), hidden) for hidden in (False, True))
    return Point(kernel, workers, r, scaled, aggregation, link_s, *gains)


def _distance(found: Found, workers: int, n: int, update: bool) -> tuple[float, float, bool]:
    """Return how far a row is from what is asked: in workers, in elements, and in whether it updates the weights."""
    dims = found[1]
    apart = abs(math.log(workers / dims["w"])), abs(math.log(n / dims["n"]))
    return *apart, (dims.get("step") == "update") != update


def _unmeasured(
    store: Store, asked: ScalingQuestion, parameters: int, found: dict[Setting, Batch], run_id: str | None
) -> str:
    """Return the complaint that names the command which measures what is missing."""
    setting = next(iter(found))
    counts = sorted({min(max(2, workers), 8) for workers in asked.workers})
    problems = " ".join(f"aggregate/w{count}n{parameters}/f32/update" for count in counts)
    where = f"run {run_id}" if run_id else f"no run in {store.path}"
    verb = "lacks" if run_id else "has"
    return (
        f"{asked.network}: {where} {verb} a time of an aggregation as its layers were measured ({setting.title}); "
        f"`kernelmark run {problems}` measures them"
    )
