"""The model of scaling as tables: strategies by workers, and what the texts state beside what is computed here."""

from collections.abc import Iterator, Sequence

from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.layout import Column, paragraph, table
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.scaling import FLOAT_BYTES, Point, Scaling, Section
from kernelmark.bench.report.strategies import STATED, Stated, strategy_name

POINTS = (
    Column("strategy"),
    Column("workers", "right"),
    Column("speedup"),
    Column("of linear", "right", spare=2),
    Column("if hidden", spare=4),
    Column("additions", "right", spare=1),
    Column("link", "right", spare=3),
    Column("additions from", spare=5),
)
TEXTS = (
    Column("stated of"),
    Column("workers", "right", spare=3),
    Column("stated"),
    Column("computed here"),
    Column("by", spare=1),
    Column("source", spare=2, wraps=24),
)


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


def _section(found: Scaling, section: Section) -> Iterator[str]:
    batch = section.batch
    yield paragraph(
        f"{section.setting.title}: {fmt.time(*batch.seconds)} a batch forward and backward, by the fastest kernel of "
        f"each of {fmt.count(len(batch.rows), 'layer')}"
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


def compared(points: Sequence[Point]) -> Iterator[tuple[Stated, Point]]:
    """Yield what the texts state with the fastest point of the same strategy and number of workers."""
    for stated in STATED:
        for name in stated.strategies:
            own = [p for p in points if strategy_name(p.kernel) == name and p.workers == stated.workers]
            if own:
                yield stated, max(own, key=lambda point: point.speedup.median)
                break


def _beside(stated: Stated, point: Point) -> Sequence[str]:
    here: Ratio = point.speedup
    return stated.what, str(stated.workers), stated.words, str(here), fmt.short(point.kernel), stated.source
