"""Data parallelism on paper: how many batches w workers finish while one computes one, by strategy of aggregation.

Nothing here is measured, and nothing is written to a store. The batch is the sum of the network's layers, the additions
are a row of `aggregate`, and the link is stated by the user; docs/scaling.md has the formula and what it assumes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import suite_names
from kernelmark.bench.record.reader import Layer
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Ratio, Setting, is_timed, parallel, time_of
from kernelmark.bench.report.networks import Batch, batches, parameters
from kernelmark.bench.report.strategies import STRATEGIES, strategy_name

FLOAT_BYTES = 4


class Asked(NamedTuple):
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


class Section(NamedTuple):
    """The points of a setting, in which the batch and the additions were measured."""

    setting: Setting
    batch: Batch
    points: list[Point]


class Scaling(NamedTuple):
    """What is computed for a network. parameters: weights without biases; the runs: of the batch, of the additions."""

    asked: Asked
    parameters: int
    compute_run: str
    aggregation_run: str
    sections: list[Section]

    @property
    def gradient_bytes(self) -> int:
        """Return the bytes of a gradient in FP32."""
        return self.parameters * FLOAT_BYTES


Found = tuple[Result, dict[str, Any]]


def computed(store: Store, registry: Registry, asked: Asked, run_id: str | None, other: str | None) -> Scaling:
    """Compute the model from the rows of a run, and of another for aggregation; by default of the latest that have any.

    The store shows rows of aggregations alone afterwards. Raises UsageError where rows are missing.
    """
    compute_run, layers, found = _layers_of(store, asked.network, run_id)
    size = parameters(layers, registry)
    store.select(Selection(op=("aggregate",)))
    for known in _runs(store, other):
        rows = [(r, dims) for r, dims in store.results(known) if is_timed(r) and _is_known(r)]
        sections = [
            Section(setting, batch, points)
            for setting, batch in found.items()
            if (points := list(_points(asked, size, batch, _beside(setting, rows))))
        ]
        if sections:
            return Scaling(asked, size, compute_run, known, sections)
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


def _points(asked: Asked, parameters: int, batch: Batch, by_kernel: dict[str, list[Found]]) -> Iterator[Point]:
    compute = Ratio(*batch.seconds)
    for kernel, rows in by_kernel.items():
        strategy = STRATEGIES[strategy_name(kernel)]
        for workers in asked.workers if rows else ():
            r, dims = min(rows, key=lambda found: _distance(found, workers, parameters))
            # An aggregation moves w gradients and their sum.
            scaled = (workers + 1) / (dims["w"] + 1) * parameters / dims["n"] * strategy.share(workers)
            scaled = scaled if workers > 1 else 0.0
            aggregation = time_of(r).scaled(scaled)
            link_s = strategy.link_s(workers, parameters * FLOAT_BYTES, asked.link_bytes_per_s)
            gains = (parallel(workers, compute, aggregation.plus(link_s), hidden) for hidden in (False, True))
            yield Point(kernel, workers, r, scaled, aggregation, link_s, *gains)


def _distance(found: Found, workers: int, parameters: int) -> tuple[float, float, bool]:
    """Return how far a row is from what is asked: in workers, in elements, and in whether it updates the weights."""
    dims = found[1]
    apart = abs(math.log(workers / dims["w"])), abs(math.log(parameters / dims["n"]))
    return *apart, dims.get("step") != "update"


def _unmeasured(store: Store, asked: Asked, parameters: int, found: dict[Setting, Batch], run_id: str | None) -> str:
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
