"""Seconds a batch of the networks whose layers an experiment holds, at each of its batches."""

from kernelmark.bench.claims.evidence import Evidence
from kernelmark.bench.claims.findings import by_problem, fastest
from kernelmark.bench.report.networks import Sum, total

PASSES = {"forward": ("forward",), "forward + backward": ("forward", "backward")}


def seconds_a_batch(evidence: Evidence) -> list[str]:
    """Return `AMD EPYC: forward 41 ms [40 ms, 43 ms] at batch 1` for each device, pass and batch with all layers."""
    devices = dict.fromkeys(r.device_name for r in evidence.rows)
    parts = {layer.entry.part for layer in evidence.layers}
    return [
        f"{device}: {title} {found} at batch {batch}"
        for device in devices
        for title, wanted in PASSES.items()
        if parts.issuperset(wanted)
        for batch in evidence.experiment.batches
        if (found := _total(evidence, device, wanted, batch))
    ]


def _total(evidence: Evidence, device: str, parts: tuple[str, ...], batch: int) -> Sum | None:
    """Return the sum of the fastest times of all layers."""
    entries = [layer.entry for layer in evidence.layers if layer.batch == batch and layer.entry.part in parts]
    own = by_problem(r for r in evidence.rows if r.device_name == device)
    return total((entry.count, fastest(own.get(entry.problem.id, ()))) for entry in entries)
