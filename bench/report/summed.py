"""What `show` computes from several rows of a run: networks, shares of a training step, overlaps."""

from bench.plan.discovery import discover
from bench.record.store import Store
from bench.report.networks import network_table
from bench.report.overlap import overlap_table
from bench.report.step import step_table


def summed(store: Store, run_id: str, by: str, step: bool) -> str:
    """Return the tables of a run by `network`, or the share of its step, or by `overlap`."""
    if by == "overlap":
        return overlap_table(store, store.results(run_id))
    if step:
        return step_table(store, discover(), run_id)
    return network_table(store.layers(run_id), list(store.layer_results(run_id)))
