"""Seconds a batch of the networks whose layers an experiment holds, at each of its batches."""

from collections.abc import Iterator

from bench.claims.evidence import Evidence
from bench.record.result import Result
from bench.report.networks import Sum

PASSES = {"forward": ("forward",), "forward + backward": ("forward", "backward")}


def seconds_a_batch(evidence: Evidence) -> list[str]:
    """`AMD EPYC: forward 41 ms [40 ms, 43 ms] at batch 1`, a sentence a device, pass and batch that has all layers."""
    devices = dict.fromkeys(row.result.device_name for row in evidence.rows)
    parts = {layer.entry.part for layer in evidence.layers}
    return [
        f"{device}: {title} {total} at batch {batch}"
        for device in devices
        for title, wanted in PASSES.items()
        if parts.issuperset(wanted)
        for batch in evidence.experiment.batches
        for total in _total(evidence, device, wanted, batch)
    ]


def _total(evidence: Evidence, device: str, parts: tuple[str, ...], batch: int) -> Iterator[Sum]:
    """The sum over the layers of the fastest of each, as often as the network has it; nothing where one has no time."""
    entries = [layer.entry for layer in evidence.layers if layer.batch == batch and layer.entry.part in parts]
    rows = [(entry.count, _fastest(evidence, device, entry.problem.id)) for entry in entries]
    found = [(count, row) for count, row in rows if row is not None]
    if found and len(found) == len(entries):
        median, low, high = (
            sum(count * (getattr(row, name) or 0.0) for count, row in found)
            for name in ("time_s_median", "time_s_ci95_low", "time_s_ci95_high")
        )
        yield Sum(median, (low, high) if all(row.time_s_ci95_low for _, row in found) else None)


def _fastest(evidence: Evidence, device: str, problem: str) -> Result | None:
    results = (row.result for row in evidence.rows)
    own = (r for r in results if (r.device_name, r.problem) == (device, problem))
    return min(own, key=lambda r: r.time_s_median or 0.0, default=None)
