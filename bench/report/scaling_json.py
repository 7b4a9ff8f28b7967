"""The model of scaling as JSON for other programs."""

from typing import IO

import msgspec

from bench.report.scaling import Point, Scaling, Section
from bench.report.scaling_view import compared


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
    """What `scaling --json` prints: nothing of it is measured but the times of the rows that it is computed from."""

    network: str
    parameters: int
    link_bytes_per_s: float
    compute_run: str
    aggregation_run: str
    computed: list[ScalingPoint]
    stated: list[StatedPoint]


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
    )
    out.write(msgspec.json.format(msgspec.json.encode(document).decode()) + "\n")


def _point(section: Section, point: Point) -> ScalingPoint:
    seconds = section.batch.seconds
    names = ("device", "device_name", "threads", "mode", "precision")
    return ScalingPoint(
        kernel=point.kernel,
        workers=point.workers,
        **{name: getattr(section.setting, name) for name in names},
        compute_s=seconds.median,
        compute_s_low=seconds.low,
        compute_s_high=seconds.high,
        aggregation_problem=point.row.problem,
        scaled=point.scaled,
        aggregation_s=point.aggregation.median,
        aggregation_s_low=point.aggregation.low,
        aggregation_s_high=point.aggregation.high,
        link_s=point.link_s,
        speedup=point.speedup.median,
        speedup_low=point.speedup.low,
        speedup_high=point.speedup.high,
        hidden=point.hidden.median,
        hidden_low=point.hidden.low,
        hidden_high=point.hidden.high,
    )


def _stated(section: Section) -> list[StatedPoint]:
    return [
        StatedPoint(
            what=stated.what,
            workers=stated.workers,
            low=stated.low,
            high=stated.high,
            source=stated.source,
            kernel=point.kernel,
            speedup=point.speedup.median,
            speedup_low=point.speedup.low,
            speedup_high=point.speedup.high,
        )
        for stated, point in compared(section.points)
    ]
