"""Tiles that tuning has adopted, as tests make them up."""

from typing import Any

from kernelmark.bench.tune.tuned import Entry


def entry(**values: Any) -> Entry:
    """An entry with these values in the place of the usual ones."""
    usual = {"threads": 1, "mode": "cold", "digest": "c0ffee", "versions": "numba 0.62.1", "processes": 5}
    usual |= {"run": "race-1", "tuned_at": "2026-01-01T00:00:00"}
    return Entry(**{**usual, **values})
