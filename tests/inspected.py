"""Rows of `kernelmark inspect` as tests make them up."""

from typing import Any

from kernelmark.bench.tune.inspect import InspectRow


def row(**values: Any) -> InspectRow:
    """A row with these values in the place of the usual ones."""
    identity = {"kernel": "k", "tunables": "", "arch": "sm_80", "entry": "f", "problem": "p", "compiler": "c"}
    used = {"registers": 32, "static_shared_bytes": 0, "dynamic_shared_bytes": 0, "spill_bytes": 0, "stack_bytes": 0}
    fits = {"threads": 256, "blocks_per_sm": 8, "occupancy": 1.0, "limiter": "warps"}
    return InspectRow(**{**identity, **used, **fits, **values})
