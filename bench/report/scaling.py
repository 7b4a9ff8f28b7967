"""Compute the speedup of data and model parallelism: the batches of w workers in the time of one worker's batch.

Nothing here is measured or written to a store. The time of a batch is the sum over the network's layers, the time of
the additions is scaled from a row of `aggregate`, and the user gives the link's rate; docs/scaling.md has the formula
and its assumptions. Tables and JSON show published speedups next to the computed ones.
"""

import math
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import suite_names
from kernelmark.bench.plan.text import indented
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.records import Layer
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio, Setting, grouped, is_fair, multithreaded, parallel, time_of
from kernelmark.bench.report.layout import TableColumn, paragraph, table, table_of
from kernelmark.bench.report.networks import Batch, Found, batches, exchanged, parameters
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.strategies import BY_STRIPES, STATED, STRATEGIES, StatedSpeedup, strategy_name

FLOAT_BYTES = 4


class ScalingQuestion(NamedTuple):
    """The user's question: a network, numbers of workers, and the rate of each link in each direction."""

    network: str
    workers: Sequence[int]
    link_bytes_per_s: float


class Point(NamedTuple):
    """One strategy at one number of workers.

    aggregation: seconds of the additions, computed as `scaled` times the time of `row`. link_s: seconds on the link.
    speedup: without overlap. hidden: the speedup if additions and link overlap completely with the computation.
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
    """The points of one setting, in which both the batch and the additions were measured.

    points: of data parallelism. divided: of model parallelism, in which each worker computes a part of every layer.
    """

    setting: Setting
    batch: Batch
    points: list[Point]
    divided: list[Point]


class Scaling(NamedTuple):
    """The computed scaling of a network, from the layers of `compute_run` and the additions of `aggregation_run`.

    parameters: the number of weights without biases. exchanged: the number of elements whose
    aggregation moves as much data as a step of model parallelism.
    """

    question: ScalingQuestion
    parameters: int
    compute_run: str
    aggregation_run: str
    sections: list[ScalingSection]
    exchanged: int


def computed(
    store: Store, registry: Registry, question: ScalingQuestion, run_id: str | None, other: str | None
) -> Scaling:
    """Compute the scaling of a network from its layers in run `run_id` and the aggregations in run `other`.

    None stands for the latest run with such rows. Side effect: from then on, the store returns only rows of
    aggregations. Raises UsageError if rows are missing.
    """
    compute_run, layers, batch_of = _layers_of(store, question.network, run_id)
    size = parameters(layers, registry)
    moved = exchanged((layer.count, registry.problem(layer.problem)) for layer in layers if layer.part == "forward")
    store.select(Selection(op=("aggregate",)))
    for known in _runs(store, other):
        rows = [
            (r, dims) for r, dims in store.results(known) if r.dtype == "f32" and strategy_name(r.kernel) in STRATEGIES
        ]
        sections = []
        for setting, batch in batch_of.items():
            beside = _beside(setting, rows)
            if points := list(_points(question, size, batch, beside)):
                divided = list(_points(question, moved, batch, beside, divided=True))
                sections.append(ScalingSection(setting, batch, points, divided))
        if sections:
            return Scaling(question, size, compute_run, known, sections, moved)
    raise UsageError(_unmeasured(store, question, size, batch_of, other))


def _runs(store: Store, run_id: str | None) -> list[str]:
    """Return the given run, or all runs, the latest first."""
    return store.run_ids()[::-1] if run_id is None else [store.find_run(run_id)["run_id"]]


def _layers_of(store: Store, network: str, run_id: str | None) -> tuple[str, list[Layer], dict[Setting, Batch]]:
    """Return the run, the layers, and the batch in each setting. Raises UsageError if no run has them."""
    names: dict[str, None] = {}
    for known in _runs(store, run_id):
        layers = store.layers(known)
        names |= dict.fromkeys(layer.network for layer in layers)
        of_network = [layer for layer in layers if layer.network == network]
        if of_network and (batch_of := batches(of_network, store.layer_results(known))):
            return known, of_network, batch_of
    where = f"run {run_id}" if run_id else f"no run in {store.path}"
    suite = network.partition(" ")[0]
    if network not in names and suite not in suite_names():
        has, others = "has no" if run_id else "has", f", only of {', '.join(names)}" if names else ""
        raise UsageError(
            f"{network}: {where} {has} layers of this network{others}; `kernelmark run alexnet` measures AlexNet"
        )
    lacks = f"{'does not have' if run_id else 'has'} times of all its layers, forward and backward"
    raise UsageError(f"{network}: {where} {lacks}; `kernelmark run {suite}` measures them")


def _beside(setting: Setting, rows: Sequence[Found]) -> dict[str, list[Found]]:
    """Return the rows of each kernel in a setting; single-threaded kernels belong to every thread count."""
    threaded = multithreaded(r for r, _ in rows)
    timed = [row for row in rows if is_fair(row[0]) and setting.includes(row[0])]
    beside = (row for row in timed if row[0].threads == setting.threads or row[0].kernel not in threaded)
    return grouped(beside, lambda row: row[0].kernel)


def _points(
    question: ScalingQuestion, elements: int, batch: Batch, by_kernel: dict[str, list[Found]], divided: bool = False
) -> Iterator[Point]:
    """Yield the points of data parallelism, where each worker computes a batch and exchanges `elements` elements.

    divided: yield the points of model parallelism, where each worker computes a part of every layer of one batch.
    """
    for kernel, rows in by_kernel.items():
        modelled = not divided or strategy_name(kernel) in BY_STRIPES
        for workers in question.workers if rows and modelled else ():
            compute = batch.seconds.scaled(1 / workers) if divided else batch.seconds
            yield _point(question, kernel, workers, elements, compute, rows, not divided)


def _point(
    question: ScalingQuestion, kernel: str, workers: int, n: int, compute: Ratio, rows: Sequence[Found], update: bool
) -> Point:
    """Return the point of a strategy: each of `workers` workers takes `compute` seconds and exchanges n elements."""
    strategy = STRATEGIES[strategy_name(kernel)]
    r, dims = min(rows, key=lambda row: _distance(row, workers, n, update))
    # An aggregation moves w gradients and their sum.
    scaled = (workers + 1) / (dims["w"] + 1) * n / dims["n"] * strategy.share(workers) if workers > 1 else 0.0
    aggregation = time_of(r).scaled(scaled)
    link_s = strategy.link_s(workers, n * FLOAT_BYTES, question.link_bytes_per_s)
    gains = (parallel(workers, compute, aggregation.plus(link_s), hidden) for hidden in (False, True))
    return Point(kernel, workers, r, scaled, aggregation, link_s, *gains)


def _distance(row: Found, workers: int, n: int, update: bool) -> tuple[float, float, bool]:
    """Return a row's distances in workers and elements, and whether updating weights is not as in `update`."""
    dims = row[1]
    apart = abs(math.log(workers / dims["w"])), abs(math.log(n / dims["n"]))
    return *apart, (dims.get("step") == "update") != update


