"""What `show` computes from several rows of a run: networks, shares of a training step, overlaps."""

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.networks import network_table
from kernelmark.bench.report.overlap import overlap_table
from kernelmark.bench.report.step import step_table


def summed(store: Store, run_id: str, by: str, step: bool) -> str:
    """Return the tables of a run by `network`, or the share of its step, or by `overlap`."""
    if by == "overlap":
        return overlap_table(store, store.results(run_id))
    if step:
        return step_table(store, discover(), run_id)
    return network_table(store.layers(run_id), list(store.layer_results(run_id)))
