"""The model of scaling as JSON for other programs."""

from typing import IO, Any

import msgspec

from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.networks import Sum
from kernelmark.bench.report.scaling import Point, Scaling, Section
from kernelmark.bench.report.scaling_view import compared


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


def _point(section: Section, point: Point) -> ScalingPoint:
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


def _with_ends(name: str, number: Ratio | Sum) -> dict[str, Any]:
    """Return a number and the ends of its interval under the names of their fields."""
    return {name: number.median, f"{name}_low": number.low, f"{name}_high": number.high}


def _stated(section: Section) -> list[StatedPoint]:
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