def _unmeasured(
    store: Store, question: ScalingQuestion, parameters: int, batch_of: dict[Setting, Batch], run_id: str | None
) -> str:
    setting = next(iter(batch_of))
    counts = sorted({min(max(2, workers), 8) for workers in question.workers})
    problems = " ".join(f"aggregate/w{count}n{parameters}/f32/update" for count in counts)
    where = f"run {run_id}" if run_id else f"no run in {store.path}"
    verb = "lacks" if run_id else "has"
    return (
        f"{question.network}: {where} {verb} an aggregation in the layers' setting ({setting.title}); "
        f"`kernelmark run {problems}` measures it"
    )


POINTS = (
    TableColumn("strategy", cell=lambda p: fmt.short(p.kernel)),
    TableColumn("workers", "right", cell=lambda p: str(p.workers)),
    TableColumn("speedup", cell=lambda p: str(p.speedup)),
    TableColumn("of linear", "right", spare=2, cell=lambda p: fmt.percent(p.speedup.median / p.workers)),
    TableColumn("if hidden", spare=4, cell=lambda p: str(p.hidden)),
    TableColumn("additions", "right", spare=1, cell=lambda p: fmt.seconds(p.aggregation.median) if p.scaled else ""),
    TableColumn("link", "right", spare=3, cell=lambda p: fmt.seconds(p.link_s) if p.link_s else ""),
    TableColumn("additions from", spare=5, cell=lambda p: _measured(p)),
)
TEXTS = (
    TableColumn("stated of"),
    TableColumn("workers", "right", spare=3),
    TableColumn("stated"),
    TableColumn("computed here"),
    TableColumn("by", spare=1),
    TableColumn("source", spare=2, wraps=24),
)


class ScalingPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The computed values of a strategy at a number of workers. Seconds are per batch; an unknown end is null.

    aggregation_s: `scaled` times the measured time of `aggregation_problem`. hidden: the speedup if additions and link
    overlapped completely with the computation.
    """

    kernel: str
    workers: int
    device: str
    device_name: str
    threads: int
    mode: str
    precision: str
    compute_s: float
    compute_s_low: float | None
    compute_s_high: float | None
    aggregation_problem: str
    scaled: float
    aggregation_s: float
    aggregation_s_low: float | None
    aggregation_s_high: float | None
    link_s: float
    speedup: float
    speedup_low: float | None
    speedup_high: float | None
    hidden: float
    hidden_low: float | None
    hidden_high: float | None


class StatedPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A speedup stated in a text, and the computed one. low, high: null if the text gives no number."""

    what: str
    workers: int
    low: float | None
    high: float | None
    source: str
    kernel: str
    speedup: float
    speedup_low: float | None
    speedup_high: float | None


class ScalingDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document that `scaling --json` prints: computed values, and the measured times that they are based on.

    computed, model_parallel: the points of data and of model parallelism. exchanged: the number of elements whose
    aggregation moves as much data as a step of model parallelism.
    """

    network: str
    parameters: int
    link_bytes_per_s: float
    compute_run: str
    aggregation_run: str
    computed: list[ScalingPoint]
    stated: list[StatedPoint]
    exchanged: int = 0
    model_parallel: list[ScalingPoint] = []


def render(scaling: Scaling) -> str:
    """Return a paragraph on the inputs of the computation, and tables for each setting."""
    return "\n\n".join([_head(scaling), *(part for section in scaling.sections for part in _section(scaling, section))])


def _head(scaling: Scaling) -> str:
    question = scaling.question
    size = f"{scaling.parameters:,} weights, {fmt.size(scaling.parameters * FLOAT_BYTES)} a gradient in FP32"
    runs = f"run {scaling.compute_run}" if scaling.compute_run == scaling.aggregation_run else (
        f"runs {scaling.compute_run} (layers) and {scaling.aggregation_run} (additions)"
    )  # fmt: skip
    return paragraph(
        f"{question.network}: {size}; a link of {fmt.size(round(question.link_bytes_per_s))}/s each way, as stated. "
        f"Computed, not measured: by the formula of docs/scaling.md from the rows of {runs}; each worker computes a "
        "whole batch."
    )


def _section(scaling: Scaling, section: ScalingSection) -> Iterator[str]:
    batch = section.batch
    yield paragraph(
        f"{section.setting.title}: {fmt.time(*batch.seconds[:3])} a batch forward and backward, by the fastest kernel "
        f"of each of {fmt.count(len(batch.rows), 'layer')}"
    )
    yield table_of(POINTS, section.points, titled=True)
    if section.divided:
        moved = fmt.size(scaling.exchanged * 2 * FLOAT_BYTES)
        yield paragraph(
            "Model parallelism: the workers share one batch, and each computes its part of every layer's outputs. They "
            f"exchange outputs and the gradients of inputs, {moved} in FP32."
        )
        yield table_of(POINTS, section.divided, titled=True)
    used = {point.row.case: point.row for point in (*section.points, *section.divided)}
    if sentence := noise_of([*batch.rows, *used.values()]).sentence:
        yield paragraph(sentence)
    if rows := list(compared(section.points)):
        cells = [
            (s.what, str(s.workers), s.words, str(point.speedup), fmt.short(point.kernel), s.source)
            for s, point in rows
        ]
        yield table(TEXTS, cells, titled=True)


def _measured(point: Point) -> str:
    exactly = "" if abs(point.scaled - 1) < 1e-9 else f", times {point.scaled:.3g}"
    return f"{point.row.problem.removeprefix('aggregate/')}{exactly}" if point.scaled else ""


def compared(points: Sequence[Point]) -> Iterator[tuple[StatedSpeedup, Point]]:
    """Yield each published speedup with the fastest computed point of the same strategy and number of workers."""
    for stated in STATED:
        for name in stated.strategies:
            matching = [p for p in points if strategy_name(p.kernel) == name and p.workers == stated.workers]
            if matching:
                yield stated, max(matching, key=lambda point: point.speedup.median)
                break


def write_json(scaling: Scaling, out: IO[str]) -> None:
    """Write a `ScalingDocument`."""
    document = ScalingDocument(
        network=scaling.question.network,
        parameters=scaling.parameters,
        link_bytes_per_s=scaling.question.link_bytes_per_s,
        compute_run=scaling.compute_run,
        aggregation_run=scaling.aggregation_run,
        computed=[_point_row(section, point) for section in scaling.sections for point in section.points],
        stated=[row for section in scaling.sections for row in _stated(section)],
        exchanged=scaling.exchanged,
        model_parallel=[_point_row(section, point) for section in scaling.sections for point in section.divided],
    )
    out.write(indented(document) + "\n")


def _point_row(section: ScalingSection, point: Point) -> ScalingPoint:
    names = ("device", "device_name", "threads", "mode", "precision")
    return ScalingPoint(
        kernel=point.kernel,
        workers=point.workers,
        **{name: getattr(section.setting, name) for name in names},
        **_with_ends("compute_s", section.batch.seconds),
        aggregation_problem=point.row.problem,
        scaled=point.scaled,
        **_with_ends("aggregation_s", point.aggregation),
        link_s=point.link_s,
        **_with_ends("speedup", point.speedup),
        **_with_ends("hidden", point.hidden),
    )


def _with_ends(name: str, number: Ratio) -> dict[str, Any]:
    return {name: number.median, f"{name}_low": number.low, f"{name}_high": number.high}


def _stated(section: ScalingSection) -> list[StatedPoint]:
    names = ("what", "workers", "low", "high", "source")
    return [
        StatedPoint(kernel=p.kernel, **{n: getattr(s, n) for n in names}, **_with_ends("speedup", p.speedup))
        for s, p in compared(section.points)
    ]
