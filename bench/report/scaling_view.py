"""The model of scaling as tables and JSON: strategies by workers, and what texts state beside what is computed."""

from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec

from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.scaling import FLOAT_BYTES, Point, Scaling, ScalingSection
from kernelmark.bench.report.strategies import STATED, StatedSpeedup, strategy_name

POINTS = (
    TableColumn("strategy"),
    TableColumn("workers", "right"),
    TableColumn("speedup"),
    TableColumn("of linear", "right", spare=2),
    TableColumn("if hidden", spare=4),
    TableColumn("additions", "right", spare=1),
    TableColumn("link", "right", spare=3),
    TableColumn("additions from", spare=5),
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
    """A strategy at a number of workers, computed. Seconds are those of a batch; null: an end that is not known.

    aggregation_s: `scaled` times the time of the row of `aggregation_problem`. hidden: the speedup if additions and
    link were hidden while the batch is computed.
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
    """What a text states, and what is computed here. low, high: null where it gives no number."""

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
    """What `scaling --json` prints: nothing of it is measured but the times of the rows that it is computed from.

    computed: by data parallelism. model_parallel: by model parallelism, whose steps exchange as much as an aggregation
    of `exchanged` elements.
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


def render(found: Scaling) -> str:
    """Return the paragraph that states what is computed from what, and the tables of each setting."""
    return "\n\n".join([_head(found), *(part for section in found.sections for part in _section(found, section))])


def _head(found: Scaling) -> str:
    asked = found.asked
    size = f"{found.parameters:,} weights, {fmt.size(found.gradient_bytes)} a gradient in FP32"
    runs = f"run {found.compute_run}" if found.compute_run == found.aggregation_run else (
        f"runs {found.compute_run} (layers) and {found.aggregation_run} (additions)"
    )  # fmt: skip
    return paragraph(
        f"{asked.network}: {size}; a link of {fmt.size(round(asked.link_bytes_per_s))}/s each way, as stated. "
        f"Computed, not measured: by the formula of docs/scaling.md from the rows of {runs}; each worker computes a "
        "whole batch."
    )


def _section(found: Scaling, section: ScalingSection) -> Iterator[str]:
    batch = section.batch
    yield paragraph(
        f"{section.setting.title}: {fmt.time(*batch.seconds[:3])} a batch forward and backward, by the fastest kernel "
        f"of each of {fmt.count(len(batch.rows), 'layer')}"
    )
    yield table(POINTS, [_cells(point) for point in section.points], titled=True)
    if section.divided:
        moved = fmt.size(found.exchanged * 2 * FLOAT_BYTES)
        yield paragraph(
            "Model parallelism: the workers share one batch, and each computes its part of every layer's outputs. They "
            f"exchange outputs and the gradients of inputs, {moved} in FP32."
        )
        yield table(POINTS, [_cells(point) for point in section.divided], titled=True)
    used = {point.row.case: point.row for point in (*section.points, *section.divided)}
    if sentence := noise_of([*batch.rows, *used.values()]).sentence:
        yield paragraph(sentence)
    if rows := list(compared(section.points)):
        yield table(TEXTS, [_beside(stated, point) for stated, point in rows], titled=True)


def _cells(point: Point) -> Sequence[str]:
    exactly = "" if abs(point.scaled - 1) < 1e-9 or not point.scaled else f", times {point.scaled:.3g}"
    return (
        fmt.short(point.kernel),
        str(point.workers),
        str(point.speedup),
        fmt.percent(point.speedup.median / point.workers),
        str(point.hidden),
        fmt.seconds(point.aggregation.median) if point.scaled else "",
        fmt.seconds(point.link_s) if point.link_s else "",
        f"{point.row.problem.removeprefix('aggregate/')}{exactly}" if point.scaled else "",
    )


def compared(points: Sequence[Point]) -> Iterator[tuple[StatedSpeedup, Point]]:
    """Yield what the texts state with the fastest point of the same strategy and number of workers."""
    for stated in STATED:
        for name in stated.strategies:
            own = [p for p in points if strategy_name(p.kernel) == name and p.workers == stated.workers]
            if own:
                yield stated, max(own, key=lambda point: point.speedup.median)
                break


def _beside(stated: StatedSpeedup, point: Point) -> Sequence[str]:
    here: Ratio = point.speedup
    return stated.what, str(stated.workers), stated.words, str(here), fmt.short(point.kernel), stated.source


def write_json(found: Scaling, out: IO[str]) -> None:
    """Write a `ScalingDocument`."""
    document = ScalingDocument(
        network=found.asked.network,
        parameters=found.parameters,
        link_bytes_per_s=found.asked.link_bytes_per_s,
        compute_run=found.compute_run,
        aggregation_run=found.aggregation_run,
        computed=[_point(section, point) for section in found.sections for point in section.points],
        stated=[one for section in found.sections for one in _stated(section)],
        exchanged=found.exchanged,
        model_parallel=[_point(section, point) for section in found.sections for point in section.divided],
    )
    out.write(msgspec.json.format(msgspec.json.encode(document).decode()) + "\n")


def _point(section: ScalingSection, point: Point) -> ScalingPoint:
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
    """Return a number and the ends of its interval under the names of their fields."""
    return {name: number.median, f"{name}_low": number.low, f"{name}_high": number.high}


def _stated(section: ScalingSection) -> list[StatedPoint]:
    return [
        StatedPoint(
            what=stated.what,
            workers=stated.workers,
            low=stated.low,
            high=stated.high,
            source=stated.source,
            kernel=point.kernel,
            **_with_ends("speedup", point.speedup),
        )
        for stated, point in compared(section.points)
    ]
