"""A store with made-up runs, for commands."""

import pytest

from support.compared import LOOSE, STEADY, add, begin
from support.rows import DISTURBED


@pytest.fixture
def two_runs(store):
    """Runs `20260101-old` (`base`, complete) and `20260201-new` (partial) in the store, closed; returns its path."""
    begin(store, "20260101-old", name="base", started_at="2026-01-01T10:00:00+00:00", planned=2)
    begin(store, "20260201-new", started_at="2026-02-01T10:00:00+00:00", planned=3)
    for run_id in store.run_ids():
        add(store, run_id, "m3n5/f32", STEADY, disturbed=DISTURBED)
    add(store, "20260101-old", "m9n5/f32", LOOSE)
    add(store, "20260201-new", "m9n5/f32", status="wrong", disturbed=DISTURBED)
    store.close()
    return str(store.path)
